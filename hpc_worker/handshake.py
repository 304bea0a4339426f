"""Hop-by-hop messages of the channel protocol, version 1. Pure.

Hop-by-hop messages are flat JSON objects in WebSocket text messages, at most 2,048 bytes. Bytes are written in hex:

    relay -> peer      challenge  v nonce(32) epoch(8)             after connect, after `park`, and to renew a nonce
    peer  -> relay     park       v role=producer kid mac(32)      keep this socket authenticated but without a channel
    peer  -> relay     open       v role=consumer kid cid(16) last fin [mailbox] mac(32)
    peer  -> relay     open       v role=producer kid cid(16) attempt instance(16) mac(32)
    relay -> consumer  ok         epoch(8) producer top
    relay -> producer  ok         epoch(8) have ack                have is -1 when the relay needs HEAD
    consumer -> relay -> producer   ack  n                         cumulative: stored up to n
    relay -> peer      restarting after_ms                         close 4430 follows; its reason says after_ms=n too

Field names and order are free on the wire; what is authenticated is the canonical form (`auth_body`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from hpc_worker.wire import KID, MAX_ATTEMPT, MAX_SEQ, Close, WireError

VERSION = 1
MAX_TEXT_BYTES = 2048
_MAX_AFTER_MS = 600_000
# The form of an `ack` that both our ends write; it is the only message that comes while tokens flow.
_ACK = re.compile(r'\{"n":(0|[1-9][0-9]{0,9}),"t":"ack"\}')
_HEX = re.compile(r"(?:[0-9a-f]{2})*\Z")


@dataclass(frozen=True)
class Challenge:
    """`nonce` is good for this connection, once: 5 s after connect, 60 s on a parked socket.

    A renewed nonce may cross an `open` on the wire, so a relay accepts the one before it as well.
    """

    nonce: bytes
    epoch: bytes


@dataclass(frozen=True)
class Park:
    kid: str
    mac: bytes = bytes(32)


@dataclass(frozen=True)
class ConsumerOpen:
    """`last` is the last sequence stored; `fin` says that FIN is. A mailbox channel lives by its traffic."""

    kid: str
    cid: bytes
    last: int
    fin: bool
    mailbox: bool = False
    mac: bytes = bytes(32)


@dataclass(frozen=True)
class ProducerOpen:
    """`instance` is the first half of the process's salt_p, as HEAD will show it.

    The same instance may replace its own older connection. Another instance of the same attempt is a task that was
    started twice: the relay refuses it with 4409 once the first has sent HEAD, so it never calls the model.
    """

    kid: str
    cid: bytes
    attempt: int
    instance: bytes
    mac: bytes = bytes(32)


@dataclass(frozen=True)
class ConsumerOk:
    """`producer` says whether one is connected; `top` is the highest sequence in the ring, 0 when there is none."""

    epoch: bytes
    producer: bool
    top: int


@dataclass(frozen=True)
class ProducerOk:
    """`have` is the highest sequence the relay holds or -1 for "send HEAD"; `ack` what the consumer has stored."""

    epoch: bytes
    have: int
    ack: int


@dataclass(frozen=True)
class Ack:
    n: int


@dataclass(frozen=True)
class Restarting:
    after_ms: int


Open = ConsumerOpen | ProducerOpen
Authenticated = Park | ConsumerOpen | ProducerOpen
Message = Challenge | Park | ConsumerOpen | ProducerOpen | ConsumerOk | ProducerOk | Ack | Restarting
_Reader = Callable[[Any], Any]


def _hex(size: int) -> _Reader:
    def read(value: Any) -> bytes:
        if type(value) is not str or len(value) != 2 * size or not _HEX.match(value):
            raise WireError("field_value")
        return bytes.fromhex(value)

    return read


def _whole(low: int, high: int) -> _Reader:
    def read(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise WireError("field_value")
        return value

    return read


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise WireError("field_value")
    return value


def _kid(value: Any) -> str:
    if type(value) is not str or not KID.match(value):
        raise WireError("kid")
    return value


_SEQ = _whole(0, MAX_SEQ)
_PARK = {"kid": _kid, "mac": _hex(32)}
_OPEN = {"kid": _kid, "cid": _hex(16), "mac": _hex(32)}
# (class, constant fields, read fields), looked up by t and what tells two forms of one t apart
_FORMS: Mapping[str, tuple[type[Any], Mapping[str, Any], Mapping[str, _Reader]]] = {
    "challenge": (Challenge, {"v": VERSION}, {"nonce": _hex(32), "epoch": _hex(8)}),
    "park": (Park, {"v": VERSION, "role": "producer"}, _PARK),
    "open/consumer": (
        ConsumerOpen,
        {"v": VERSION, "role": "consumer"},
        {**_OPEN, "last": _SEQ, "fin": _flag, "mailbox": _flag},
    ),
    "open/producer": (
        ProducerOpen,
        {"v": VERSION, "role": "producer"},
        {**_OPEN, "attempt": _whole(1, MAX_ATTEMPT), "instance": _hex(16)},
    ),
    "ok/consumer": (ConsumerOk, {}, {"epoch": _hex(8), "producer": _flag, "top": _SEQ}),
    "ok/producer": (ProducerOk, {}, {"epoch": _hex(8), "have": _whole(-1, MAX_SEQ), "ack": _SEQ}),
    "ack": (Ack, {}, {"n": _SEQ}),
    "restarting": (Restarting, {}, {"after_ms": _whole(0, _MAX_AFTER_MS)}),
}
_FORM_OF: Mapping[type[Any], str] = {form[0]: name for name, form in _FORMS.items()}


def canonical(value: Mapping[str, Any]) -> bytes:
    """Return the one JSON form that is authenticated: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def _as_dict(message: Message) -> dict[str, Any]:
    name = _FORM_OF[type(message)]
    out: dict[str, Any] = {"t": name.partition("/")[0], **_FORMS[name][1]}
    for field in fields(message):
        value = getattr(message, field.name)
        out[field.name] = value.hex() if isinstance(value, bytes) else value
    if out.get("mailbox") is False:
        del out["mailbox"]
    return out


