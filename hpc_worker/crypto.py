"""Sealing and opening, suite 1 of the channel protocol: AES-256-GCM and HKDF-SHA256 (RFC 5869). Pure.

    ctx(label) = label | 0x00 | suite(1) | len(kid)(1) | kid | cid(16) | attempt(2)

    stream  = HKDF(K[kid], salt_c | salt_p, ctx("channel/v1 keys"), 120) = k_p2c iv_p2c k_c2p iv_c2p commit
    request = HKDF(K[kid], salt_c,          ctx("channel/v1 req"),   44) = key nonce      once for each salt_c
    result  = HKDF(K[kid], salt_c | salt_p, ctx("channel/v1 res"),   44) = key nonce      once for each salt_p

    frame       AAD = "channel/v1 aad\\0" | cid | attempt(2) | direction(1) | type(1) | seq(4),  nonce = iv XOR seq
                plaintext = kind(1) | len(2) | body | zeros up to a multiple of 32
    request and result   AAD = ctx(label),  plaintext = len(4) | body | zeros up to a multiple of 256

The platform makes a salt_c for each channel, each producer process its own salt_p: no counter meets a key twice.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from hpc_worker.keyring import Keyring
from hpc_worker.wire import (
    KID,
    KINDS_OF,
    MAX_ATTEMPT,
    MAX_BODY_BYTES,
    MAX_SEQ,
    PAD_BYTES,
    SUITE_AES256GCM_HKDF,
    TAG_BYTES,
    Direction,
    FrameType,
    Head,
    Kind,
    peek,
)

REQUEST_LABEL = b"channel/v1 req"
RESULT_LABEL = b"channel/v1 res"
_STREAM_LABEL = b"channel/v1 keys"
_AAD_LABEL = b"channel/v1 aad\0"
_BULK_PAD = 256
# Bound once, and each once a frame: what a frame costs beyond the cipher is looking things up.
_header = struct.Struct(">BI").pack
_nonce = struct.Struct(">8sI").pack
_prefix, _read_prefix = struct.Struct(">BH").pack, struct.Struct(">BH").unpack_from
_new_tuple = tuple.__new__
_ZEROS = tuple(bytes(n) for n in range(PAD_BYTES))
# (type, kind) -> the pair as enums; looking up both at once is what a frame costs beyond the cipher
_ALLOWED = {(int(t), int(k)): (t, k) for t, kinds in KINDS_OF.items() for k in kinds}

REASONS = frozenset(
    {
        "unknown_kid",
        "wrong_attempt",
        "wrong_key",
        "forged",
        "padding",
        "kind",
        "not_sealed",
        "body_size",
        "sequence",
        "sequence_exhausted",
        "scope",
        "salt",
    }
)


class CryptoError(ValueError):
    """Raise when something cannot be sealed or is not authentic. `reason` is one of `REASONS`.

    "wrong_key" and "unknown_kid" point at configuration, "forged" and "padding" at damage or an attack.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Scope:
    """What a derived key is bound to. `cid` is 16 bytes, `attempt` 1..65535."""

    kid: str
    cid: bytes
    attempt: int

    def __post_init__(self) -> None:
        if not KID.match(self.kid) or len(self.cid) != 16 or not 1 <= self.attempt <= MAX_ATTEMPT:
            raise CryptoError("scope")

    def context(self, label: bytes) -> bytes:
        """Return ctx(label), which binds a derivation to suite, kid, cid and attempt."""
        kid = self.kid.encode("ascii")
        return b"".join(
            (label, b"\0", bytes((SUITE_AES256GCM_HKDF, len(kid))), kid, self.cid, self.attempt.to_bytes(2, "big"))
        )


@dataclass(frozen=True, repr=False)
class StreamKeys:
    """The two directions' keys of one producer process on one channel. Never printed."""

    scope: Scope
    p2c: tuple[bytes, bytes]
    c2p: tuple[bytes, bytes]
    commit: bytes

    def of(self, direction: Direction) -> tuple[bytes, bytes]:
        return self.p2c if direction is Direction.P2C else self.c2p


def derive_stream(key: bytes, scope: Scope, salt_c: bytes, salt_p: bytes) -> StreamKeys:
    """Derive the keys of a stream. Raises `CryptoError("salt")` unless both salts have 32 bytes."""
    out = _hkdf(key, _salts(salt_c, salt_p), scope.context(_STREAM_LABEL), 120)
    return StreamKeys(scope, (out[:32], out[32:44]), (out[44:76], out[76:88]), out[88:])


def accept_head(ring: Keyring, scope: Scope, salt_c: bytes, head: Head) -> StreamKeys:
    """Derive the keys that a HEAD announces and check its commitment before anything is opened.

    `scope.kid` is ignored: HEAD names the kid, and the derivation holds it. Raises `CryptoError` with `unknown_kid`,
    `wrong_attempt` or `wrong_key`.
    """
    key = ring.get(head.kid)
    if key is None:
        raise CryptoError("unknown_kid")
    if head.attempt != scope.attempt:
        raise CryptoError("wrong_attempt")
    keys = derive_stream(key, Scope(head.kid, scope.cid, scope.attempt), salt_c, head.salt_p)
    if not hmac.compare_digest(keys.commit, head.commit):
        raise CryptoError("wrong_key")
    return keys


class Opened(NamedTuple):
    type: FrameType
    seq: int
    kind: Kind
    body: bytes


