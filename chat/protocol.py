"""The browser's WebSocket, `/ws/chat`: JSON text messages, version 1. Pure: shapes and checks, no I/O.

Browser to server
-----------------
| t                  | fields                                                              | answer                                   |
|--------------------|---------------------------------------------------------------------|------------------------------------------|
| `ping`             | `at` (any number)                                                   | `pong` with the same `at`                |
| `watch`            | `conversation`, `turns`: {id of a turn being answered: last seq seen}, `after`: `created_at` of the newest turn known, or null | `watching`, `turn.accepted` for each turn the page does not know, then missing events, then live |
| `turn.start`       | `id` (UUID made by the client, once per send), `conversation` (UUID, may be new), `text`, `tier` (auto, local, hpc, cloud), `model` (name or ""), `campus_only` | `turn.accepted`, or `error` with `for`   |
| `turn.stop`        | `turn`                                                              | the turn's `done` event                  |
| `turn.again`       | `id`, `turn`, `tier`, `model`: answer it once more, as a new version | `turn.accepted`                         |
| `turn.continue`    | `id`, `turn`: go on from a partial answer, as a new version          | `turn.accepted`                         |
| `ack`              | `turn`, `seq`: everything up to `seq` is shown                       | none                                     |

Server to browser
-----------------
| t                      | fields                                                                                   |
|------------------------|------------------------------------------------------------------------------------------|
| `hello`                | `protocol`, `heartbeat_s`, `user`                                                         |
| `pong`                 | `at`                                                                                      |
| `watching`             | `conversation`                                                                            |
| `turn.accepted`        | `for` (client id, or null: started elsewhere), `turn` (see `chat.selectors.told_turn`: its text comes as events), `duplicate` |
| `event`                | `turn`, `fence`, `seq`, `kind` and the kind's fields (below). `seq` starts at 1 and has no gap. A higher `fence` starts over from 1: forget what came under the lower one |
| `conversation.changed` | `conversation`, `title`, `updated_at`, `campus_only`, `deleted`                            |
| `error`                | `for`, `error`: `stream_site.error_shapes.ErrorWords.as_dict`                              |

Kinds of event
--------------
| kind        | fields                                                                                  |
|-------------|-----------------------------------------------------------------------------------------|
| `route`     | `route`: `routing.types.RouteDecision.as_dict`                                           |
| `attempt`   | `attempt` (from 1), `tier`, `model`, `model_label`                                       |
| `state`     | `state`, `detail`                                                                        |
| `delta`     | `text`                                                                                   |
| `reasoning` | `text`                                                                                   |
| `fallback`  | `from`, `to`, `why` (words). Before the first visible text only                          |
| `done`      | `outcome`, `stored`: the turn without `answer` and `reasoning`, which came before; `error` (words or null). Always the last |

At most `WINDOW_BYTES` of events are unacknowledged on a socket; the rest waits in the database.
A socket that sends nothing, not even `ping`, for `IDLE_TIMEOUT_S` is closed with 4408.
Close codes: 4401 sign in again, 4408 idle, 1011 a fault of ours, 1001 and 1012 the server restarts: connect again.
A handshake from a foreign page, or without Origin, is refused with HTTP 403.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from stream_site.errors import InputError

PROTOCOL_VERSION = 1
WINDOW_BYTES = 256 * 1024
HEARTBEAT_S = 10
IDLE_TIMEOUT_S = 60
MAX_FRAME_BYTES = 1024 * 1024
MAX_QUESTION_CHARS = 200_000
TIER_CHOICES = ("auto", "local", "hpc", "cloud")


@dataclass(frozen=True)
class Ping:
    at: float


@dataclass(frozen=True)
class Watch:
    conversation: uuid.UUID
    turns: dict[uuid.UUID, int] = field(default_factory=dict)
    after: datetime | None = None


@dataclass(frozen=True)
class TurnStart:
    id: uuid.UUID
    conversation: uuid.UUID
    text: str
    tier: str
    model: str
    campus_only: bool


@dataclass(frozen=True)
class TurnStop:
    turn: uuid.UUID


@dataclass(frozen=True)
class TurnAgain:
    id: uuid.UUID
    turn: uuid.UUID
    tier: str
    model: str


@dataclass(frozen=True)
class TurnContinue:
    id: uuid.UUID
    turn: uuid.UUID


@dataclass(frozen=True)
class Ack:
    turn: uuid.UUID
    seq: int


ClientMessage = Ping | Watch | TurnStart | TurnStop | TurnAgain | TurnContinue | Ack


def parse(raw: str) -> ClientMessage:
    """Return the message in `raw`. Raises `InputError` in words; the text typed stays in the browser."""
    try:
        data = json.loads(raw)
    except (ValueError, RecursionError):
        raise InputError("The page sent a message that is not JSON.") from None
    if not isinstance(data, dict):
        raise InputError("The page sent a message that is not a JSON object.")
    match data.get("t"):
        case "ping":
            at = data.get("at", 0)
            return Ping(at if isinstance(at, (int, float)) and not isinstance(at, bool) else 0)
        case "watch":
            return Watch(_uuid(data, "conversation"), _turns(data.get("turns", {})), _time(data.get("after")))
        case "turn.start":
            return TurnStart(
                _uuid(data, "id"),
                _uuid(data, "conversation"),
                question_text(data.get("text")),
                _tier(data),
                _name(data),
                data.get("campus_only") is True,
            )
        case "turn.stop":
            return TurnStop(_uuid(data, "turn"))
        case "turn.again":
            return TurnAgain(_uuid(data, "id"), _uuid(data, "turn"), _tier(data), _name(data))
        case "turn.continue":
            return TurnContinue(_uuid(data, "id"), _uuid(data, "turn"))
        case "ack":
            return Ack(_uuid(data, "turn"), _seq(data.get("seq")))
        case other:
            raise InputError(f"The page sent a message of unknown type {str(other)[:40]!r}.", field="t")


def encode(message: dict[str, Any]) -> str:
    """Return `message` as compact JSON."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":"))


