"""The producer's state machine: scripted conversations, then any order of events against a model of the relay."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hpc_worker import bodies, crypto, handshake, keyring, wire
from hpc_worker.bodies import Fin
from hpc_worker.producer import OUTCOMES, Control, Identity, Producer, Retry, Stop, Won
from hpc_worker.wire import Close, Direction, FrameType, Kind

KEY, ADMISSION = bytes(range(32)), b"a" * 32
SALT_P = b"\xbb" * 32
SCOPE = crypto.Scope("k1", bytes(range(16, 32)), 1)
KEYS = crypto.derive_stream(KEY, SCOPE, b"\xaa" * 32, SALT_P)
WHO = Identity(KEYS, SALT_P, "p1", ADMISSION, "relay.example.edu")
NONCE = b"n" * 32
CHALLENGE = handshake.build_text(handshake.Challenge(NONCE, bytes(8)))


def ok(have: int, ack: int = 0) -> str:
    return handshake.build_text(handshake.ProducerOk(bytes(8), have, ack))


def ack(n: int) -> str:
    return handshake.build_text(handshake.Ack(n))


def sent(producer: Producer) -> list[Any]:
    out = []
    while (message := producer.next_message()) is not None:
        out.append(message)
    return out


def seqs(messages: list[Any]) -> list[int]:
    return [wire.peek(m)[1] for m in messages if isinstance(m, bytes)]


def ready(have: int = -1, **options: Any) -> Producer:
    producer = Producer(WHO, **options)
    producer.connected()
    producer.receive_text(CHALLENGE)
    assert producer.receive_text(ok(have)) == [Won()]
    return producer


def test_the_open_is_signed_for_this_challenge() -> None:
    producer = Producer(WHO)
    assert producer.next_message() is None
    producer.connected()
    assert producer.next_message() is None, "the relay speaks first"
    producer.receive_text(CHALLENGE)
    (text,) = sent(producer)
    message = handshake.parse_text(text)
    assert isinstance(message, handshake.ProducerOpen)
    assert keyring.admitted(ADMISSION, NONCE, "relay.example.edu", message)
    assert (message.cid, message.attempt, message.instance) == (SCOPE.cid, 1, SALT_P[:16])


def test_head_goes_first_and_only_when_the_relay_has_none() -> None:
    producer = ready()
    producer.write(Kind.TEXT, b"a")
    assert seqs(sent(producer)) == [0, 1]
    producer.lost(1006)
    producer.connected()
    producer.receive_text(CHALLENGE)
    producer.receive_text(ok(1))
    producer.write(Kind.TEXT, b"b")
    assert seqs(sent(producer)) == [2]
    producer.lost(1006)
    producer.connected()
    producer.receive_text(CHALLENGE)
    producer.receive_text(ok(-1, 1))
    assert seqs(sent(producer)) == [0, 2]


def test_the_same_bytes_are_sent_again() -> None:
    producer = ready()
    for _ in range(5):
        producer.write(Kind.TEXT, b"x")
    first = sent(producer)
    producer.lost(None)
    producer.connected()
    producer.receive_text(CHALLENGE)
    producer.receive_text(ok(2))
    assert sent(producer)[1:] == first[-3:]


def test_another_instance_of_the_attempt_stops_before_the_model() -> None:
    producer = Producer(WHO)
    producer.connected()
    producer.receive_text(CHALLENGE)
    assert producer.receive_text(ok(0)) == [Stop("replaced")]


def test_an_ack_of_fin_is_delivery() -> None:
    producer = ready()
    producer.write(Kind.TEXT, b"a")
    producer.finish(Fin("stop"))
    sent(producer)
    assert producer.receive_text(ack(1)) == []
    assert producer.receive_text(ack(2)) == [Stop("delivered")]
    assert producer.unacked_bytes == 0
    assert producer.lost(1000) == []


def test_an_ok_can_say_that_fin_is_stored() -> None:
    producer = ready()
    producer.finish(Fin("stop"))
    sent(producer)
    producer.lost(1006)
    producer.connected()
    producer.receive_text(CHALLENGE)
    assert producer.receive_text(ok(1, 1)) == [Won(), Stop("delivered")]


def test_a_tombstone_after_fin_is_delivery_and_before_it_is_not() -> None:
    producer = ready()
    producer.finish(Fin("stop"))
    sent(producer)
    assert producer.lost(Close.FINISHED) == [Stop("delivered")]
    producer = ready()
    producer.finish(Fin("stop"))
    assert producer.lost(Close.FINISHED) == [Stop("finished")], "FIN never left"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(4409, "replaced"), (4412, "stale_attempt"), (4402, "version"), (4400, "malformed"), (4413, "malformed")],
)
def test_final_codes(code: int, outcome: str) -> None:
    producer = ready()
    assert producer.lost(code) == [Stop(outcome)]
    assert producer.outcome == outcome
    assert producer.receive_text(ack(0)) == []
    assert producer.receive_frame(b"x") == []
    assert producer.next_message() is None


@pytest.mark.parametrize("code", [None, 1000, 1001, 1006, 1011, 4404, 4408, 4420, 4429, 4999])
def test_other_codes_are_retried(code: int | None) -> None:
    producer = ready()
    for _ in range(20):
        (action,) = producer.lost(code)
        assert isinstance(action, Retry)
        assert action.after_s is None
        assert action.why


@pytest.mark.parametrize(("code", "outcome"), [(4401, "denied"), (4416, "gap")])
def test_denied_and_gap_get_one_more_try(code: int, outcome: str) -> None:
    producer = Producer(WHO)
    assert producer.lost(code) == [Retry(why=outcome)]
    assert producer.lost(code) == [Stop(outcome)]


def test_a_restart_notice_says_when_to_come_back() -> None:
    producer = ready()
    producer.receive_text('{"t":"restarting","after_ms":1500}')
    (action,) = producer.lost(4430)
    assert isinstance(action, Retry)
    assert action.after_s == 1.5
    (action,) = producer.lost(4430)
    assert isinstance(action, Retry)
    assert action.after_s is None


@pytest.mark.parametrize(
    "text", ["", "{}", ack(1), ok(1), '{"t":"ok","epoch":"0000000000000000","producer":true,"top":1}']
)
def test_untimely_and_malformed_messages_mean_a_new_connection(text: str) -> None:
    producer = ready()
    (action,) = producer.receive_text(text)
    assert isinstance(action, Retry)
    assert not producer.is_ready


def test_an_ack_before_ok_is_untimely() -> None:
    producer = Producer(WHO)
    producer.connected()
    assert isinstance(producer.receive_text(ack(0))[0], Retry)


def test_only_authentic_new_controls_reach_the_worker() -> None:
    producer = ready()
    sealer = crypto.Sealer(KEYS, Direction.C2P)
    frames = [sealer.seal(FrameType.CTRL, Kind.CANCEL, bodies.dump_cancel(str(n))) for n in range(3)]
    assert producer.receive_frame(frames[1]) == [Control(Kind.CANCEL, b'{"reason":"1"}')]
    assert producer.receive_frame(frames[0]) == [], "older"
    assert producer.receive_frame(frames[1]) == [], "repeated"
    assert producer.receive_frame(frames[2][:-1] + b"\0") == []
    p2c = crypto.Sealer(KEYS, Direction.P2C).seal(FrameType.DATA, Kind.TEXT, b"x")
    assert producer.receive_frame(p2c) == [], "our own frame played back"
    assert producer.forged_controls == 2
    assert len(producer.receive_frame(frames[2])) == 1
    assert isinstance(producer.receive_frame(b"junk")[0], Retry)


def test_eager_frames_leave_with_the_first_open_only() -> None:
    producer = Producer(WHO, eager=True)
    producer.write(Kind.TEXT, b"a")
    producer.connected()
    producer.receive_text(CHALLENGE)
    messages = sent(producer)
    assert isinstance(messages[0], str)
    assert seqs(messages) == [0, 1]
    assert producer.receive_text(ok(-1)) == [Won()]
    assert sent(producer) == [], "what was sent with the open is not sent again"
    producer.write(Kind.TEXT, b"b")
    assert seqs(sent(producer)) == [2]
    producer.lost(1006)
    producer.connected()
    producer.receive_text(CHALLENGE)
    assert seqs(sent(producer)) == []
    producer.receive_text(ok(1))
    assert seqs(sent(producer)) == [2]


def test_eager_frames_that_met_no_channel_are_sent_again() -> None:
    producer = Producer(WHO, eager=True)
    producer.write(Kind.TEXT, b"a")
    producer.connected()
    producer.receive_text(CHALLENGE)
    sent(producer)
    producer.lost(4404)
    producer.connected()
    producer.receive_text(CHALLENGE)
    producer.receive_text(ok(-1))
    assert seqs(sent(producer)) == [0, 1]


def test_room_is_counted_in_bytes_and_given_back() -> None:
    producer = ready(max_unacked=200)
    for _ in range(4):
        assert producer.has_room
        producer.write(Kind.TEXT, b"x")
    assert not producer.has_room
    sent(producer)
    producer.receive_text(ack(2))
    assert producer.has_room
    assert producer.unacked_bytes == 2 * 53


def test_nothing_follows_fin() -> None:
    producer = ready()
    producer.finish(Fin("stop"))
    with pytest.raises(ValueError, match="nothing may follow"):
        producer.write(Kind.TEXT, b"x")


def test_records_are_what_was_not_acknowledged() -> None:
    producer = ready()
    for body in (b"a", b"b", b"c"):
        producer.write(Kind.TEXT, body)
    producer.finish(Fin("stop"))
    sent(producer)
    producer.receive_text(ack(2))
    records = producer.records()
    assert [(r.seq, r.body) for r in records[:1]] == [(3, b"c")]
    assert Fin.load(records[-1].body) == Fin("stop", data_frames=3, data_bytes=3)


class Channel(RuleBasedStateMachine):
    """Any order of events, with a relay that keeps or forgets and a consumer that stores in order.

    Whatever happens the consumer's frames are 1, 2, 3, ... with one content each, and FIN's ack ends it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.producer = Producer(WHO, eager=False)
        self.ring: dict[int, bytes] = {}
        self.head = False
        self.stored = 0  # by the consumer
        self.ever: dict[int, bytes] = {}
        self.pipe: list[Any] = []  # on the way to the relay
        self.linked = False
        self.opened = False
        self.written = 0
        self.ended = False

    @precondition(lambda self: not self.linked and not self.producer.outcome)
    @rule()
    def connect(self) -> None:
        self.producer.connected()
        assert self.producer.receive_text(CHALLENGE) == []
        self.linked, self.opened, self.pipe = True, False, []

    @precondition(lambda self: not self.ended)
    @rule(body=st.binary(max_size=5))
    def write(self, body: bytes) -> None:
        self.producer.write(Kind.TEXT, body)
        self.written += 1

    @precondition(lambda self: not self.ended)
    @rule()
    def alive(self) -> None:
        self.producer.alive(bodies.Alive("prefill"))

    @precondition(lambda self: not self.ended)
    @rule()
    def finish(self) -> None:
        self.producer.finish(Fin("stop"))
        self.ended = True

    @precondition(lambda self: self.linked)
    @rule(count=st.integers(1, 5))
    def socket_takes(self, count: int) -> None:
        for _ in range(count):
            message = self.producer.next_message()
            if message is not None:
                self.pipe.append(message)

    @precondition(lambda self: self.pipe)
    @rule()
    def relay_reads(self) -> None:
        message = self.pipe.pop(0)
        if isinstance(message, str):
            assert isinstance(handshake.parse_text(message), handshake.ProducerOpen)
            self.opened = True
            have = max([self.stored, *self.ring]) if self.head else -1
            actions = self.producer.receive_text(ok(have, self.stored))
            assert actions[0] == Won()
            return
        assert self.opened
        kind, seq = wire.peek(message)
        if kind == FrameType.HEAD:
            self.head = True
            return
        assert self.head, "HEAD comes first"
        assert seq <= max([self.stored, *self.ring]) + 1, "no gap"
        assert self.ever.setdefault(seq, message) == message, "one nonce, one content"
        self.ring[seq] = message

    @precondition(lambda self: self.linked and self.opened and not self.producer.outcome)
    @rule(count=st.integers(0, 4))
    def consumer_stores(self, count: int) -> None:
        while count and self.stored + 1 in self.ring:
            self.stored += 1
            count -= 1
        actions = self.producer.receive_text(ack(self.stored))
        fin_stored = self.ended and self.stored == self.producer.top
        assert actions == ([Stop("delivered")] if fin_stored else [])

    @rule(forget=st.booleans())
    def cut(self, forget: bool) -> None:
        if forget:
            self.ring, self.head = {}, False
        self.linked, self.opened, self.pipe = False, False, []
        actions = self.producer.lost(1006)
        assert len(actions) == (0 if self.producer.outcome else 1)

    @invariant()
    def kept_is_what_is_not_stored(self) -> None:
        records = self.producer.records()
        assert self.producer.acked <= self.stored
        assert [r.seq for r in records] == list(range(self.producer.acked + 1, self.producer.top + 1))
        assert self.producer.outcome in OUTCOMES | {""}
        assert self.producer.data_frames == self.written


TestChannel = Channel.TestCase
TestChannel.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
