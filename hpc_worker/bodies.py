"""What is inside the sealed bodies: FIN, ALIVE, offers, tool pieces, transcripts. Pure.

FIN         {"finish":stop|length|tool|content_filter|cancelled|error, "usage":{...}, "data_frames":n, "bytes":n,
             "error":code, "detail":words}                only "finish" is required
ALIVE       {"state":queued|loading|prefill}              of a job
            {"state":ready|draining, "capacity":n, "queue":n, "model":name}      of a mailbox
            and {"refused":hex, "reason":code}            it will not answer the offer with this cid
OFFER       {"cid":hex, "attempt":n, "salt_c":hex, "kid":kid, "relay":url, "deadline_s":n, "prompt_bytes":n,
             "again":true}      another worker may have had it: ask the model only when the relay lets you in
OFFER_PART  cid(16) | attempt(2) | offset(4) | bytes      the sealed prompt, in order, after its OFFER
CANCEL      {"reason":code}                               on a mailbox: take nothing new, and end
transcript  HEAD frame, then the box of: (type(1) | kind(1) | seq(4) | len(2) | body)...
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hpc_worker.wire import MAX_ATTEMPT, MAX_BODY_BYTES, FrameType, Kind

FINISHES = frozenset({"stop", "length", "tool", "content_filter", "cancelled", "error"})
STATES = frozenset({"queued", "loading", "prefill", "ready", "draining"})
MAX_PROMPT_BYTES = 4 * 1024 * 1024
_PART = struct.Struct(">16sHI")
_RECORD = struct.Struct(">BBIH")
PART_BYTES = MAX_BODY_BYTES - _PART.size
_MAX_COUNT = 10**15


class BodyError(ValueError):
    """Raise for an authentic body that does not mean anything: the other side has a different version or a fault."""


@dataclass(frozen=True)
class Usage:
    """Tokens counted by the model server. Cached are part of prompt; reasoning are part of completion."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    estimated: bool = False


@dataclass(frozen=True)
class Fin:
    """How a stream ended. `data_frames` and `data_bytes` count DATA frames and their bodies; None when not said."""

    finish: str
    usage: Usage | None = None
    data_frames: int | None = None
    data_bytes: int | None = None
    error: str = ""
    detail: str = ""

    def dump(self) -> bytes:
        """Return the JSON body."""
        if self.finish not in FINISHES:
            raise BodyError("finish")
        out = asdict(self)
        out["bytes"] = out.pop("data_bytes")
        return _dump(out)

    @classmethod
    def load(cls, body: bytes) -> Fin:
        """Read a FIN body. Raises `BodyError`."""
        obj = _load(body)
        usage = obj.get("usage")
        return cls(
            finish=_word(obj, "finish", FINISHES),
            usage=None if usage is None else _load_usage(usage),
            data_frames=_count(obj, "data_frames", None),
            data_bytes=_count(obj, "bytes", None),
            error=_text(obj, "error", 64),
            detail=_text(obj, "detail", 2000),
        )


@dataclass(frozen=True)
class Alive:
    """The worker is there. Of a mailbox: `capacity` free places, `queue` waiting offers, `model` it runs.

    `refused` is the cid, in hex, of an offer that it will not answer, and `reason` a code for why.
    """

    state: str
    capacity: int | None = None
    queue: int | None = None
    model: str = ""
    refused: str = ""
    reason: str = ""

    def dump(self) -> bytes:
        """Return the JSON body."""
        if self.state not in STATES:
            raise BodyError("state")
        return _dump(asdict(self))

    @classmethod
    def load(cls, body: bytes) -> Alive:
        """Read an ALIVE body. Raises `BodyError`."""
        obj = _load(body)
        return cls(
            state=_word(obj, "state", STATES),
            capacity=_count(obj, "capacity", None),
            queue=_count(obj, "queue", None),
            model=_text(obj, "model", 200),
            refused=_hex(obj, "refused", 16).hex() if "refused" in obj else "",
            reason=_text(obj, "reason", 64),
        )


@dataclass(frozen=True)
class Offer:
    """A job on a mailbox. `deadline_s` is seconds from its arrival: no clock is compared. `prompt` is sealed.

    `again`: it may have been offered to another worker as well, so the relay decides who asks the model.
    """

    cid: bytes
    attempt: int
    salt_c: bytes
    kid: str
    relay: str
    deadline_s: int
    prompt: bytes
    again: bool = False

    def dump(self) -> Iterator[tuple[Kind, bytes]]:
        """Yield the (kind, body) of the CTRL frames that carry the offer, in order. Raises `BodyError`."""
        if not 0 < len(self.prompt) <= MAX_PROMPT_BYTES:
            raise BodyError("prompt_bytes")
        out = {**asdict(self), "cid": self.cid.hex(), "salt_c": self.salt_c.hex(), "prompt_bytes": len(self.prompt)}
        del out["prompt"]
        if not self.again:
            del out["again"]
        yield Kind.OFFER, _dump(out)
        for offset in range(0, len(self.prompt), PART_BYTES):
            piece = self.prompt[offset : offset + PART_BYTES]
            yield Kind.OFFER_PART, _PART.pack(self.cid, self.attempt, offset) + piece


