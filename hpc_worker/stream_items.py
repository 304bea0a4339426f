"""What a reader of a model server's stream hands out. Pure, Python 3.9.

Order: any of `Text`, `Reasoning`, `ToolPiece`; then at most one `UsageItem`; then exactly one `FinishItem` or `Fault`.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any

MAX_TOKENS_COUNTED = 10**12  # a count above this is no count
_MAX_COST = Decimal(10**9)


@dataclass(frozen=True)
class Item:
    """Base of all items."""


@dataclass(frozen=True)
class Text(Item):
    text: str


@dataclass(frozen=True)
class Reasoning(Item):
    text: str


@dataclass(frozen=True)
class ToolPiece(Item):
    """A piece of one tool call. `index` counts the calls from 0; `id` and `name` only in a call's first piece."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class UsageItem(Item):
    """Tokens counted by the server, `estimated` if some of them were not.

    `cost_micro`: what it says it charged, in micro-dollars, or None.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    cost_micro: int | None = None
    generation_id: str = ""
    estimated: bool = False


@dataclass(frozen=True)
class FinishItem(Item):
    """reason: stop | length | tool_calls | content_filter. `raw` is the server's own word."""

    reason: str
    raw: str


@dataclass(frozen=True)
class Fault(Item):
    """The stream ended without a finish.

    | kind       | meaning                                                          |
    |------------|------------------------------------------------------------------|
    | `said`     | the server sent an error object; `status`, `code` as it gave them |
    | `early`    | the stream ended without a finish reason                         |
    | `garbage`  | nothing in it could be read                                      |
    | `html`     | a web page came instead of a stream                              |
    | `too_long` | one line was over the limit                                      |
    | `cut_tool` | it said tool_calls, but a call's arguments are not whole JSON    |

    `words` are for people or, with `said`, the server's own: not yet cleaned.
    """

    kind: str
    words: str
    status: int | None = None
    code: str = ""


def read_usage(usage: dict[str, Any], generation_id: str) -> UsageItem:
    """Return an OpenAI-shaped `usage` object, with OpenRouter's `cost`, as an item."""
    prompt_details = usage.get("prompt_tokens_details")
    completion_details = usage.get("completion_tokens_details")
    return UsageItem(
        prompt=count(usage.get("prompt_tokens")),
        completion=count(usage.get("completion_tokens")),
        cached=count(prompt_details.get("cached_tokens")) if isinstance(prompt_details, dict) else 0,
        reasoning=count(completion_details.get("reasoning_tokens")) if isinstance(completion_details, dict) else 0,
        cost_micro=micro_dollars(usage.get("cost")),
        generation_id=generation_id,
    )


def count(value: object) -> int:
    """Return a token count; anything that is none counts as 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return 0
    return int(value) if 0 <= value <= MAX_TOKENS_COUNTED else 0


def micro_dollars(value: object) -> int | None:
    """Return US dollars (number or text) as whole micro-dollars, rounded half even; None if it is no amount."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str, Decimal)):
        return None
    try:
        dollars = Decimal(str(value))
    except InvalidOperation:
        return None
    if not dollars.is_finite() or not 0 <= dollars < _MAX_COST:
        return None
    return int((dollars * 1_000_000).to_integral_value(ROUND_HALF_EVEN))