class Sealer:
    """Seal frames of one direction under consecutive sequence numbers, each used once."""

    __slots__ = ("_aad", "_encrypt", "_iv_high", "_iv_low", "next_seq")

    def __init__(self, keys: StreamKeys, direction: Direction, first_seq: int = 1) -> None:
        """Start at `first_seq`. A consumer that comes back must pass one above all it ever used with these salts."""
        if first_seq < 1:
            raise CryptoError("sequence")
        key, iv = keys.of(direction)
        self._encrypt = AESGCM(key).encrypt
        self._iv_high, self._iv_low = iv[:8], int.from_bytes(iv[8:], "big")
        self._aad = _aad_prefix(keys.scope, direction)
        self.next_seq = first_seq

    def seal(self, frame_type: int, kind: int, body: bytes) -> bytes:
        """Return the next frame. Raises `CryptoError`: `body_size`, `kind` or `sequence_exhausted`."""
        size, seq = len(body), self.next_seq
        if size > MAX_BODY_BYTES:
            raise CryptoError("body_size")
        if (frame_type, kind) not in _ALLOWED:
            raise CryptoError("kind")
        if seq > MAX_SEQ:
            raise CryptoError("sequence_exhausted")
        self.next_seq = seq + 1
        head = _header(frame_type, seq)
        plain = _prefix(kind, size) + body + _ZEROS[-(size + 3) % PAD_BYTES]
        # a sequence number has 32 bits, so it meets only the last four bytes of the iv
        return head + self._encrypt(_nonce(self._iv_high, self._iv_low ^ seq), plain, self._aad + head)


class Opener:
    """Open frames of one direction, in any order. The caller compares sequence numbers."""

    __slots__ = ("_aad", "_decrypt", "_iv_high", "_iv_low")

    def __init__(self, keys: StreamKeys, direction: Direction) -> None:
        key, iv = keys.of(direction)
        self._decrypt = AESGCM(key).decrypt
        self._iv_high, self._iv_low = iv[:8], int.from_bytes(iv[8:], "big")
        self._aad = _aad_prefix(keys.scope, direction)

    def open(self, frame: bytes) -> Opened:
        """Return what a sealed frame holds.

        Raises `WireError` for a malformed frame and `CryptoError` (`forged`, `padding`, `kind`, `not_sealed`).
        """
        frame_type, seq = peek(frame)
        if not seq:
            raise CryptoError("not_sealed")
        try:
            plain = self._decrypt(_nonce(self._iv_high, self._iv_low ^ seq), frame[5:], self._aad + frame[:5])
        except InvalidTag as error:
            raise CryptoError("forged") from error
        kind, size = _read_prefix(plain)
        end = 3 + size
        padding = len(plain) - end
        if not 0 <= padding < PAD_BYTES or plain[end:] != _ZEROS[padding]:
            raise CryptoError("padding")
        names = _ALLOWED.get((frame_type, kind))
        if names is None:
            raise CryptoError("kind")
        # what `Opened(...)` does, without its Python-level __new__: this is once a frame
        return _new_tuple(Opened, (names[0], seq, names[1], plain[3:end]))


def seal_request(key: bytes, scope: Scope, salt_c: bytes, body: bytes) -> bytes:
    """Seal a prompt. Call it once for each `salt_c`: the nonce is derived from it."""
    return _seal_bulk(key, scope, _salts(salt_c), REQUEST_LABEL, body)


def open_request(key: bytes, scope: Scope, salt_c: bytes, box: bytes) -> bytes:
    """Open a sealed prompt. Raises `CryptoError` (`forged`, `padding`)."""
    return _open_bulk(key, scope, _salts(salt_c), REQUEST_LABEL, box)


def seal_result(key: bytes, scope: Scope, salts: tuple[bytes, bytes], body: bytes) -> bytes:
    """Seal a transcript under (salt_c, salt_p). Call it once for each `salt_p` and channel."""
    return _seal_bulk(key, scope, _salts(*salts), RESULT_LABEL, body)


def open_result(key: bytes, scope: Scope, salts: tuple[bytes, bytes], box: bytes) -> bytes:
    """Open a sealed transcript. Raises `CryptoError` (`forged`, `padding`)."""
    return _open_bulk(key, scope, _salts(*salts), RESULT_LABEL, box)


def _seal_bulk(key: bytes, scope: Scope, salt: bytes, label: bytes, body: bytes) -> bytes:
    context = scope.context(label)
    out = _hkdf(key, salt, context, 44)
    plain = len(body).to_bytes(4, "big") + body
    return AESGCM(out[:32]).encrypt(out[32:], plain + bytes(-len(plain) % _BULK_PAD), context)


def _open_bulk(key: bytes, scope: Scope, salt: bytes, label: bytes, box: bytes) -> bytes:
    context = scope.context(label)
    out = _hkdf(key, salt, context, 44)
    if len(box) < TAG_BYTES:
        raise CryptoError("forged")
    try:
        plain = AESGCM(out[:32]).decrypt(out[32:], box, context)
    except InvalidTag as error:
        raise CryptoError("forged") from error
    end = 4 + int.from_bytes(plain[:4], "big")
    padding = len(plain) - end
    if len(plain) < 4 or not 0 <= padding < _BULK_PAD or plain[end:] != bytes(padding):
        raise CryptoError("padding")
    return plain[4:end]


def _aad_prefix(scope: Scope, direction: Direction) -> bytes:
    return _AAD_LABEL + scope.cid + scope.attempt.to_bytes(2, "big") + bytes((direction,))


def _salts(*salts: bytes) -> bytes:
    if any(len(salt) != 32 for salt in salts):
        raise CryptoError("salt")
    return b"".join(salts)


def _hkdf(key: bytes, salt: bytes, info: bytes, size: int) -> bytes:
    if len(key) != 32:
        raise CryptoError("wrong_key")
    return HKDF(algorithm=SHA256(), length=size, salt=salt, info=info).derive(key)
