"""The transcript a task returns when its consumer did not acknowledge everything: HEAD, then a sealed box. Pure.

The platform opens it with what it knows of the channel and merges by sequence; what it has already is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable

from hpc_worker import bodies, crypto, wire
from hpc_worker.bodies import BodyError, Record
from hpc_worker.keyring import Keyring


def seal_transcript(
    key: bytes, keys: crypto.StreamKeys, salts: tuple[bytes, bytes], records: Iterable[Record]
) -> bytes:
    """Return HEAD and box for `salts` = (salt_c, salt_p). Call it once for each salt_p: the nonce is derived."""
    head = wire.build_head(wire.Head(keys.scope.kid, keys.scope.attempt, salts[1], keys.commit))
    return head + crypto.seal_result(key, keys.scope, salts, bodies.dump_records(records))


def open_transcript(ring: Keyring, scope: crypto.Scope, salt_c: bytes, transcript: bytes) -> list[Record]:
    """Return the records of a transcript, ascending and without gap.

    Raises `WireError`, `CryptoError` or `BodyError` when it is not one, not authentic, or of another attempt.
    """
    frame, box = split_transcript(transcript)
    head = wire.parse_frame(frame)
    if not isinstance(head, wire.Head):
        raise BodyError("transcript")
    keys = crypto.accept_head(ring, scope, salt_c, head)
    key = ring.get(head.kid) or b""
    return bodies.load_records(crypto.open_result(key, keys.scope, (salt_c, head.salt_p), box))


def split_transcript(transcript: bytes) -> tuple[bytes, bytes]:
    """Return the bytes that should be a HEAD frame, and the box after it."""
    size = wire.HEADER_BYTES + 2 + (transcript[6] if len(transcript) > 6 else 0) + 2 + 32 + 32
    return transcript[:size], transcript[size:]
