"""The words of routing, as types. Pure: no I/O, no Django.

judge(question) -> Judgement -> policy(…) -> RouteDecision -> engine: attempts at backends -> events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


class Tier(StrEnum):
    """Where an answer comes from, cheapest first."""

    LOCAL = "local"
    HPC = "hpc"
    CLOUD = "cloud"

    @property
    def label(self) -> str:
        return {"local": "Local", "hpc": "Campus HPC", "cloud": "Cloud"}[self.value]


class Complexity(StrEnum):
    """Reasoning depth an answer needs; docs/routing.md has the rubric."""

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"


class DataPolicy(StrEnum):
    """How far a text may travel. Ordered from open to closed by `strictness`."""

    PUBLIC = "public"
    CAMPUS_ONLY = "campus_only"


class Outcome(StrEnum):
    """How a turn ended. Every turn ends in exactly one."""

    COMPLETE = "complete"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    DAMAGED = "damaged"
    FAILED = "failed"


Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Message:
    role: Role
    text: str


@dataclass(frozen=True)
class Judgement:
    """What the judge thinks of a question. `probabilities` are calibrated and sum to 1; empty when nothing was judged."""

    complexity: Complexity
    probabilities: Mapping[Complexity, float]
    source: str  # "classifier" | "pinned" | "default"
    reason: str  # one sentence in words
    took_ms: float = 0.0

    @property
    def confidence(self) -> float:
        return self.probabilities.get(self.complexity, 0.0)


@dataclass(frozen=True)
class Price:
    """US micro-dollars per million tokens (1 USD is 1_000_000). `cached`, `reasoning`: as input, output when None."""

    input: int = 0
    output: int = 0
    cached: int | None = None
    reasoning: int | None = None

    @property
    def is_free(self) -> bool:
        return not (self.input or self.output or self.cached or self.reasoning)


@dataclass(frozen=True)
class ModelSpec:
    """One model of a tier. `window` is prompt + answer, in tokens."""

    tier: Tier
    name: str  # the upstream's name for it
    label: str  # what people read
    window: int
    max_output: int
    price: Price = Price()
    vision: bool = False
    tools: bool = False
    typical_first_text_s: float = 1.0
    prompt_limit: int = 0  # most prompt tokens worth sending; 0 means all that the window leaves
    note: str = ""  # e.g. "a real but tiny demonstration model"


@dataclass(frozen=True)
class TierStatus:
    """A tier as it stands now. A tier that is not configured is shown with `why` and never chosen."""

    tier: Tier
    configured: bool
    models: tuple[ModelSpec, ...] = ()
    why: str = ""
    healthy: bool = True

    @property
    def usable(self) -> bool:
        return self.configured and self.healthy and bool(self.models)


@dataclass(frozen=True)
class Candidate:
    """One tier as the policy saw it for this question. `cost_micro` is the upper bound."""

    tier: Tier
    model: str
    allowed: bool
    why_not: str
    cost_micro: int
    wait_s: float


@dataclass(frozen=True)
class RouteDecision:
    """Which model answers and why. `fallbacks` are tried in order, before the first visible text only."""

    model: ModelSpec
    reason: str
    judgement: Judgement | None
    candidates: tuple[Candidate, ...]
    fallbacks: tuple[ModelSpec, ...]
    pinned: bool = False
    dropped_messages: int = 0  # earlier messages that do not fit the chosen model's window

    @property
    def tier(self) -> Tier:
        return self.model.tier

    def as_dict(self) -> dict[str, Any]:
        """JSON form, stored with the turn and sent to the browser (chat.protocol, event `route`)."""
        j = self.judgement
        return {
            "tier": self.tier.value,
            "model": self.model.name,
            "model_label": self.model.label,
            "reason": self.reason,
            "pinned": self.pinned,
            "judgement": None
            if j is None
            else {
                "complexity": j.complexity.value,
                "probabilities": {c.value: round(p, 4) for c, p in j.probabilities.items()},
                "source": j.source,
                "reason": j.reason,
                "took_ms": round(j.took_ms, 2),
            },
            "candidates": [
                {
                    "tier": c.tier.value,
                    "model": c.model,
                    "allowed": c.allowed,
                    "why_not": c.why_not,
                    "cost_micro": c.cost_micro,
                    "wait_s": c.wait_s,
                }
                for c in self.candidates
            ],
            "fallbacks": [m.tier.value for m in self.fallbacks],
            "dropped_messages": self.dropped_messages,
        }


@dataclass(frozen=True)
class Usage:
    """Tokens counted by the upstream, or estimated. Cached are part of prompt; reasoning are part of completion.

    `cost_micro` is what the provider says it charged, in micro-dollars, or None when it says nothing.
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    reasoning: int = 0
    cost_micro: int | None = None
    estimated: bool = False
    generation_id: str = ""


# ── what a backend yields ─────────────────────────────────────────────────


@dataclass(frozen=True)
class TextDelta:
    text: str


@dataclass(frozen=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True)
class ToolDelta:
    """A piece of one tool call. `index` always set; `id` and `name` only in its first piece."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class UsageReport:
    usage: Usage


@dataclass(frozen=True)
class Finish:
    """The upstream said it is done. reason: stop | length | tool_calls | content_filter."""

    reason: str


@dataclass(frozen=True)
class StateNote:
    """A step on the way to the first token (HPC: submitted, queued, node, loading, prefill)."""

    state: str
    detail: str = ""


@dataclass(frozen=True)
class Trace:
    """Facts about the way of an attempt, for `manage.py explain_turn`; no page shows them. Values are JSON."""

    what: str
    facts: Mapping[str, Any]


BackendEvent = TextDelta | ReasoningDelta | ToolDelta | UsageReport | Finish | StateNote | Trace


@dataclass(frozen=True)
class ModelCall:
    """One request to one model. Times in seconds. `key` names the call for logs and idempotency (turn id and attempt)."""

    model: ModelSpec
    messages: Sequence[Message]
    max_tokens: int
    data_policy: DataPolicy = DataPolicy.PUBLIC
    key: str = ""
    temperature: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
