"""The channel protocol's wire, version 1: frames. Pure: no I/O, no keys, no clock.

Frames are WebSocket binary messages, at most 16 KiB, with fixed offsets:

    HEAD  0x01 | seq=0(4) | suite(1) | len(kid)(1) | kid | attempt(2) | salt_p(32) | commit(32)   producer, first
    DATA  0x02 | seq(4)   | box        text, reasoning, tool calls                                producer
    FIN   0x03 | seq(4)   | box        how the stream ended                                       producer, last
    ALIVE 0x04 | seq(4)   | box        the model is silent but working                            producer
    CTRL  0x11 | seq(4)   | box        cancel; on a mailbox channel job offers                    consumer

All numbers are big-endian. DATA, FIN and ALIVE share one sequence from 1; CTRL has its own. A box is AES-256-GCM
ciphertext of a plaintext padded to a multiple of 32 bytes, then the 16-byte tag (`hpc_worker.crypto`).

Hop-by-hop messages, which are JSON, are in `hpc_worker.handshake`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

SUITE_AES256GCM_HKDF = 1
MAX_FRAME_BYTES = 16 * 1024
MAX_SEQ = 2**32 - 2
HEADER_BYTES = 5
TAG_BYTES = 16
PAD_BYTES = 32
MIN_SEALED_BYTES = HEADER_BYTES + PAD_BYTES + TAG_BYTES
# kind(1) and len(2) stand before a body; the plaintext is a multiple of 32.
MAX_BODY_BYTES = (MAX_FRAME_BYTES - HEADER_BYTES - TAG_BYTES) // PAD_BYTES * PAD_BYTES - 3
MAX_ATTEMPT = 2**16 - 1
KID = re.compile(r"[a-z0-9-]{1,16}\Z")
_HEADER = struct.Struct(">BI")
_read_header = _HEADER.unpack_from


class FrameType(IntEnum):
    HEAD = 0x01
    DATA = 0x02
    FIN = 0x03
    ALIVE = 0x04
    CTRL = 0x11


class Kind(IntEnum):
    """First byte of a sealed plaintext. Kinds from 16 travel from consumer to producer."""

    TEXT = 1
    FIN = 2
    ALIVE = 3
    REASONING = 4
    TOOL = 5
    OFFER = 16
    CANCEL = 17
    OFFER_PART = 18


class Direction(IntEnum):
    P2C = 0
    C2P = 1


class Close(IntEnum):
    """WebSocket close codes of the relay. `words` is for logs and people."""

    DONE = 1000
    MALFORMED = 4400
    DENIED = 4401
    VERSION = 4402
    NO_CHANNEL = 4404
    TIMEOUT = 4408
    REPLACED = 4409
    FINISHED = 4410
    STALE_ATTEMPT = 4412
    FRAME_SIZE = 4413
    GAP = 4416
    SLOW_CONSUMER = 4420
    LIMIT = 4429
    RESTARTING = 4430

    @property
    def words(self) -> str:
        return _CLOSE_WORDS[self]


_CLOSE_WORDS: Mapping[Close, str] = {
    Close.DONE: "done",
    Close.MALFORMED: "malformed message",
    Close.DENIED: "denied",
    Close.VERSION: "unknown protocol version",
    Close.NO_CHANNEL: "no such channel",
    Close.TIMEOUT: "took too long",
    Close.REPLACED: "replaced by a newer connection",
    Close.FINISHED: "channel finished",
    Close.STALE_ATTEMPT: "a newer attempt is running",
    Close.FRAME_SIZE: "frame too large",
    Close.GAP: "sequence gap",
    Close.SLOW_CONSUMER: "consumer too slow",
    Close.LIMIT: "limit reached",
    Close.RESTARTING: "relay is restarting",
}

KINDS_OF: Mapping[FrameType, frozenset[Kind]] = {
    FrameType.DATA: frozenset({Kind.TEXT, Kind.REASONING, Kind.TOOL}),
    FrameType.FIN: frozenset({Kind.FIN}),
    FrameType.ALIVE: frozenset({Kind.ALIVE}),
    FrameType.CTRL: frozenset({Kind.OFFER, Kind.CANCEL, Kind.OFFER_PART}),
}


class WireError(ValueError):
    """Raise for bytes that are not version 1. `reason` is one of `REASONS`, `close` the code to close with."""

    def __init__(self, reason: str, close: Close = Close.MALFORMED) -> None:
        super().__init__(reason)
        self.reason = reason
        self.close = close


REASONS = frozenset(
    {
        "frame_size",
        "frame_type",
        "frame_shape",
        "frame_seq",
        "suite",
        "kid",
        "attempt",
        "text_size",
        "text_encoding",
        "json",
        "duplicate_field",
        "message_type",
        "version",
        "role",
        "fields",
        "field_value",
    }
)


@dataclass(frozen=True)
class Head:
    """The first frame of a producer; repeatable. The relay pins it."""

    kid: str
    attempt: int
    salt_p: bytes
    commit: bytes
    suite: int = SUITE_AES256GCM_HKDF


@dataclass(frozen=True)
class Sealed:
    """Any frame but HEAD. `box` is ciphertext and tag."""

    type: FrameType
    seq: int
    box: bytes


Frame = Head | Sealed

_SEALED_TYPES = frozenset({2, 3, 4, 0x11})


def peek(frame: bytes) -> tuple[int, int]:
    """Return (type, sequence) of a frame that has the outer shape of one. Needs no key. Raises `WireError`."""
    size = len(frame)
    if MIN_SEALED_BYTES <= size <= MAX_FRAME_BYTES:
        found: tuple[int, int] = _read_header(frame)
        kind, seq = found
        if kind in _SEALED_TYPES and 1 <= seq <= MAX_SEQ and not (size - MIN_SEALED_BYTES) % PAD_BYTES:
            return found
    return _peek_rare(frame)


def _peek_rare(frame: bytes) -> tuple[int, int]:
    """Do what `peek` does for HEAD and for what is wrong."""
    size = len(frame)
    if size > MAX_FRAME_BYTES:
        raise WireError("frame_size", Close.FRAME_SIZE)
    if size < HEADER_BYTES:
        raise WireError("frame_shape")
    kind, seq = _read_header(frame)
    if kind in _SEALED_TYPES:
        raise WireError(
            "frame_seq" if size >= MIN_SEALED_BYTES and not (size - MIN_SEALED_BYTES) % PAD_BYTES else "frame_shape"
        )
    if kind != FrameType.HEAD:
        raise WireError("frame_type")
    if seq:
        raise WireError("frame_seq")
    return kind, seq


def parse_frame(frame: bytes) -> Frame:
    """Take a frame apart. Raises `WireError`."""
    kind, seq = peek(frame)
    if kind == FrameType.HEAD:
        return _parse_head(frame)
    return Sealed(FrameType(kind), seq, bytes(frame[HEADER_BYTES:]))


def _parse_head(frame: bytes) -> Head:
    if len(frame) < HEADER_BYTES + 2:
        raise WireError("frame_shape")
    suite, kid_len = frame[5], frame[6]
    if len(frame) != HEADER_BYTES + 2 + kid_len + 2 + 32 + 32:
        raise WireError("frame_shape")
    if suite != SUITE_AES256GCM_HKDF:
        raise WireError("suite", Close.VERSION)
    end = 7 + kid_len
    kid = bytes(frame[7:end]).decode("latin-1")
    if not KID.match(kid):
        raise WireError("kid")
    attempt = int.from_bytes(frame[end : end + 2], "big")
    if attempt < 1:
        raise WireError("attempt")
    return Head(kid, attempt, bytes(frame[end + 2 : end + 34]), bytes(frame[end + 34 :]), suite)


def build_head(head: Head) -> bytes:
    """Return the HEAD frame. Raises `WireError` on a value that the wire cannot carry."""
    frame = b"".join(
        (
            _HEADER.pack(FrameType.HEAD, 0),
            bytes((head.suite & 0xFF, min(len(head.kid), 255))),
            head.kid.encode("latin-1", "replace"),
            (head.attempt & 0xFFFF).to_bytes(2, "big"),
            head.salt_p,
            head.commit,
        )
    )
    if len(head.salt_p) != 32 or _parse_head(frame) != head:
        raise WireError("field_value")
    return frame


def header(frame_type: int, seq: int) -> bytes:
    """Return the 5 bytes before a box. Raises `WireError` outside 1..2^32-2."""
    if not 1 <= seq <= MAX_SEQ:
        raise WireError("frame_seq")
    return _HEADER.pack(frame_type, seq)


def build_sealed(frame: Sealed) -> bytes:
    """Return the bytes of a sealed frame. Raises `WireError`."""
    data = header(frame.type, frame.seq) + frame.box
    peek(data)
    return data
