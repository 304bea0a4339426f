"""A hub with a clock and honest hands: what the socket code does, without sockets."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from hpc_worker import handshake as h
from hpc_worker import wire
from hpc_worker.keyring import Keyring, sign
from relay import actions
from relay.admission import Admission
from relay.hub import Hub
from relay.limits import Limits
from relay.peer import Conn, Stage

NAME = "relay.test"
CONSUMER = ("c1", bytes(range(32)))
PRODUCER = ("p-1", bytes(range(1, 33)))
OTHER_PRODUCER = ("p-2", bytes(range(2, 34)))
CID = bytes(range(16))
SALT = b"s" * 32


def frame(seq: int, kind: wire.FrameType = wire.FrameType.DATA, size: int = 32) -> bytes:
    return wire.header(kind, seq) + seq.to_bytes(4, "big") * ((size + wire.TAG_BYTES) // 4)


def head(salt: bytes = SALT, attempt: int = 1) -> bytes:
    return wire.build_head(wire.Head("k1", attempt, salt, bytes(32)))


@dataclass
class Bench:
    """Performs a hub's actions on a table of connections."""

    limits: Limits = field(default_factory=Limits)
    now: float = 100.0
    closed: dict[Conn, actions.Close] = field(default_factory=dict)
    ended: list[Conn] = field(default_factory=list)
    held: set[Conn] = field(default_factory=set)

    def __post_init__(self) -> None:
        counter = itertools.count(1)
        consumers = Keyring(CONSUMER[0], dict([CONSUMER]))
        producers = Keyring(PRODUCER[0], dict([PRODUCER, OTHER_PRODUCER]))
        admission = Admission(NAME, consumers, producers, lambda n: next(counter).to_bytes(n, "big"))
        self.hub = Hub(admission, self.limits)

    def perform(self, due: tuple[actions.Action, ...]) -> None:
        for action in due:
            match action:
                case actions.Close():
                    assert action.conn not in self.closed
                    self.closed[action.conn] = action
                case actions.Ended():
                    assert action.conn not in self.ended
                    assert action.conn.outcome is not None
                    self.ended.append(action.conn)
                case actions.Pause(seconds=0.0):
                    self.held.add(action.conn)
                case actions.Resume():
                    self.held.discard(action.conn)
                case actions.Pause() | actions.Wake():
                    pass

    def connect(self, address: str = "10.0.0.1") -> Conn:
        conn, due = self.hub.connect(address, self.now)
        self.perform(due)
        return conn

    def text(self, conn: Conn, message: h.Message | str) -> None:
        raw = message if isinstance(message, str) else h.build_text(message)
        self.perform(self.hub.on_text(conn, raw, self.now))

    def binary(self, conn: Conn, data: bytes) -> None:
        self.perform(self.hub.on_binary(conn, data, self.now))

    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.perform(self.hub.tick(self.now))

    def gone(self, conn: Conn) -> None:
        self.perform(self.hub.disconnect(conn, self.now))

    def take(self, conn: Conn) -> list[str | bytes]:
        batch = self.hub.take(conn, self.now)
        self.perform(self.hub.due())
        return batch

    def taken(self, conn: Conn) -> list[str | bytes]:
        out: list[str | bytes] = []
        while batch := self.take(conn):
            out.extend(batch)
        return out

    def nonce(self, conn: Conn) -> bytes:
        challenge = h.parse_text(str(self.taken(conn)[-1]))
        assert isinstance(challenge, h.Challenge)
        return challenge.nonce

    def consumer(self, cid: bytes = CID, last: int = 0, fin: bool = False, **more: Any) -> Conn:
        conn = self.connect()
        message = h.ConsumerOpen(CONSUMER[0], cid, last, fin, **more)
        self.text(conn, sign(CONSUMER[1], self.nonce(conn), NAME, message))
        return conn

    def producer(
        self, cid: bytes = CID, attempt: int = 1, salt: bytes = SALT, key: tuple[str, bytes] = PRODUCER
    ) -> Conn:
        conn = self.connect()
        message = h.ProducerOpen(key[0], cid, attempt, salt[:16])
        self.text(conn, sign(key[1], self.nonce(conn), NAME, message))
        return conn

    def park(self) -> Conn:
        conn = self.connect()
        self.text(conn, sign(PRODUCER[1], self.nonce(conn), NAME, h.Park(PRODUCER[0])))
        return conn

    def code(self, conn: Conn) -> int | None:
        return self.closed[conn].code if conn in self.closed else None

    def ok(self, conn: Conn) -> h.ConsumerOk | h.ProducerOk:
        message = h.parse_text(str(self.take(conn)[0]))
        assert isinstance(message, h.ConsumerOk | h.ProducerOk)
        return message

    def check(self) -> None:
        """What must hold at any moment."""
        life, registry = self.hub.life, self.hub.registry
        assert registry.memory == sum(c.bytes() for c in registry)
        assert registry.by_kid.total() == len(registry)
        assert registry.waiting.total() == sum(not c.attempt for c in registry)
        assert life.fresh.total() == sum(c.stage is Stage.FRESH for c in life.conns)
        assert life.parked.total() == sum(c.stage is Stage.PARKED for c in life.conns)
        assert all(c.stage is not Stage.ENDED and c.outcome is None for c in life.conns)
        for channel in registry:
            assert channel.ring.bytes <= self.limits.ring_bytes
            assert len(channel.ring) <= self.limits.ring_frames
            assert channel.control.bytes <= self.limits.control_bytes
            assert len(channel.control) <= self.limits.control_frames
            assert channel.consumer is None or channel.consumer.held == channel.control.full
            for conn in channel.connections():
                assert conn.channel is channel
                assert conn in life.conns
