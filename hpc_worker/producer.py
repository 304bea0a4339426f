"""The producer's side of one channel as a state machine. Pure: no sockets, no clock.

    events in                                    actions out
    connected()      a socket is open            `Stop(outcome)`       final; the outcome is one of `OUTCOMES`
    receive_text()   challenge, ok, ack, ...     `Retry(after_s)`      close the socket, dial again
    receive_frame()  CTRL                        `Control(kind, body)` an authentic instruction of the platform
    lost(code)       the socket is gone          `Won()`               the relay gave this instance the attempt
    write(), finish()    the model's side        messages to send are pulled with `next_message()`

    offline --connected--> challenged? --challenge--> opening --ok--> ready --ack of FIN--> stopped
       ^                                                |               |
       +---------------------- lost, Retry -------------+---------------+

Frames are kept until the consumer has stored them, at most 8 MiB. After a reconnect those above the relay's `have`
are sent again, byte for byte, so a nonce is never used for two contents.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

from hpc_worker import bodies, crypto, handshake, keyring, wire
from hpc_worker.wire import Close, Direction, FrameType, Kind

MAX_UNACKED_BYTES = 8 * 1024 * 1024
_DENIED_RETRIES = 1
_GAP_RETRIES = 1

OUTCOMES = frozenset({"delivered", "replaced", "finished", "stale_attempt", "denied", "version", "malformed", "gap"})
_FINAL = {
    Close.REPLACED: "replaced",
    Close.FINISHED: "finished",
    Close.STALE_ATTEMPT: "stale_attempt",
    Close.VERSION: "version",
    Close.MALFORMED: "malformed",
    Close.FRAME_SIZE: "malformed",
}


@dataclass(frozen=True)
class Stop:
    outcome: str


@dataclass(frozen=True)
class Retry:
    """Dial again: after `after_s` seconds, or after the caller's own backoff when None."""

    after_s: float | None = None
    why: str = ""


@dataclass(frozen=True)
class Control:
    kind: Kind
    body: bytes


@dataclass(frozen=True)
class Won:
    pass


Action = Stop | Retry | Control | Won


@dataclass(frozen=True, repr=False)
class Identity:
    """Who this producer is: the stream's keys, its salt_p, its admission key and the relay's name."""

    keys: crypto.StreamKeys
    salt_p: bytes
    admission_kid: str
    admission_key: bytes
    relay_name: str

    @property
    def head(self) -> bytes:
        scope = self.keys.scope
        return wire.build_head(wire.Head(scope.kid, scope.attempt, self.salt_p, self.keys.commit))


