"""Admission, parking and seats: each rule on its own."""

from __future__ import annotations

import pytest

from hpc_worker import handshake as h
from hpc_worker.keyring import sign
from hpc_worker.wire import Close
from relay.limits import Limits
from tests.unit.relay.hubs import CID, CONSUMER, NAME, OTHER_PRODUCER, PRODUCER, SALT, Bench, frame, head

# -- admission


def test_only_a_consumer_creates_a_channel() -> None:
    bench = Bench()
    assert bench.code(bench.producer()) == Close.NO_CHANNEL
    assert len(bench.hub.registry) == 0
    consumer = bench.consumer()
    assert bench.ok(consumer) == h.ConsumerOk(bench.hub._opening._epoch, False, 0)
    assert bench.ok(bench.producer()) == h.ProducerOk(bench.hub._opening._epoch, -1, 0)


@pytest.mark.parametrize(
    ("key", "role"),
    [
        (("c2", CONSUMER[1]), "consumer"),
        ((CONSUMER[0], bytes(32)), "consumer"),
        (PRODUCER, "consumer"),
        (CONSUMER, "producer"),
    ],
)
def test_unknown_key_wrong_mac_and_wrong_role_get_one_code(key: tuple[str, bytes], role: str) -> None:
    bench = Bench()
    conn = bench.connect()
    message = h.ConsumerOpen(key[0], CID, 0, False) if role == "consumer" else h.ProducerOpen(key[0], CID, 1, SALT[:16])
    bench.text(conn, sign(key[1], bench.nonce(conn), NAME, message))
    assert bench.code(conn) == Close.DENIED


def test_a_nonce_is_for_its_connection_and_once() -> None:
    bench = Bench()
    first, second = bench.connect(), bench.connect()
    stolen = sign(CONSUMER[1], bench.nonce(first), NAME, h.ConsumerOpen(CONSUMER[0], CID, 0, False))
    bench.text(second, stolen)
    assert bench.code(second) == Close.DENIED
    bench.text(first, stolen)
    assert bench.code(first) is None
    bench.text(first, stolen)
    assert bench.code(first) == Close.MALFORMED


def test_a_nonce_that_parked_a_socket_does_not_open_it() -> None:
    bench = Bench()
    bench.consumer()
    conn = bench.connect()
    nonce = bench.nonce(conn)
    bench.text(conn, sign(PRODUCER[1], nonce, NAME, h.Park(PRODUCER[0])))
    bench.text(conn, sign(PRODUCER[1], nonce, NAME, h.ProducerOpen(PRODUCER[0], CID, 1, bytes(16))))
    assert bench.code(conn) == Close.DENIED


def test_a_mac_under_the_key_that_stands_for_no_key_is_denied() -> None:
    bench = Bench()
    conn = bench.connect()
    message = h.ConsumerOpen("nobody", CID, 0, False)
    bench.text(conn, sign(bytes(32), bench.nonce(conn), NAME, message))
    assert bench.code(conn) == Close.DENIED


def test_another_relays_challenge_is_of_no_use() -> None:
    bench = Bench()
    conn = bench.connect()
    message = h.ConsumerOpen(CONSUMER[0], CID, 0, False)
    bench.text(conn, sign(CONSUMER[1], bench.nonce(conn), "other.relay", message))
    assert bench.code(conn) == Close.DENIED


def test_five_failures_block_the_address_for_a_minute_and_no_other() -> None:
    bench = Bench()
    for _ in range(5):
        bench.text(bench.connect("10.0.0.7"), "rubbish")
    assert bench.code(bench.connect("10.0.0.7")) == Close.LIMIT
    assert bench.code(bench.connect("10.0.0.8")) is None
    bench.tick(61)
    assert bench.code(bench.connect("10.0.0.7")) is None


def test_a_failure_that_is_a_minute_old_counts_no_more_although_newer_ones_do() -> None:
    bench = Bench()
    for _ in range(5):
        bench.text(bench.connect("10.0.0.7"), "rubbish")
        bench.tick(14)
    assert bench.code(bench.connect("10.0.0.7")) is None  # 70 seconds after the first, 14 after the fifth


