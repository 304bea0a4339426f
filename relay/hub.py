"""The relay as a state machine without I/O. Time is passed in; what to do comes out as `relay.actions`.

| from the peer    | before `open`        | consumer                   | producer                                     |
|------------------|----------------------|----------------------------|----------------------------------------------|
| `park`           | parked, challenged   | 4400                       | 4400                                         |
| `open`           | seated, or a code    | 4400                       | 4400                                         |
| `ack`            | 4400                 | trims, told to producer    | 4400                                         |
| HEAD             | 4400                 | 4400                       | pinned; the same again is ignored, else 4409 |
| DATA, ALIVE, FIN | 4400                 | 4400                       | next: ring; known: ignored; gap: 4416        |
| CTRL             | 4400                 | kept; known: ignored       | 4400                                         |

A frame is stored once and never copied: a consumer's place in the ring is its send queue (`take`), so a consumer that
does not read costs the ring and nothing else. A full ring stops reading from the producer and never drops a frame.

A producer's `open` names its process (`instance`, half of the salt in its HEAD). The same process may replace its own
older connection; another one of the same attempt is a task that was started twice and is refused once HEAD is pinned.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from hpc_worker import handshake, wire
from hpc_worker.wire import Close, peek
from relay.actions import Action, Pause
from relay.admission import Admission
from relay.channel import Channel
from relay.lifecycle import Lifecycle
from relay.limits import Limits, address_group
from relay.opening import Opening
from relay.peer import Conn, Outcome, Role, Stage

BATCH = 64
TELL_FRAMES = 32
_HEAD, _FIN, _CTRL = int(wire.FrameType.HEAD), int(wire.FrameType.FIN), int(wire.FrameType.CTRL)
_NOTHING: tuple[Action, ...] = ()


class Hub:
    """Pairs connections and moves frames. Its public methods return the actions to perform, in order.

    After `Pause` nothing more of that connection may be passed in before `Resume` (or before its seconds are over).
    """

    def __init__(self, admission: Admission, limits: Limits, random: Callable[[int], bytes] = os.urandom) -> None:
        self.life = Lifecycle(limits)
        self.registry = self.life.registry
        self.draining = False
        self._drained_at = 0.0
        self._opening = Opening(self.life, admission, random(8))

    # -- connections come and go

    def connect(self, address: str, now: float) -> tuple[Conn, tuple[Action, ...]]:
        """Take a new connection and challenge it, or close it at once."""
        conn = Conn(address, address_group(address), now)
        self.life.conns.add(conn)
        self.life.counters["connected"] += 1
        self._opening.greet(conn, now)
        if self.draining:
            self.life.restarting(conn, now)
        return conn, self.life.flush()

    def disconnect(self, conn: Conn, now: float) -> tuple[Action, ...]:
        """Note that the socket of `conn` is gone."""
        self.life.leave(conn, Outcome.LEFT, now)
        return self.life.flush()

    def drain(self, now: float) -> tuple[Action, ...]:
        """Refuse what is new, let running channels finish for `drain_s`, then close with 4430 (see `tick`)."""
        self.draining = True
        self._drained_at = now + self.life.limits.drain_s
        notice = handshake.build_text(handshake.Restarting(self.life.limits.restart_after_ms))
        for conn in list(self.life.conns):
            if conn.stage is Stage.OPEN:
                conn.texts.append(notice)
                self.life.wake(conn)
            else:
                self.life.restarting(conn, now)
        return self.life.flush()

    # -- messages

    def on_text(self, conn: Conn, text: str, now: float) -> tuple[Action, ...]:
        """Take a hop-by-hop message."""
        if conn.stage is Stage.ENDED:
            return _NOTHING
        try:
            message = handshake.parse_text(text)
        except wire.WireError as error:
            self.life.end(conn, error.close, now)
            return self.life.flush()
        if isinstance(message, handshake.Ack) and conn.role is Role.CONSUMER and conn.channel is not None:
            self._ack(conn, conn.channel, message.n, now)
        elif isinstance(message, handshake.Authenticated) and conn.stage is not Stage.OPEN:
            self._opening.admit(conn, message, now)
        else:
            self.life.end(conn, Close.MALFORMED, now)
        return self.life.flush()

    def on_binary(self, conn: Conn, frame: bytes, now: float) -> tuple[Action, ...]:
        """Take a frame. Every token comes this way: nothing is allocated but the ring's slot."""
        channel, life = conn.channel, self.life
        if channel is None:
            life.end(conn, Close.MALFORMED, now)
            return life.flush()
        try:
            kind, seq = peek(frame)
        except wire.WireError as error:
            life.end(conn, error.close, now)
            return life.flush()
        size = len(frame)
        conn.frames += 1
        conn.bytes += size
        channel.traffic = now
        if conn is not channel.producer:
            self._control(conn, channel, seq if kind == _CTRL else -1, frame, now)
        elif kind == _HEAD:
            self._head(conn, channel, frame, now)
        elif kind == _CTRL or not channel.head:
            life.end(conn, Close.MALFORMED, now)
        else:
            self._data(conn, channel, seq, frame, now)
            if kind == _FIN and channel.ring.top == seq:
                channel.fin_seq = seq
        wait = channel.pace.delay(size, now)
        if wait and not conn.held and conn.outcome is None:
            life.out.append(Pause(conn, wait))
        return life.flush() if life.out else _NOTHING

    def take(self, conn: Conn, now: float) -> list[str | bytes]:
        """Return what to send to `conn` next, in order; empty when there is nothing until the next `Wake`.

        May make actions due: see `due`. When `conn.waiting` is set after it, the next call would return nothing.
        """
        out: list[str | bytes] = []
        if conn.texts:
            out.extend(conn.texts)
            conn.texts.clear()
        if conn.ack_due >= 0:
            out.append(handshake.ack_text(conn.ack_due))
            conn.told, conn.ack_due = conn.ack_due, -1
        channel = conn.channel
        conn.waiting = True
        if channel is None:
            return out
        if conn is channel.producer:
            ring = channel.control
        else:
            ring = channel.ring
            if not conn.head_sent and channel.head:
                conn.head_sent = True
                out.append(channel.head)
        frames = ring.after(conn.sent, BATCH)
        if frames:
            conn.sent = max(conn.sent, ring.base - 1) + len(frames)
            conn.last_take = now
            conn.waiting = len(frames) < BATCH
            out.extend(frames)
            if ring is channel.control:
                self.life.settle_control(channel)
        return out

    def due(self) -> tuple[Action, ...]:
        """Return the actions that `take` made due."""
        return self.life.flush() if self.life.out else _NOTHING

    # -- time

    def tick(self, now: float) -> tuple[Action, ...]:
        """Let time pass; call it about once a second."""
        life = self.life
        self._opening.tick(now)
        for channel in list(self.registry):
            self._tick_channel(channel, now)
        life.relieve()
        life.failed.sweep(now)
        self.registry.sweep(now)
        if self.draining and now >= self._drained_at:
            for conn in list(life.conns):
                life.restarting(conn, now)
        return life.flush()

    def _tick_channel(self, channel: Channel, now: float) -> None:
        life = self.life
        if channel.expired(now, life.limits):
            for conn in list(channel.connections()):
                life.end(conn, Close.TIMEOUT, now)
            life.drop(channel)
            return
        if channel.stalled(now, life.limits) and channel.consumer is not None:
            life.end(channel.consumer, Close.SLOW_CONSUMER, now)
        if channel.producer is not None and channel.producer.ack_due >= 0:
            life.wake(channel.producer)

    # -- producer to consumer

    def _head(self, conn: Conn, channel: Channel, frame: bytes, now: float) -> None:
        try:
            head = wire.parse_frame(frame)
        except wire.WireError as error:
            self.life.end(conn, error.close, now)
            return
        says = (head.attempt, head.salt_p[:16]) if isinstance(head, wire.Head) else None
        if says != (channel.attempt, channel.instance):
            self.life.end(conn, Close.MALFORMED, now)
        elif not channel.head:
            channel.head = frame
            if channel.consumer is not None:
                self.life.wake(channel.consumer)
        elif channel.head != frame:
            self.life.end(conn, Close.REPLACED, now)

    def _data(self, conn: Conn, channel: Channel, seq: int, frame: bytes, now: float) -> None:
        life, ring = self.life, channel.ring
        if seq <= ring.top:
            return
        if channel.fin_seq:
            life.end(conn, Close.MALFORMED, now)
        elif seq != ring.top + 1:
            life.end(conn, Close.GAP, now)
        elif ring.full:  # only from a caller that reads on after `Pause`
            life.end(conn, Close.LIMIT, now)
        else:
            ring.append(frame)
            registry = self.registry
            registry.memory += len(frame)
            consumer = channel.consumer
            if consumer is not None and consumer.waiting:
                life.wake(consumer)
            if ring.full:
                channel.full_since = now
                life.hold(conn)
            elif registry.memory >= registry.most_memory:
                life.starved.add(channel)
                life.hold(conn)

    def _ack(self, conn: Conn, channel: Channel, n: int, now: float) -> None:
        if n > max(conn.sent, conn.last):
            self.life.end(conn, Close.MALFORMED, now)
            return
        n = min(n, channel.ring.top)
        if n <= channel.acked:
            return
        channel.acked = n
        channel.traffic = now
        if channel.fin_seq and n >= channel.fin_seq:
            self.life.finish(channel, n, now)
            return
        self.registry.memory -= channel.ring.trim(n)
        self.life.make_room(channel)
        producer = channel.producer
        if producer is not None:  # what is less than 32 frames is told with the next tick, or with what else is sent
            producer.ack_due = n
            if n - producer.told >= TELL_FRAMES:
                self.life.wake(producer)

    # -- consumer to producer

    def _control(self, conn: Conn, channel: Channel, seq: int, frame: bytes, now: float) -> None:
        """Keep a CTRL frame (`seq` is -1 for any other) for the producer that is there and for the one that returns.

        Sequences only have to rise: a platform process that took over does not know the last one.
        """
        if seq < 0:
            self.life.end(conn, Close.MALFORMED, now)
            return
        if seq <= channel.control_seq:
            return
        if channel.control.full:  # only from a caller that reads on after `Pause`
            self.life.end(conn, Close.LIMIT, now)
            return
        channel.control_seq = seq
        channel.control.append(frame)
        self.registry.memory += len(frame)
        if channel.producer is not None:
            self.life.wake(channel.producer)
        self.life.settle_control(channel)