class OfferAssembler:
    """Join offers from their CTRL frames. Keeps at most `limit` unfinished ones, dropping the oldest."""

    def __init__(self, limit: int = 64) -> None:
        self._limit = limit
        self._open: dict[tuple[bytes, int], tuple[Offer, int, bytearray]] = {}

    def add(self, kind: Kind, body: bytes) -> Offer | None:
        """Take one frame's content; return the offer that it completes. Raises `BodyError` and forgets that offer."""
        if kind is Kind.OFFER:
            offer, size = _load_offer(body)
            self._open.pop((offer.cid, offer.attempt), None)
            while len(self._open) >= self._limit:
                del self._open[next(iter(self._open))]
            self._open[offer.cid, offer.attempt] = (offer, size, bytearray())
            return None
        if kind is not Kind.OFFER_PART or len(body) <= _PART.size:
            raise BodyError("kind")
        cid, attempt, offset = _PART.unpack_from(body)
        if (cid, attempt) not in self._open:
            raise BodyError("part_without_offer")
        offer, size, prompt = self._open[cid, attempt]
        if offset != len(prompt) or offset + len(body) - _PART.size > size:
            del self._open[cid, attempt]
            raise BodyError("part_offset")
        prompt += body[_PART.size :]
        if len(prompt) < size:
            return None
        del self._open[cid, attempt]
        return Offer(**{**offer.__dict__, "prompt": bytes(prompt)})


@dataclass(frozen=True)
class Record:
    """One frame's content in a transcript."""

    type: FrameType
    kind: Kind
    seq: int
    body: bytes


def dump_records(records: Iterable[Record]) -> bytes:
    """Return the plaintext of a transcript."""
    return b"".join(_RECORD.pack(r.type, r.kind, r.seq, len(r.body)) + r.body for r in records)


def load_records(plain: bytes) -> list[Record]:
    """Read a transcript's plaintext: ascending, gapless sequences. Raises `BodyError`."""
    out: list[Record] = []
    at = 0
    while at < len(plain):
        if len(plain) - at < _RECORD.size:
            raise BodyError("transcript")
        frame_type, kind, seq, size = _RECORD.unpack_from(plain, at)
        at += _RECORD.size + size
        if at > len(plain) or (out and seq != out[-1].seq + 1):
            raise BodyError("transcript")
        try:
            out.append(Record(FrameType(frame_type), Kind(kind), seq, plain[at - size : at]))
        except ValueError as error:
            raise BodyError("transcript") from error
    return out


def dump_cancel(reason: str) -> bytes:
    """Return the body of a CANCEL."""
    return _dump({"reason": reason})


def load_offer(obj: Mapping[str, Any]) -> Offer:
    """Read an offer from task arguments, its sealed prompt in hex under "prompt". Raises `BodyError`."""
    try:
        prompt = bytes.fromhex(obj["prompt"])
    except (KeyError, TypeError, ValueError) as error:
        raise BodyError("prompt") from error
    try:
        body = _dump({**obj, "prompt": None, "prompt_bytes": len(prompt)})
    except (TypeError, ValueError, RecursionError) as error:
        raise BodyError("json") from error
    offer, _ = _load_offer(body)
    return Offer(**{**offer.__dict__, "prompt": prompt})


def _load_offer(body: bytes) -> tuple[Offer, int]:
    obj = _load(body)
    size = _count(obj, "prompt_bytes", 0) or 0
    attempt = _count(obj, "attempt", 0) or 0
    deadline = _count(obj, "deadline_s", 0) or 0
    if not 0 < size <= MAX_PROMPT_BYTES or not 0 < attempt <= MAX_ATTEMPT or not 0 < deadline <= 86_400:
        raise BodyError("offer")
    offer = Offer(
        cid=_hex(obj, "cid", 16),
        attempt=attempt,
        salt_c=_hex(obj, "salt_c", 32),
        kid=_text(obj, "kid", 16),
        relay=_text(obj, "relay", 300),
        deadline_s=deadline,
        prompt=b"",
        again=obj.get("again") is True,
    )
    return offer, size


def _load_usage(obj: Any) -> Usage:
    if type(obj) is not dict:
        raise BodyError("usage")
    names = ("prompt", "completion", "cached", "reasoning")
    return Usage(**{n: _count(obj, n, 0) or 0 for n in names}, estimated=obj.get("estimated") is True)


def _dump(obj: Mapping[str, Any]) -> bytes:
    kept = {name: value for name, value in obj.items() if value is not None and value != ""}
    return json.dumps(kept, separators=(",", ":"), allow_nan=False).encode("ascii")


def _load(body: bytes) -> dict[str, Any]:
    try:
        obj = json.loads(body.decode())
    except (ValueError, RecursionError) as error:
        raise BodyError("json") from error
    if type(obj) is not dict:
        raise BodyError("json")
    return obj


def _word(obj: Mapping[str, Any], name: str, words: frozenset[str]) -> str:
    value = obj.get(name)
    if type(value) is not str or value not in words:
        raise BodyError(name)
    return value


def _text(obj: Mapping[str, Any], name: str, size: int) -> str:
    value = obj.get(name, "")
    if type(value) is not str or len(value) > size:
        raise BodyError(name)
    return value


def _count(obj: Mapping[str, Any], name: str, default: int | None) -> int | None:
    value = obj.get(name)
    if value is None:
        return default
    if type(value) is int and 0 <= value <= _MAX_COUNT:
        return value
    raise BodyError(name)


def _hex(obj: Mapping[str, Any], name: str, size: int) -> bytes:
    value = obj.get(name)
    try:
        out = bytes.fromhex(value) if type(value) is str else b""
    except ValueError as error:
        raise BodyError(name) from error
    if len(out) != size:
        raise BodyError(name)
    return out
