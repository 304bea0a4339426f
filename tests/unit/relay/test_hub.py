"""Frames, flow, limits and hostile input: each rule on its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_worker import handshake as h
from hpc_worker import wire
from hpc_worker.wire import Close
from relay import actions
from relay.limits import MIB, Limits
from relay.peer import OUTCOME_OF, Outcome
from relay.reports import CidHash, log_line, metrics, network
from tests.unit.relay.hubs import CID, Bench, frame, head

# -- frames


def test_frames_flow_from_early_head_on_and_the_ack_is_told() -> None:
    bench = Bench()
    consumer, producer = bench.consumer(), bench.producer()
    for data in (head(), frame(1), frame(2), frame(2), frame(1)):
        bench.binary(producer, data)
    assert bench.taken(consumer)[1:] == [head(), frame(1), frame(2)]
    bench.text(consumer, h.Ack(2))
    bench.text(consumer, h.Ack(1))
    assert h.parse_text(str(bench.taken(producer)[-1])) == h.Ack(2)
    assert bench.hub.registry.memory == 0


def test_the_producer_is_woken_for_an_acknowledgement_every_32_frames_or_with_the_tick() -> None:
    bench = Bench()
    consumer, producer = bench.consumer(), bench.producer()
    for data in (head(), *(frame(n) for n in range(1, 41))):
        bench.binary(producer, data)
    bench.taken(consumer)
    bench.taken(producer)
    told = []
    for n in (3, 20, 31, 32, 40):
        due = bench.hub.on_text(consumer, h.build_text(h.Ack(n)), bench.now)
        if actions.Wake(producer) in due:
            told += bench.taken(producer)
    assert told == [h.ack_text(32)]
    assert actions.Wake(producer) in bench.hub.tick(bench.now + 1)
    assert bench.taken(producer) == [h.ack_text(40)]
    assert actions.Wake(producer) not in bench.hub.tick(bench.now + 2)


def test_a_gap_closes_the_producer() -> None:
    bench = Bench()
    bench.consumer()
    producer = bench.producer()
    bench.binary(producer, head())
    bench.binary(producer, frame(2))
    assert bench.code(producer) == Close.GAP


def test_fin_stored_ends_both_and_leaves_a_tombstone() -> None:
    bench = Bench()
    consumer, producer = bench.consumer(), bench.producer()
    for data in (head(), frame(1), frame(2, wire.FrameType.FIN)):
        bench.binary(producer, data)
    bench.taken(consumer)
    bench.text(consumer, h.Ack(2))
    assert (bench.code(consumer), bench.code(producer)) == (Close.DONE, Close.DONE)
    assert h.Ack(2) in [h.parse_text(str(m)) for m in bench.taken(producer)]
    assert bench.code(bench.producer()) == Close.FINISHED
    assert bench.code(bench.consumer()) == Close.FINISHED
    assert bench.code(bench.consumer(last=2, fin=True)) == Close.DONE
    bench.tick(601)
    assert bench.code(bench.producer()) == Close.NO_CHANNEL


def test_nothing_follows_fin() -> None:
    bench = Bench()
    bench.consumer()
    producer = bench.producer()
    for data in (head(), frame(1, wire.FrameType.FIN), frame(2)):
        bench.binary(producer, data)
    assert bench.code(producer) == Close.MALFORMED


def test_a_restarted_relay_lets_a_finished_consumer_end_the_producer() -> None:
    bench = Bench()
    assert bench.code(bench.consumer(last=9, fin=True)) == Close.DONE
    assert bench.code(bench.producer()) == Close.FINISHED
    other = bytes(16)
    bench.consumer(other)
    producer = bench.producer(other)
    assert bench.code(bench.consumer(other, last=9, fin=True)) == Close.DONE
    assert bench.code(producer) == Close.DONE
    assert h.Ack(9) in [h.parse_text(str(m)) for m in bench.taken(producer)]


def test_a_restarted_relay_goes_on_after_what_the_consumer_has() -> None:
    bench = Bench()
    consumer = bench.consumer(last=7)
    producer = bench.producer()
    assert bench.ok(producer) == h.ProducerOk(bench.hub._opening._epoch, -1, 7)
    for data in (head(), frame(7), frame(8)):
        bench.binary(producer, data)
    assert bench.taken(consumer)[1:] == [head(), frame(8)]


def test_acknowledging_what_was_never_sent_is_malformed() -> None:
    bench = Bench()
    consumer = bench.consumer()
    bench.text(consumer, h.Ack(1))
    assert bench.code(consumer) == Close.MALFORMED


def test_control_frames_wait_for_the_producer_and_are_repeated_to_one_that_returns() -> None:
    bench = Bench()
    consumer = bench.consumer()
    offers = [frame(5, wire.FrameType.CTRL), frame(9, wire.FrameType.CTRL)]
    for offer in (*offers, offers[0]):
        bench.binary(consumer, offer)
    first = bench.producer()
    assert bench.taken(first)[1:] == offers
    bench.gone(first)
    assert bench.taken(bench.producer())[1:] == offers


def test_control_frames_without_a_producer_hold_the_consumer_and_are_not_lost() -> None:
    bench = Bench(Limits(control_frames=3))
    consumer = bench.consumer()
    for seq in (1, 2, 3):
        bench.binary(consumer, frame(seq, wire.FrameType.CTRL))
    assert consumer in bench.held
    producer = bench.producer()
    assert consumer in bench.held  # there is room only when the producer has taken
    assert bench.taken(producer)[1:] == [frame(n, wire.FrameType.CTRL) for n in (1, 2, 3)]
    assert consumer not in bench.held
    bench.binary(consumer, frame(4, wire.FrameType.CTRL))
    assert bench.taken(producer) == [frame(4, wire.FrameType.CTRL)]
    bench.check()


@pytest.mark.parametrize("taken_before", [0, 1, 4])
def test_a_producer_that_leaves_while_its_ring_is_full_does_not_cost_the_consumer_its_connection(
    taken_before: int,
) -> None:
    bench = Bench(Limits(control_frames=4))
    consumer, producer = bench.consumer(), bench.producer()
    sent = 0
    while consumer not in bench.held and sent < 12:
        sent += 1
        bench.binary(consumer, frame(sent, wire.FrameType.CTRL))
        bench.check()
        if sent <= taken_before:
            bench.taken(producer)
    bench.gone(producer)
    bench.check()
    while consumer not in bench.held:
        sent += 1
        bench.binary(consumer, frame(sent, wire.FrameType.CTRL))
    bench.check()
    assert bench.code(consumer) is None
    again = bench.producer()
    kept = [wire.peek(item)[1] for item in bench.taken(again)[1:] if isinstance(item, bytes)]
    assert kept == [*range(sent - 3, sent + 1)]  # the newest four, and so all that the first one did not take
    assert consumer not in bench.held


def test_a_consumer_is_released_only_when_a_frame_of_the_largest_size_fits() -> None:
    bench = Bench(Limits(control_bytes=2 * wire.MAX_FRAME_BYTES))
    consumer, producer = bench.consumer(), bench.producer()
    bench.binary(consumer, frame(1, wire.FrameType.CTRL))
    bench.taken(producer)  # little is freed by forgetting this one
    size = (wire.MAX_FRAME_BYTES - wire.HEADER_BYTES - wire.TAG_BYTES) // 32 * 32
    bench.binary(consumer, frame(2, wire.FrameType.CTRL, size))
    bench.check()
    bench.taken(producer)
    for seq in range(3, 9):
        assert consumer not in bench.held
        bench.binary(consumer, frame(seq, wire.FrameType.CTRL, size))
        bench.taken(producer)
        bench.check()
    assert bench.code(consumer) is None


def test_a_consumer_that_is_held_is_not_called_slow() -> None:
    bench = Bench(Limits(ring_frames=2, control_frames=2))
    consumer, producer = bench.consumer(), bench.producer()
    for data in (head(), frame(1), frame(2)):
        bench.binary(producer, data)
    bench.taken(consumer)
    for seq in (1, 2):
        bench.binary(consumer, frame(seq, wire.FrameType.CTRL))
    bench.tick(31)
    assert consumer in bench.held
    assert bench.code(consumer) is None  # its acknowledgement waits in a socket that the relay does not read
    bench.taken(producer)
    bench.tick(31)
    assert bench.code(consumer) == Close.SLOW_CONSUMER


def test_a_new_attempt_forgets_the_offers_and_releases_the_consumer() -> None:
    bench = Bench(Limits(control_frames=2))
    consumer = bench.consumer()
    bench.producer()
    for seq in (1, 2):
        bench.binary(consumer, frame(seq, wire.FrameType.CTRL))
    assert consumer in bench.held
    bench.producer(attempt=2)
    assert consumer not in bench.held
    bench.check()


# -- flow and limits


def test_a_full_ring_stops_reading_and_never_drops() -> None:
    bench = Bench(Limits(ring_frames=4))
    consumer, producer = bench.consumer(), bench.producer()
    for data in (head(), *(frame(n) for n in (1, 2, 3, 4))):
        assert producer not in bench.held
        bench.binary(producer, data)
    assert producer in bench.held
    bench.taken(consumer)
    bench.text(consumer, h.Ack(1))
    assert producer not in bench.held
    bench.binary(producer, frame(5))
    assert producer in bench.held
    assert bench.taken(consumer) == [frame(5)]


def test_a_returning_producer_is_held_while_the_ring_is_full() -> None:
    bench = Bench(Limits(ring_frames=1))
    consumer, producer = bench.consumer(), bench.producer()
    bench.binary(producer, head())
    bench.binary(producer, frame(1))
    bench.gone(producer)
    again = bench.producer()
    assert again in bench.held
    bench.taken(consumer)
    bench.text(consumer, h.Ack(1))
    assert again not in bench.held


def test_a_consumer_that_takes_nothing_for_thirty_seconds_is_closed_and_the_producer_is_not() -> None:
    bench = Bench(Limits(ring_frames=2))
    consumer, producer = bench.consumer(), bench.producer()
    for data in (head(), frame(1), frame(2)):
        bench.binary(producer, data)
    bench.tick(29)
    assert bench.code(consumer) is None
    bench.tick(2)
    assert (bench.code(consumer), bench.code(producer)) == (Close.SLOW_CONSUMER, None)
    assert bench.taken(bench.consumer())[1:] == [head(), frame(1), frame(2)]


def test_the_rate_is_held_by_delay() -> None:
    bench = Bench(Limits(frames_per_s=100, bytes_per_s=MIB))
    bench.consumer()
    producer = bench.producer()
    bench.binary(producer, head())
    delays = []
    for seq in range(1, 151):
        due = bench.hub.on_binary(producer, frame(seq), bench.now)
        delays.extend(action.seconds for action in due if isinstance(action, actions.Pause))
    assert sum(delay > 1e-6 for delay in delays) == 51
    assert delays[-1] == pytest.approx(0.51)
    assert bench.code(producer) is None


def test_memory_of_all_rings_is_bounded_and_producers_go_on_when_it_is_free() -> None:
    bench = Bench(Limits(memory_bytes=1000))
    pairs = []
    for n in range(3):
        cid = bytes([n] * 16)
        pairs.append((bench.consumer(cid), bench.producer(cid)))
        bench.binary(pairs[-1][1], head())
    for seq in range(1, 8):
        for _, producer in pairs:
            if producer not in bench.held:
                bench.binary(producer, frame(seq))
    held = [p for _, p in pairs if p in bench.held]
    assert held
    assert bench.hub.registry.memory < 1000 + 3 * 53
    assert bench.code(bench.consumer(bytes([9] * 16))) == Close.LIMIT
    for consumer, _ in pairs:
        bench.taken(consumer)
        bench.text(consumer, h.Ack(6))
    assert not [p for p in held if p in bench.held]


def test_channels_are_limited_in_all() -> None:
    bench = Bench(Limits(channels=2))
    codes = [bench.code(bench.consumer(bytes([n] * 16))) for n in range(3)]
    assert codes == [None, None, Close.LIMIT]
    assert bench.code(bench.consumer(bytes([1] * 16))) is None  # one that exists may be taken over


def test_tombstones_are_bounded_in_number_and_time() -> None:
    bench = Bench(Limits(tombstones=2, tombstone_s=600))
    for n in (1, 2, 3):
        bench.consumer(bytes([n] * 16), last=1, fin=True)
        bench.tick(100)
    assert bench.hub.registry.tombstones == 2
    codes = [bench.code(bench.consumer(bytes([n] * 16))) for n in (1, 2, 3)]
    assert codes == [None, Close.FINISHED, Close.FINISHED]
    bench.tick(450)  # 650 s after the second, 550 s after the third
    assert bench.hub.registry.tombstones == 1
    bench.tick(100)
    assert bench.hub.registry.tombstones == 0


def test_channels_are_limited_by_key_and_by_waiting() -> None:
    bench = Bench(Limits(channels_per_kid=3, waiting_per_kid=2))
    assert bench.code(bench.consumer(bytes([1] * 16))) is None
    assert bench.code(bench.consumer(bytes([2] * 16))) is None
    assert bench.code(bench.consumer(bytes([3] * 16))) == Close.LIMIT
    bench.producer(bytes([1] * 16))
    assert bench.code(bench.consumer(bytes([3] * 16))) is None
    bench.producer(bytes([2] * 16))
    assert bench.code(bench.consumer(bytes([4] * 16))) == Close.LIMIT


def test_a_channel_without_consumer_goes_after_two_minutes() -> None:
    bench = Bench()
    consumer, producer = bench.consumer(), bench.producer()
    bench.gone(consumer)
    bench.tick(119)
    assert bench.code(producer) is None
    bench.tick(2)
    assert bench.code(producer) == Close.TIMEOUT
    assert len(bench.hub.registry) == 0
    bench.check()


def test_a_channel_lives_thirty_minutes_and_a_mailbox_by_its_traffic() -> None:
    bench = Bench()
    plain, box = bench.consumer(bytes(16)), bench.consumer(bytes([1] * 16), mailbox=True)
    for seq in range(1, 4):
        bench.tick(700)
        for conn in (plain, box):
            if conn.outcome is None:
                bench.binary(conn, frame(seq, wire.FrameType.CTRL))
    assert (bench.code(plain), bench.code(box)) == (Close.TIMEOUT, None)
    bench.tick(1801)
    assert bench.code(box) == Close.TIMEOUT


def test_drain_refuses_the_new_lets_the_running_finish_and_then_closes() -> None:
    bench = Bench()
    consumer, parked, fresh = bench.consumer(), bench.park(), bench.connect()
    bench.taken(consumer)
    bench.perform(bench.hub.drain(bench.now))
    assert (bench.code(parked), bench.code(fresh)) == (Close.RESTARTING, Close.RESTARTING)
    assert bench.closed[parked].reason == "after_ms=3000"
    assert bench.code(bench.connect()) == Close.RESTARTING
    assert h.parse_text(str(bench.taken(consumer)[0])) == h.Restarting(3000)
    assert bench.code(consumer) is None
    bench.tick(10.1)
    assert bench.code(consumer) == Close.RESTARTING


# -- hostile input, outcomes, log


@given(
    messages=st.lists(st.one_of(st.binary(max_size=200), st.text(max_size=200)), max_size=8),
    role=st.sampled_from("cpxk"),
)
def test_no_input_raises_and_each_connection_has_one_outcome(messages: list[bytes | str], role: str) -> None:
    bench = Bench()
    consumer, producer = bench.consumer(), bench.producer()
    bench.binary(producer, head())
    conn = {"c": consumer, "p": producer, "x": bench.connect(), "k": bench.park()}[role]
    for message in messages:
        if isinstance(message, bytes):
            bench.binary(conn, message)
        else:
            bench.text(conn, message)
        bench.take(conn)
    bench.gone(conn)
    bench.gone(conn)
    assert bench.ended.count(conn) == 1
    bench.check()


@given(kind=st.sampled_from([1, 2, 3, 4, 0x11, 0x55]), seq=st.integers(0, 2**32 - 1), size=st.integers(0, 600))
def test_frames_of_any_type_and_sequence_never_raise(kind: int, seq: int, size: int) -> None:
    bench = Bench()
    for conn in (bench.consumer(), bench.producer(), bench.connect()):
        bench.binary(conn, bytes([kind]) + seq.to_bytes(4, "big") + bytes(size))
        bench.gone(conn)
    assert len(bench.ended) == 3
    bench.check()


def test_every_close_code_is_an_outcome() -> None:
    assert set(OUTCOME_OF) == set(Close)
    assert len(set(OUTCOME_OF.values())) == len(Close)


def test_the_log_line_names_no_channel_and_no_full_address() -> None:
    bench = Bench()
    conn = bench.consumer()
    bench.gone(conn)
    names = CidHash()
    line = log_line(conn, names.name(conn.cid, 0), bench.now)
    assert CID.hex() not in line
    assert "10.0.0.1" not in line
    assert "net=10.0.0.0/24" in line
    assert f"outcome={Outcome.LEFT}" in line
    assert names.name(CID, 1) == names.name(CID, 2) != names.name(CID, 90_000)
    assert network("2001:db8:1:2::9") == "2001:db8:1::/48"


def test_metrics_count_what_happened() -> None:
    bench = Bench()
    bench.consumer()
    bench.producer()
    bench.text(bench.connect(), "rubbish")
    text = metrics(bench.hub)
    for line in ("relay_channels 1", "relay_connected_total 3", 'relay_connections_ended_total{outcome="malformed"} 1'):
        assert line in text.splitlines()
