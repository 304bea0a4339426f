"""How connections are counted, woken, held and ended. Pure: what is to be done is collected in `out`."""

from __future__ import annotations

from collections import Counter

from hpc_worker import handshake
from hpc_worker.wire import Close
from relay import actions
from relay.channel import Channel
from relay.limits import FailedOpens, Limits, Tally
from relay.peer import OUTCOME_OF, Conn, Outcome, Stage
from relay.registry import Registry

_FAILURES = frozenset({Close.DENIED, Close.MALFORMED, Close.VERSION, Close.FRAME_SIZE})
_FLUSHED = frozenset({Close.DONE, Close.RESTARTING})


class Lifecycle:
    """The connections of one relay process and the actions that are due."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.registry = Registry(limits)
        self.counters: Counter[str] = Counter()
        self.conns: set[Conn] = set()
        self.unopened: set[Conn] = set()
        self.fresh = Tally()
        self.parked = Tally()
        self.failed = FailedOpens(limits.failed_opens_per_minute)
        self.starved: set[Channel] = set()
        self.out: list[actions.Action] = []

    def flush(self) -> tuple[actions.Action, ...]:
        """Return the actions that are due, and forget them."""
        due = tuple(self.out)
        self.out.clear()
        return due

    # -- reading and writing

    def wake(self, conn: Conn) -> None:
        """Have `conn` take, unless its writer is already at it."""
        if conn.waiting:
            conn.waiting = False
            self.out.append(actions.Wake(conn))

    def hold(self, conn: Conn) -> None:
        """Stop reading from `conn`."""
        if not conn.held and conn.stage is not Stage.ENDED:
            conn.held = True
            self.out.append(actions.Pause(conn))

    def release(self, conn: Conn) -> None:
        """Read from `conn` again."""
        if conn.held and conn.stage is not Stage.ENDED:
            conn.held = False
            self.out.append(actions.Resume(conn))

    def settle_control(self, channel: Channel) -> None:
        """Hold the consumer exactly while the ring to the producer is full, so that its next CTRL always fits.

        What the producer was sent is kept for the case that its line breaks, and gives way, oldest first, when the
        ring fills up. What it was not sent stays.
        """
        ring, producer, consumer = channel.control, channel.producer, channel.consumer
        while producer is not None and ring.full and ring.base <= producer.sent:
            self.registry.memory -= ring.trim(ring.base)
        if consumer is None:
            return
        if ring.full:
            self.hold(consumer)
        else:
            self.release(consumer)

    def make_room(self, channel: Channel) -> None:
        """Let producers go on whose frames fit again: this channel's, and those that waited for memory."""
        if channel.full_since is not None and not channel.ring.full:
            channel.full_since = None
            self.starved.add(channel)
        self.relieve()

    def relieve(self) -> None:
        """Let producers go on that wait for memory, when there is enough again."""
        if not self.starved or not self.registry.relieved:
            return
        for channel in self.starved:
            if channel.producer is not None and not channel.ring.full:
                self.release(channel.producer)
        self.starved.clear()

    # -- ends

    def end(self, conn: Conn, code: Close, now: float, reason: str = "") -> None:
        """Close `conn` with `code`. Its outcome follows from the code."""
        if conn.stage is Stage.ENDED:
            return
        if conn.stage is not Stage.OPEN and code in _FAILURES:
            self.failed.add(conn.group, now)
        conn.close_code = int(code)
        self.out.append(actions.Close(conn, int(code), reason or code.words, code in _FLUSHED))
        self.leave(conn, OUTCOME_OF[code], now)

    def restarting(self, conn: Conn, now: float) -> None:
        """Close `conn` because this relay restarts, and say when to come back."""
        if conn.stage is not Stage.OPEN and conn.stage is not Stage.ENDED:
            conn.texts.append(handshake.build_text(handshake.Restarting(self.limits.restart_after_ms)))
        self.end(conn, Close.RESTARTING, now, f"after_ms={self.limits.restart_after_ms}")

    def leave(self, conn: Conn, outcome: Outcome, now: float) -> None:
        """Take `conn` out of everything and give it its one outcome."""
        if conn.stage is Stage.ENDED:
            return
        self.uncount(conn)
        channel, conn.channel = conn.channel, None
        conn.stage = Stage.ENDED
        conn.outcome = outcome
        conn.nonces = ()
        self.conns.discard(conn)
        self.counters[f"ended_{outcome}"] += 1
        self.out.append(actions.Ended(conn))
        if channel is None:
            return
        if channel.consumer is conn:
            channel.consumer = None
            channel.consumer_since = now
        elif channel.producer is conn:
            channel.producer = None

    def uncount(self, conn: Conn) -> None:
        """Take `conn` out of those that have not opened a channel."""
        self.unopened.discard(conn)
        if conn.stage is Stage.FRESH:
            self.fresh.down(conn.group)
        elif conn.stage is Stage.PARKED:
            self.parked.down(conn.kid)

    def finish(self, channel: Channel, n: int, now: float) -> None:
        """End a channel whose consumer has stored everything up to `n`, FIN among it."""
        if channel.producer is not None:
            channel.producer.ack_due = n
            self.end(channel.producer, Close.DONE, now)
        if channel.consumer is not None:
            self.end(channel.consumer, Close.DONE, now)
        self.registry.bury(channel.cid, now)
        self.drop(channel)

    def drop(self, channel: Channel) -> None:
        """Forget a channel that nobody is connected to any more."""
        self.starved.discard(channel)
        self.registry.drop(channel)
        self.relieve()