class Producer:
    """Decide what one producer sends, keeps and does. `eager` sends frames with the first `open`, before `ok`."""

    def __init__(self, identity: Identity, *, eager: bool = False, max_unacked: int = MAX_UNACKED_BYTES) -> None:
        self._id = identity
        self._head = identity.head
        self._sealer = crypto.Sealer(identity.keys, Direction.P2C)
        self._opener = crypto.Opener(identity.keys, Direction.C2P)
        self._eager = eager
        self._max_unacked = max_unacked
        self._unacked: deque[bytes] = deque()  # frames acked+1 .. top
        self._control: deque[str] = deque()  # text messages to send
        self._state = "offline"
        self._send_head = False
        self._head_sent_ever = self._fin_sent = False
        self._next = 1  # next sequence to send on this connection
        self._ctrl_seq = 0
        self._denied = self._gaps = 0
        self._restart_after_s: float | None = None
        self.unacked_bytes = 0
        self.acked = 0
        self.fin_seq = 0
        self.data_frames = self.data_bytes = 0
        self.forged_controls = 0
        self.outcome = ""

    # -- the model's side ---------------------------------------------------------------------------------------------

    @property
    def top(self) -> int:
        """The last sequence sealed."""
        return self.acked + len(self._unacked)

    @property
    def has_room(self) -> bool:
        """Whether the model may be read on. FIN and ALIVE are always taken."""
        return self.unacked_bytes < self._max_unacked

    @property
    def is_ready(self) -> bool:
        return self._state == "ready"

    @property
    def has_unsent(self) -> bool:
        """Whether frames wait for the socket."""
        return self._next <= self.top

    def write(self, kind: Kind, body: bytes) -> None:
        """Seal and keep one DATA frame. Raises `CryptoError`."""
        self._keep(FrameType.DATA, kind, body)
        self.data_frames += 1
        self.data_bytes += len(body)

    def alive(self, alive: bodies.Alive) -> None:
        """Seal and keep one ALIVE frame."""
        self._keep(FrameType.ALIVE, Kind.ALIVE, alive.dump())

    def finish(self, fin: bodies.Fin) -> None:
        """Seal FIN with the counts of what was written. Nothing may be written after it."""
        counted = replace(fin, data_frames=self.data_frames, data_bytes=self.data_bytes)
        self._keep(FrameType.FIN, Kind.FIN, counted.dump())
        self.fin_seq = self.top

    def _keep(self, frame_type: FrameType, kind: Kind, body: bytes) -> None:
        if self.fin_seq:
            raise ValueError("the stream has ended: nothing may follow FIN")
        frame = self._sealer.seal(frame_type, kind, body)
        self._unacked.append(frame)
        self.unacked_bytes += len(frame)

    def records(self) -> list[bodies.Record]:
        """Return what the consumer has not acknowledged, for the transcript."""
        opener = crypto.Opener(self._id.keys, Direction.P2C)
        return [bodies.Record(o.type, o.kind, o.seq, o.body) for o in map(opener.open, self._unacked)]

    # -- the relay's side ---------------------------------------------------------------------------------------------

    def connected(self) -> None:
        """Note that a socket is open; the relay speaks first."""
        self._state = "challenged"
        self._control.clear()
        self._send_head = False
        self._restart_after_s = None

    def next_message(self) -> str | bytes | None:
        """Return the next message for the socket, or None when there is none now."""
        if self._control:
            return self._control.popleft()
        if self._state != "ready" and not (self._state == "opening" and self._eager):
            return None
        if self._send_head:
            self._send_head = False
            self._head_sent_ever = True
            return self._head
        if self._next > self.top:
            return None
        self._next += 1
        self._fin_sent = self._fin_sent or self._next > self.fin_seq > 0
        return self._unacked[self._next - 2 - self.acked]

    def receive_text(self, text: str | bytes) -> list[Action]:
        """Take a hop-by-hop message. A malformed or untimely one means a new connection."""
        if self.outcome:
            return []
        try:
            message = handshake.parse_text(text)
        except wire.WireError as error:
            return self._drop(f"malformed message from the relay: {error.reason}")
        if isinstance(message, handshake.Ack):
            return self._on_ack(message.n) if self._state == "ready" else self._drop("ack before ok")
        if isinstance(message, handshake.Restarting):
            self._restart_after_s = message.after_ms / 1000
            return []
        if isinstance(message, handshake.Challenge):
            if self._state == "challenged":
                self._open(message.nonce)
            return []
        if isinstance(message, handshake.ProducerOk) and self._state == "opening":
            return self._on_ok(message)
        return self._drop("untimely message from the relay")

    def _open(self, nonce: bytes) -> None:
        scope = self._id.keys.scope
        message = handshake.ProducerOpen(self._id.admission_kid, scope.cid, scope.attempt, self._id.salt_p[:16])
        signed = keyring.sign(self._id.admission_key, nonce, self._id.relay_name, message)
        self._control.append(handshake.build_text(signed))
        self._state = "opening"
        self._next = self.acked + 1
        self._send_head = self._eager

    def _on_ok(self, ok: handshake.ProducerOk) -> list[Action]:
        was_eager, self._eager = self._eager, False
        if max(ok.have, ok.ack) > self.top or (ok.have >= 0 and not self._head_sent_ever):
            # the relay holds frames that this instance never sealed: the attempt belongs to another instance
            return self._stop("replaced")
        if ok.ack > self.acked:
            self._trim(ok.ack)
        self._state = "ready"
        if not was_eager:
            self._send_head = ok.have < 0
            self._next = max(ok.have, ok.ack, self.acked) + 1
        else:
            self._next = max(self._next, self.acked + 1)
        done = self._stop("delivered") if self._fin_acked else []
        return [Won(), *done]

    def _on_ack(self, n: int) -> list[Action]:
        if n > self.top:
            return self._drop("ack of a frame that was never sealed")
        if n > self.acked:
            self._trim(n)
        return self._stop("delivered") if self._fin_acked else []

    @property
    def _fin_acked(self) -> bool:
        return 0 < self.fin_seq <= self.acked

    def _trim(self, n: int) -> None:
        for _ in range(n - self.acked):
            self.unacked_bytes -= len(self._unacked.popleft())
        self.acked = n
        self._next = max(self._next, n + 1)
        self._denied = self._gaps = 0

    def receive_frame(self, frame: bytes) -> list[Action]:
        """Take a binary message. Forged and repeated CTRL frames are counted and ignored."""
        if self.outcome:
            return []
        try:
            opened = self._opener.open(frame)
        except crypto.CryptoError:
            self.forged_controls += 1
            return []
        except wire.WireError as error:
            return self._drop(f"malformed frame from the relay: {error.reason}")
        if opened.seq <= self._ctrl_seq:
            return []
        self._ctrl_seq = opened.seq
        return [Control(opened.kind, opened.body)]

    def lost(self, code: int | None, after_ms: int | None = None) -> list[Action]:
        """Note that the socket closed with `code`, or that dialling failed (None)."""
        restart, self._restart_after_s = self._restart_after_s, None
        was_eager = self._state == "opening" and self._eager
        self._state = "offline"
        self._control.clear()
        if self.outcome:
            return []
        if was_eager:
            self._eager = False
        if code == Close.FINISHED and self._fin_sent:
            # a tombstone after FIN: the consumer has stored it, only the ack was lost
            return self._stop("delivered")
        if code in _FINAL:
            return self._stop(_FINAL[Close(code)])
        if code == Close.DENIED:
            self._denied += 1
            return self._stop("denied") if self._denied > _DENIED_RETRIES else [Retry(why="denied")]
        if code == Close.GAP:
            self._gaps += 1
            return self._stop("gap") if self._gaps > _GAP_RETRIES else [Retry(why="gap")]
        if after_ms is not None:
            restart = after_ms / 1000
        return [Retry(restart, why=_words(code))]

    def _drop(self, why: str) -> list[Action]:
        self._state = "offline"
        return [Retry(why=why)]

    def _stop(self, outcome: str) -> list[Action]:
        self.outcome = outcome
        self._state = "stopped"
        self._control.clear()
        return [Stop(outcome)]


def _words(code: Any) -> str:
    try:
        return Close(code).words
    except ValueError:
        return "no connection" if code is None else f"closed with {code}"
