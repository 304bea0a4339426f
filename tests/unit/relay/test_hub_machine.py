"""The hub under random connects, losses, repeats and hostile bytes: what is stored is a prefix of what was sent."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hpc_worker import handshake as h
from hpc_worker import wire
from relay.limits import Limits
from relay.peer import Conn
from tests.unit.relay.hubs import CID, SALT, Bench, frame, head

LIMITS = Limits(
    ring_bytes=wire.MAX_FRAME_BYTES + 1500,
    ring_frames=24,
    control_frames=4,
    memory_bytes=4000,
    unauthenticated_per_address=1000,
    failed_opens_per_minute=10_000,
    frames_per_s=1e6,
    bytes_per_s=1e9,
)


class HubMachine(RuleBasedStateMachine):
    """One channel, one honest producer process, one honest store, and a world that breaks."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(LIMITS)
        self.sent: dict[int, bytes] = {}
        self.fin_at = 0
        self.stored: list[bytes] = []
        self.consumer: Conn | None = None
        self.producer: Conn | None = None
        self.next = 1
        self.acked = 0
        self.opened: list[Conn] = []
        self.head_seen = False

    # -- the honest peers

    @rule()
    def consumer_connects(self) -> None:
        conn = self.bench.consumer(last=len(self.stored), fin=bool(self.fin_at) and len(self.stored) == self.fin_at)
        self.opened.append(conn)
        self.consumer, self.head_seen = conn, False

    @rule()
    def producer_connects(self) -> None:
        conn = self.bench.producer()
        self.opened.append(conn)
        if self.bench.code(conn) is not None:
            assert self.bench.code(conn) in (4404, 4410)
            return
        ok = self.bench.ok(conn)
        assert isinstance(ok, h.ProducerOk)
        assert ok.ack <= len(self.stored)
        assert ok.have <= max(self.sent, default=0)
        self.acked = max(self.acked, ok.ack)
        if ok.have < 0 and conn not in self.bench.held:
            self.bench.binary(conn, head())
        self.producer, self.next = conn, (ok.ack if ok.have < 0 else ok.have) + 1

    @rule(count=st.integers(1, 30), size=st.sampled_from([32, 64, 256]), back=st.integers(0, 3))
    def producer_sends(self, count: int, size: int, back: int) -> None:
        conn = self.producer
        self.next = max(self.acked + 1, self.next - back)
        for _ in range(count):
            if conn is None or conn.outcome is not None or conn in self.bench.held:
                return
            if self.fin_at and self.next > self.fin_at:
                return
            data = self.sent.setdefault(self.next, frame(self.next, size=size))
            self.bench.binary(conn, data)
            self.next += 1

    @initialize()
    def a_stream_runs(self) -> None:
        self.consumer_connects()
        self.producer_connects()
        self.producer_sends(5, 32, 0)
        self.consumer_reads(1)

    @rule(count=st.integers(1, 40), size=st.sampled_from([32, 256]))
    def the_line_comes_back(self, count: int, size: int) -> None:
        self.consumer_connects()
        self.producer_connects()
        self.producer_sends(count, size, 0)
        self.consumer_reads(2)
        self.consumer_acks(0)
        self.producer_sends(count, size, 2)
        self.consumer_reads(2)

    @precondition(lambda self: self.sent and not self.fin_at)
    @rule()
    def producer_finishes(self) -> None:
        self.fin_at = max(self.sent) + 1
        self.sent[self.fin_at] = frame(self.fin_at, wire.FrameType.FIN)

    @rule(batches=st.integers(1, 3))
    def consumer_reads(self, batches: int) -> None:
        conn = self.consumer
        for _ in range(batches):
            if conn is None or conn.outcome is not None:
                return
            for item in self.bench.take(conn):
                if isinstance(item, str):
                    continue
                kind, seq = wire.peek(item)
                if kind == wire.FrameType.HEAD:
                    assert item == head()
                    self.head_seen = True
                    continue
                assert self.head_seen
                assert seq <= len(self.stored) + 1, "a gap reached the consumer"
                if seq == len(self.stored) + 1:
                    self.stored.append(item)

    @rule(less=st.integers(0, 5))
    def consumer_acks(self, less: int) -> None:
        conn = self.consumer
        if conn is not None and conn.outcome is None and conn not in self.bench.held:
            self.bench.text(conn, h.Ack(max(0, len(self.stored) - less)))

    @rule(seq=st.integers(1, 1000))
    def consumer_controls(self, seq: int) -> None:
        conn = self.consumer
        if conn is not None and conn.outcome is None and conn not in self.bench.held:
            self.bench.binary(conn, frame(seq, wire.FrameType.CTRL))

    @rule()
    def producer_reads(self) -> None:
        if self.producer is not None and self.producer.outcome is None:
            for item in self.bench.taken(self.producer):
                message = h.parse_text(item) if isinstance(item, str) else None
                if isinstance(message, h.Ack):
                    assert message.n <= len(self.stored)
                    self.acked = max(self.acked, message.n)

    # -- the world

    @rule()
    def consumer_vanishes(self) -> None:
        if self.consumer is not None:
            self.bench.gone(self.consumer)

    @rule()
    def producer_vanishes(self) -> None:
        if self.producer is not None:
            self.bench.gone(self.producer)

    @rule(seconds=st.sampled_from([0.5, 2.0, 40.0]))
    def time_passes(self, seconds: float) -> None:
        self.bench.tick(seconds)

    @rule()
    def relay_restarts(self) -> None:
        self.bench = Bench(LIMITS, now=self.bench.now)
        self.consumer = self.producer = None
        self.opened.clear()

    @rule(skip=st.integers(2, 9))
    def a_producer_skips(self, skip: int) -> None:
        """The same process with a bug: its gap must not get through."""
        conn = self.bench.producer()
        self.opened.append(conn)
        if conn.outcome is None and conn not in self.bench.held:
            channel = self.bench.hub.registry.get(CID)
            assert channel is not None
            if channel.head and not channel.fin_seq:
                self.bench.binary(conn, frame(channel.ring.top + skip))
                assert self.bench.code(conn) == wire.Close.GAP

    @rule()
    def the_task_is_started_twice(self) -> None:
        channel = self.bench.hub.registry.get(CID)
        if channel is None or not channel.head:
            return
        twin = self.bench.producer(salt=b"t" * 32)
        self.opened.append(twin)
        assert self.bench.code(twin) == wire.Close.REPLACED
        assert channel.instance == SALT[:16]

    @rule(data=st.binary(max_size=80), text=st.booleans())
    def a_stranger_talks(self, data: bytes, text: bool) -> None:
        conn = self.bench.connect("10.9.9.9")
        self.opened.append(conn)
        if text:
            self.bench.text(conn, data.decode("latin-1"))
        else:
            self.bench.binary(conn, data)
        assert conn.outcome is not None

    # -- what always holds

    @invariant()
    def stored_is_a_prefix(self) -> None:
        assert self.stored == [self.sent[n] for n in range(1, len(self.stored) + 1)]

    @invariant()
    def books_balance(self) -> None:
        self.bench.check()
        slack = wire.MAX_FRAME_BYTES
        assert self.bench.hub.registry.memory <= LIMITS.memory_bytes + slack
        honest = (wire.Close.GAP, wire.Close.MALFORMED, wire.Close.LIMIT, wire.Close.DENIED)
        for conn in (self.consumer, self.producer):
            assert conn is None or self.bench.code(conn) not in honest, "an honest peer was closed"
        for conn in self.opened:
            assert (conn.outcome is not None) == (conn in self.bench.ended)


TestHubMachine = HubMachine.TestCase
TestHubMachine.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
