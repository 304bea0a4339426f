"""Parts an engine can be made of in tests: a judge that says what it is told, a backend that plays a list."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from routing.engine import Attempt
from routing.judge import JudgeInput
from routing.types import (
    BackendEvent,
    Complexity,
    Finish,
    Judgement,
    ModelCall,
    ModelSpec,
    Price,
    TextDelta,
    Tier,
    TierStatus,
    Usage,
    UsageReport,
)

Step = BackendEvent | Exception | float


@dataclass
class FixedJudge:
    complexity: Complexity = Complexity.LOW
    asked: list[JudgeInput] = field(default_factory=list)

    def judge(self, question: JudgeInput) -> Judgement:
        self.asked.append(question)
        rest = dict.fromkeys(Complexity, 0.1)
        return Judgement(self.complexity, rest | {self.complexity: 0.8}, "classifier", "It was told so.", 0.1)


@dataclass
class ListBackend:
    """Plays `steps`: an event is yielded, an exception raised, a number slept."""

    tier: Tier
    steps: Sequence[Step]
    calls: list[ModelCall] = field(default_factory=list)
    closed_early: int = 0

    async def stream(self, call: ModelCall) -> AsyncGenerator[BackendEvent, None]:
        self.calls.append(call)
        ended = False
        try:
            for step in self.steps:
                if isinstance(step, Exception):
                    ended = True
                    raise step
                if isinstance(step, float):
                    await asyncio.sleep(step)
                    continue
                yield step
            ended = True
        finally:
            self.closed_early += not ended

    async def warm(self) -> None:
        return

    async def close(self) -> None:
        return


@dataclass
class OpenPurse:
    """Grants everything, and remembers what was asked for; or raises `refuse`."""

    asked: list[tuple[int, int]] = field(default_factory=list)
    refuse: Exception | None = None

    async def reserve(self, attempt: Attempt, upper_micro: int) -> None:
        if self.refuse:
            raise self.refuse
        self.asked.append((attempt.number, upper_micro))


def model(tier: Tier, *, window: int = 8192, paid: bool = False, name: str = "") -> ModelSpec:
    price = Price(input=3_000_000, output=15_000_000) if paid else Price()
    return ModelSpec(tier, name or f"{tier}-model", f"{tier.label} model", window, window // 4, price)


def status(tier: Tier, **kwargs: object) -> TierStatus:
    return TierStatus(tier, configured=True, models=(model(tier, **kwargs),))  # type: ignore[arg-type]


def says(*texts: str, usage: Usage | None = None) -> list[Step]:
    used = usage or Usage(prompt=10, completion=len(texts))
    return [*(TextDelta(t) for t in texts), UsageReport(used), Finish("stop")]
