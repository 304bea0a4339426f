"""Sealing and opening beyond what the vectors say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_worker import crypto, wire
from hpc_worker.crypto import CryptoError, Opener, Scope, Sealer
from hpc_worker.keyring import Keyring
from hpc_worker.wire import KINDS_OF, Direction, FrameType, Kind

KEY = bytes(range(32))
SCOPE = Scope("k1", bytes(range(16, 32)), 1)
KEYS = crypto.derive_stream(KEY, SCOPE, b"\xaa" * 32, b"\xbb" * 32)
PAIRS = [(t, k) for t, kinds in KINDS_OF.items() for k in kinds]


@given(st.lists(st.tuples(st.sampled_from(PAIRS), st.binary(max_size=200)), max_size=20), st.sampled_from(Direction))
def test_a_stream_round_trips(items: list[tuple[tuple[FrameType, Kind], bytes]], direction: Direction) -> None:
    sealer, opener = Sealer(KEYS, direction), Opener(KEYS, direction)
    for number, ((frame_type, kind), body) in enumerate(items, start=1):
        frame = sealer.seal(frame_type, kind, body)
        assert opener.open(frame) == (frame_type, number, kind, body)
        assert (len(frame) - 21) % 32 == 0
        assert body == b"" or len(body) < 8 or body not in frame


@given(
    st.binary(max_size=300)
    | st.builds(
        lambda t, rest: bytes([t, 0, 0, 0, 1]) + rest,
        st.sampled_from([1, 2, 3, 4, 17]),
        st.binary(min_size=48, max_size=48),
    )
)
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((CryptoError, wire.WireError)) as caught:
        Opener(KEYS, Direction.P2C).open(data)
    assert caught.value.reason in crypto.REASONS | wire.REASONS


@given(st.integers(0, 53 * 8 - 1))
def test_every_flipped_bit_is_noticed(bit: int) -> None:
    frame = bytearray(Sealer(KEYS, Direction.P2C).seal(FrameType.DATA, Kind.TEXT, b"Hi"))
    frame[bit // 8] ^= 1 << bit % 8
    with pytest.raises((CryptoError, wire.WireError)):
        Opener(KEYS, Direction.P2C).open(bytes(frame))


def test_the_sequence_ends_with_an_error_and_is_never_reused() -> None:
    sealer = Sealer(KEYS, Direction.P2C, wire.MAX_SEQ)
    frame = sealer.seal(FrameType.DATA, Kind.TEXT, b"last")
    assert Opener(KEYS, Direction.P2C).open(frame).seq == wire.MAX_SEQ
    for _ in range(2):
        with pytest.raises(CryptoError, match="sequence_exhausted"):
            sealer.seal(FrameType.DATA, Kind.TEXT, b"more")


def test_a_refused_body_uses_no_sequence_number() -> None:
    sealer = Sealer(KEYS, Direction.P2C)
    with pytest.raises(CryptoError, match="body_size"):
        sealer.seal(FrameType.DATA, Kind.TEXT, bytes(wire.MAX_BODY_BYTES + 1))
    with pytest.raises(CryptoError, match="kind"):
        sealer.seal(FrameType.DATA, Kind.FIN, b"")
    assert sealer.next_seq == 1
    frame = sealer.seal(FrameType.DATA, Kind.TEXT, bytes(wire.MAX_BODY_BYTES))
    assert len(frame) <= wire.MAX_FRAME_BYTES


def test_a_zero_first_sequence_is_refused() -> None:
    with pytest.raises(CryptoError, match="sequence"):
        Sealer(KEYS, Direction.C2P, 0)


def test_every_input_of_the_derivation_counts() -> None:
    made = [
        crypto.derive_stream(key, scope, salt_c, salt_p)
        for key, scope, salt_c, salt_p in [
            (KEY, SCOPE, b"c" * 32, b"p" * 32),
            (b"x" * 32, SCOPE, b"c" * 32, b"p" * 32),
            (KEY, Scope("k2", SCOPE.cid, 1), b"c" * 32, b"p" * 32),
            (KEY, Scope("k1", bytes(16), 1), b"c" * 32, b"p" * 32),
            (KEY, Scope("k1", SCOPE.cid, 2), b"c" * 32, b"p" * 32),
            (KEY, SCOPE, b"d" * 32, b"p" * 32),
            (KEY, SCOPE, b"c" * 32, b"q" * 32),
        ]
    ]
    secrets = [part for keys in made for part in (*keys.p2c, *keys.c2p, keys.commit)]
    assert len(set(secrets)) == len(secrets)


@pytest.mark.parametrize(
    ("kid", "cid", "attempt"), [("K", bytes(16), 1), ("k", bytes(15), 1), ("k", bytes(16), 0), ("k", bytes(16), 65536)]
)
def test_a_scope_is_checked(kid: str, cid: bytes, attempt: int) -> None:
    with pytest.raises(CryptoError, match="scope"):
        Scope(kid, cid, attempt)


def test_salts_and_keys_have_32_bytes() -> None:
    with pytest.raises(CryptoError, match="salt"):
        crypto.derive_stream(KEY, SCOPE, b"c" * 31, b"p" * 33)
    with pytest.raises(CryptoError, match="wrong_key"):
        crypto.derive_stream(KEY[:16], SCOPE, b"c" * 32, b"p" * 32)


def test_keys_are_not_printed() -> None:
    assert KEYS.p2c[0].hex() not in repr(KEYS)
    assert "p2c" not in repr(KEYS)


def test_a_head_is_accepted_by_the_ring_that_holds_its_key() -> None:
    head = wire.Head("k1", 1, b"\xbb" * 32, KEYS.commit)
    ring = Keyring("k0", {"k0": b"0" * 32, "k1": KEY})
    assert crypto.accept_head(ring, SCOPE, b"\xaa" * 32, head) == KEYS
    with pytest.raises(CryptoError, match="wrong_key"):
        crypto.accept_head(Keyring("k1", {"k1": b"0" * 32}), SCOPE, b"\xaa" * 32, head)
    with pytest.raises(CryptoError, match="unknown_kid"):
        crypto.accept_head(Keyring("k0", {"k0": KEY}), SCOPE, b"\xaa" * 32, head)
    with pytest.raises(CryptoError, match="wrong_attempt"):
        crypto.accept_head(ring, Scope("k1", SCOPE.cid, 2), b"\xaa" * 32, head)


@given(st.binary(max_size=2000))
def test_requests_and_results_round_trip(body: bytes) -> None:
    salt_c, salt_p = b"c" * 32, b"p" * 32
    request = crypto.seal_request(KEY, SCOPE, salt_c, body)
    result = crypto.seal_result(KEY, SCOPE, (salt_c, salt_p), body)
    assert crypto.open_request(KEY, SCOPE, salt_c, request) == body
    assert crypto.open_result(KEY, SCOPE, (salt_c, salt_p), result) == body
    assert (len(request) - 16) % 256 == 0
    with pytest.raises(CryptoError, match="forged"):
        crypto.open_request(KEY, SCOPE, salt_c, result)