def question_text(value: object) -> str:
    """Return a question that can be stored and sent. Raises `InputError` naming what is wrong with it."""
    if not isinstance(value, str) or not value.strip():
        raise InputError("The question is empty.", field="text", todo="Type a question and send it.")
    if len(value) > MAX_QUESTION_CHARS:
        raise InputError(
            f"The question has {len(value):,} characters; at most {MAX_QUESTION_CHARS:,} can be sent.",
            field="text",
            kept="Your text stays in the box.",
            todo="Shorten it, or send it in parts.",
        )
    for at, char in enumerate(value):
        if char == "\0" or "\ud800" <= char <= "\udfff":
            raise InputError(
                f"Character {at + 1:,} of the question is not valid text (U+{ord(char):04X}).",
                field="text",
                kept="Your text stays in the box.",
                todo="Remove it and send again.",
            )
    return value


def _uuid(data: dict[str, Any], name: str) -> uuid.UUID:
    value = data.get(name)
    try:
        return uuid.UUID(value if isinstance(value, str) else "")
    except ValueError:
        raise InputError(f"The page sent no valid id in {name!r}.", field=name) from None


def _tier(data: dict[str, Any]) -> str:
    tier = data.get("tier", "auto")
    if tier not in TIER_CHOICES:
        raise InputError(
            f"There is no tier {str(tier)[:40]!r}.", field="tier", todo="Pick Auto, Local, Campus HPC or Cloud."
        )
    return str(tier)


def _name(data: dict[str, Any]) -> str:
    name = data.get("model", "")
    if not isinstance(name, str) or len(name) > 200:
        raise InputError("The model's name is not valid.", field="model")
    return name


def _seq(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**31:
        raise InputError("The page sent a sequence number that is not valid.", field="seq")
    return value


def _time(value: object) -> datetime | None:
    if value is None:
        return None
    try:
        parsed = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None:
        raise InputError("The page sent a time that is not valid.", field="after")
    return parsed


def _turns(value: object) -> dict[uuid.UUID, int]:
    if not isinstance(value, dict) or len(value) > 50:
        raise InputError("The page sent a list of turns that is not valid.", field="turns")
    return {_uuid({"turns": k}, "turns"): _seq(v) for k, v in value.items()}