def test_unauthenticated_connections_are_limited_by_address_and_in_all() -> None:
    bench = Bench(Limits(unauthenticated=12))
    assert [bench.code(bench.connect("10.0.0.1")) for _ in range(11)] == [None] * 10 + [Close.LIMIT]
    assert [bench.code(bench.connect("10.0.0.2")) for _ in range(3)] == [None, None, Close.LIMIT]
    assert [bench.code(bench.connect("2001:db8::1")) for _ in range(1)] == [Close.LIMIT]


def test_who_does_not_open_in_five_seconds_is_closed() -> None:
    bench = Bench()
    conn = bench.connect()
    bench.tick(4.9)
    assert bench.code(conn) is None
    bench.tick(0.2)
    assert bench.code(conn) == Close.TIMEOUT


def test_a_parked_socket_gets_a_new_nonce_each_minute_and_the_last_one_still_opens() -> None:
    bench = Bench()
    bench.consumer()
    conn = bench.park()
    old = bench.nonce(conn)
    bench.tick(61)
    new = bench.nonce(conn)
    assert new != old
    bench.text(conn, sign(PRODUCER[1], old, NAME, h.ProducerOpen(PRODUCER[0], CID, 1, SALT[:16])))
    bench.binary(conn, head())
    bench.binary(conn, frame(1))
    assert bench.code(conn) is None
    bench.check()


def test_a_parked_socket_opens_with_its_own_key_only() -> None:
    bench = Bench()
    bench.consumer()
    conn = bench.park()
    message = h.ProducerOpen(OTHER_PRODUCER[0], CID, 1, SALT[:16])
    bench.text(conn, sign(OTHER_PRODUCER[1], bench.nonce(conn), NAME, message))
    assert bench.code(conn) == Close.DENIED


def test_parked_sockets_are_limited_a_key_and_do_not_count_as_unauthenticated() -> None:
    bench = Bench()
    parked = [bench.park() for _ in range(33)]
    assert [bench.code(c) for c in parked] == [None] * 32 + [Close.LIMIT]
    assert bench.hub.life.fresh.total() == 0
    bench.gone(parked[0])
    assert bench.code(bench.park()) is None


# -- seats


def test_the_newer_consumer_takes_over() -> None:
    bench = Bench()
    old, new = bench.consumer(), bench.consumer()
    assert (bench.code(old), bench.code(new)) == (Close.REPLACED, None)


def test_the_same_process_takes_over_and_a_second_process_is_refused() -> None:
    bench = Bench()
    bench.consumer()
    old = bench.producer()
    bench.binary(old, head())
    twin = bench.producer(salt=b"t" * 32)
    assert (bench.code(twin), bench.code(old)) == (Close.REPLACED, None)
    new = bench.producer()
    assert (bench.code(old), bench.code(new)) == (Close.REPLACED, None)
    assert bench.ok(new) == h.ProducerOk(bench.hub._opening._epoch, 0, 0)


def test_another_endpoints_key_cannot_take_the_seat_of_an_attempt() -> None:
    bench = Bench()
    bench.consumer()
    first = bench.producer()
    assert bench.code(bench.producer(key=OTHER_PRODUCER)) == Close.DENIED
    assert bench.code(first) is None


def test_a_higher_attempt_fences_the_lower_and_starts_anew() -> None:
    bench = Bench()
    consumer = bench.consumer()
    old = bench.producer()
    for data in (head(), frame(1), frame(2)):
        bench.binary(old, data)
    assert len(bench.taken(consumer)) == 4
    new = bench.producer(attempt=2, salt=b"n" * 32)
    assert (bench.code(old), bench.code(consumer)) == (Close.STALE_ATTEMPT, Close.STALE_ATTEMPT)
    assert bench.ok(new) == h.ProducerOk(bench.hub._opening._epoch, -1, 0)
    assert bench.code(bench.producer(attempt=1)) == Close.STALE_ATTEMPT
    bench.binary(new, head(b"n" * 32, 2))
    bench.binary(new, frame(1))
    again = bench.consumer()
    assert bench.taken(again)[1:] == [head(b"n" * 32, 2), frame(1)]
    bench.check()


def test_head_must_match_what_open_said() -> None:
    bench = Bench()
    bench.consumer()
    for data in (head(b"x" * 32), head(attempt=2)):
        conn = bench.producer()
        bench.binary(conn, data)
        assert bench.code(conn) == Close.MALFORMED
