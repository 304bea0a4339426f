"""Frames: fixed offsets, strict limits, one exception."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_worker import wire
from hpc_worker.wire import Close, FrameType, Head, Sealed, WireError


def check(error: WireError) -> None:
    assert error.reason in wire.REASONS
    assert error.close in Close


KIDS = st.from_regex(r"[a-z0-9-]{1,16}", fullmatch=True)
HEADS = st.builds(
    Head,
    kid=KIDS,
    attempt=st.integers(1, 65535),
    salt_p=st.binary(min_size=32, max_size=32),
    commit=st.binary(min_size=32, max_size=32),
)
SEALED = st.builds(
    Sealed,
    type=st.sampled_from([t for t in FrameType if t is not FrameType.HEAD]),
    seq=st.integers(1, wire.MAX_SEQ),
    box=st.integers(1, 20).flatmap(lambda n: st.binary(min_size=32 * n + 16, max_size=32 * n + 16)),
)


@given(HEADS)
def test_head_round_trip(head: Head) -> None:
    frame = wire.build_head(head)
    assert wire.parse_frame(frame) == head
    assert wire.peek(frame) == (FrameType.HEAD, 0)


@given(SEALED)
def test_sealed_round_trip(sealed: Sealed) -> None:
    frame = wire.build_sealed(sealed)
    assert wire.parse_frame(frame) == sealed
    assert wire.peek(frame) == (sealed.type, sealed.seq)
    assert len(frame) == wire.HEADER_BYTES + len(sealed.box)


@given(
    st.binary(max_size=200)
    | st.builds(lambda t, rest: bytes([t]) + rest, st.sampled_from([1, 2, 3, 4, 17]), st.binary(max_size=120))
)
def test_any_bytes_parse_back_or_raise_wire_error(data: bytes) -> None:
    try:
        frame = wire.parse_frame(data)
    except WireError as error:
        check(error)
    else:
        again = wire.build_head(frame) if isinstance(frame, Head) else wire.build_sealed(frame)
        assert again == data


@given(HEADS, st.data())
def test_a_changed_head_parses_back_or_raises(head: Head, data: st.DataObject) -> None:
    frame = bytearray(wire.build_head(head))
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        parsed = wire.parse_frame(bytes(frame))
    except WireError as error:
        check(error)
    else:
        assert isinstance(parsed, Head)
        assert parsed != head


BOX = bytes(48)


@pytest.mark.parametrize(
    ("data", "reason", "close"),
    [
        (b"", "frame_shape", Close.MALFORMED),
        (b"\x02\0\0\0", "frame_shape", Close.MALFORMED),
        (b"\x02\0\0\0\x01" + bytes(47), "frame_shape", Close.MALFORMED),
        (b"\x02\0\0\0\x01" + bytes(49), "frame_shape", Close.MALFORMED),
        (b"\x02\0\0\0\0" + BOX, "frame_seq", Close.MALFORMED),
        (b"\x02\xff\xff\xff\xff" + BOX, "frame_seq", Close.MALFORMED),
        (b"\x00\0\0\0\x01" + BOX, "frame_type", Close.MALFORMED),
        (b"\x05\0\0\0\x01" + BOX, "frame_type", Close.MALFORMED),
        (b"\x10\0\0\0\x01" + BOX, "frame_type", Close.MALFORMED),
        (b"\x01\0\0\0\0", "frame_shape", Close.MALFORMED),
        (b"\x01\0\0\0\0\x01\xff" + bytes(100), "frame_shape", Close.MALFORMED),
        (b"\x01\0\0\0\0\x02\x02k1\0\x01" + bytes(64), "suite", Close.VERSION),
        (b"\x01\0\0\0\0\x01\x02K1\0\x01" + bytes(64), "kid", Close.MALFORMED),
        (b"\x01\0\0\0\0\x01\x00\0\x01" + bytes(64), "kid", Close.MALFORMED),
        (b"\x01\0\0\0\0\x01\x02k1\0\0" + bytes(64), "attempt", Close.MALFORMED),
        (b"\x02\0\0\0\x01" + bytes(16384), "frame_size", Close.FRAME_SIZE),
    ],
)
def test_malformed_frames_have_a_stable_reason(data: bytes, reason: str, close: Close) -> None:
    with pytest.raises(WireError) as caught:
        wire.parse_frame(data)
    assert (caught.value.reason, caught.value.close) == (reason, close)


@pytest.mark.parametrize(
    "head",
    [
        Head("", 1, bytes(32), bytes(32)),
        Head("k" * 17, 1, bytes(32), bytes(32)),
        Head("ключ", 1, bytes(32), bytes(32)),
        Head("k", 0, bytes(32), bytes(32)),
        Head("k", 65536, bytes(32), bytes(32)),
        Head("k", 1, bytes(31), bytes(33)),
        Head("k", 1, bytes(32), bytes(31)),
        Head("k", 1, bytes(32), bytes(32), suite=2),
        Head("k", 1, bytes(32), bytes(32), suite=257),
    ],
)
def test_a_head_that_the_wire_cannot_carry_is_not_built(head: Head) -> None:
    with pytest.raises(WireError):
        wire.build_head(head)


@pytest.mark.parametrize("seq", [0, -1, 2**32 - 1, 2**40])
def test_header_refuses_sequences_outside(seq: int) -> None:
    with pytest.raises(WireError, match="frame_seq"):
        wire.header(FrameType.DATA, seq)


def test_the_largest_body_fills_a_frame() -> None:
    plain = wire.MAX_BODY_BYTES + 3
    assert plain % wire.PAD_BYTES == 0
    size = wire.HEADER_BYTES + plain + wire.TAG_BYTES
    assert size <= wire.MAX_FRAME_BYTES < size + wire.PAD_BYTES


def test_every_close_code_has_words() -> None:
    assert len({code.words for code in Close}) == len(Close)
    assert all(code.words for code in Close)