def build_text(message: Message) -> str:
    """Return a message as canonical JSON. Raises `WireError` on a value that `parse_text` would refuse."""
    text = canonical(_as_dict(message)).decode("ascii")
    parse_text(text)
    return text


def ack_text(n: int) -> str:
    """Return `build_text(Ack(n))` for an `n` that is known to be a sequence, in a fiftieth of the time."""
    return f'{{"n":{n},"t":"ack"}}'


def auth_body(message: Authenticated) -> bytes:
    """Return the canonical JSON of a message without its mac: what the mac covers."""
    out = _as_dict(message)
    del out["mac"]
    return canonical(out)


def parse_text(text: str | bytes) -> Message:
    """Read one hop-by-hop message. Unknown, missing, repeated and ill-typed fields are refused. Raises `WireError`."""
    ack = _ACK.fullmatch(text) if type(text) is str else None
    if ack is not None:
        return Ack(_SEQ(int(ack[1])))
    obj = _load(text)
    tag, role = obj.get("t"), obj.get("role")
    if type(tag) is not str:
        raise WireError("message_type")
    if tag in ("challenge", "park", "open") and (type(obj.get("v")) is not int or obj["v"] != VERSION):
        raise WireError("version", Close.VERSION)
    if tag == "open":
        if role not in ("consumer", "producer"):
            raise WireError("role")
        tag = f"open/{role}"
    elif tag == "ok":
        tag = "ok/producer" if "have" in obj else "ok/consumer"
    if tag not in _FORMS or tag.partition("/")[0] != obj["t"]:
        raise WireError("message_type")
    cls, constants, readers = _FORMS[tag]
    if any(obj.get(name) != value for name, value in constants.items()):
        raise WireError("role")
    missing = readers.keys() - obj.keys() - {"mailbox"}
    if missing or obj.keys() - readers.keys() - constants.keys() - {"t"}:
        raise WireError("fields")
    message: Message = cls(**{name: read(obj[name]) for name, read in readers.items() if name in obj})
    return message


def _load(text: str | bytes) -> dict[str, Any]:
    try:
        raw = text.encode() if isinstance(text, str) else bytes(text)
        if len(raw) > MAX_TEXT_BYTES:
            raise WireError("text_size", Close.FRAME_SIZE)
        decoded = raw.decode()
    except UnicodeError as error:
        raise WireError("text_encoding") from error
    try:
        obj = json.loads(decoded, object_pairs_hook=_unique, parse_constant=_no_constant)
    except WireError:
        raise
    except (ValueError, RecursionError) as error:
        raise WireError("json") from error
    if type(obj) is not dict:
        raise WireError("json")
    return obj


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise WireError("duplicate_field")
    return out


def _no_constant(name: str) -> Any:
    raise WireError("json")
