"""The engine: judge > policy > attempts at backends, as one stream of events. Async edge; no Django.

`Answering` is one answer in the making. Its `attempts` can be read at any time, also after a cancel: they say what
each try used, so that aborted and failed calls are booked like any other.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

from routing.backends.base import Backend
from routing.context import Ask, Prompt, build_prompt
from routing.judge import Judge, JudgeInput
from routing.policy import AUTO, PolicyInput, decide
from routing.pricing import upper_bound_micro
from routing.tokens import estimate_tokens
from routing.types import (
    Complexity,
    DataPolicy,
    Finish,
    Judgement,
    ModelCall,
    ModelSpec,
    Outcome,
    ReasoningDelta,
    RouteDecision,
    StateNote,
    TextDelta,
    Tier,
    TierStatus,
    ToolDelta,
    Trace,
    Usage,
    UsageReport,
)
from stream_site.errors import QuotaError, StreamBroken, StreamDamaged, StreamError, UpstreamError

JUDGE_TIMEOUT_S = 1.0
LATE = Judgement(
    complexity=Complexity.MEDIUM,
    probabilities={},
    source="default",
    reason="The judge did not answer in time, so the question is treated as MEDIUM.",
)


@dataclass(frozen=True)
class AnswerRequest:
    """One question to answer. `budget_left_micro` is what paid tiers may still cost, US micro-dollars."""

    turn_id: UUID
    user_id: int
    ask: Ask
    tier_choice: str = AUTO
    model_choice: str = ""
    data_policy: DataPolicy = DataPolicy.PUBLIC
    budget_left_micro: int = 0


@dataclass
class Attempt:
    """One try at one model. `usage` is the provider's count, when it came."""

    number: int
    model: ModelSpec
    prompt: Prompt
    started: float
    usage: Usage | None = None
    pieces: list[str] = field(default_factory=list)
    first_text_at: float | None = None
    sent: bool = False
    ended: bool = False
    finish: str = ""
    error: StreamError | None = None

    @property
    def visible(self) -> bool:
        return self.first_text_at is not None

    def billable(self) -> Usage:
        """Return what to book: the provider's count, else an estimate of what was sent and received."""
        if self.usage is not None:
            return self.usage
        if not self.sent or (self.error is not None and not self.visible and never_ran(self.error)):
            return Usage(estimated=True)
        completion = estimate_tokens("".join(self.pieces))
        return Usage(prompt=self.prompt.tokens, completion=completion, estimated=True)


def never_ran(error: StreamError) -> bool:
    """Whether the provider turned the call away before any work: a status that is never billed, or no connection."""
    if not isinstance(error, UpstreamError):
        return True
    return error.upstream_status is not None and error.upstream_status >= 400


class Purse(Protocol):
    """Where the engine asks for money before a priced call."""

    async def reserve(self, attempt: Attempt, upper_micro: int) -> None:
        """Set `upper_micro` aside. Raises `BudgetError`."""
        ...


# ── what the engine yields ────────────────────────────────────────────────


@dataclass(frozen=True)
class Routed:
    decision: RouteDecision


@dataclass(frozen=True)
class AttemptStarted:
    number: int
    model: ModelSpec


@dataclass(frozen=True)
class FellBack:
    """The attempt ended before any visible text; the next model answers in its place."""

    failed: ModelSpec
    next: ModelSpec
    error: StreamError


@dataclass(frozen=True)
class Ended:
    """Always the last. `error` says why, unless the outcome is complete. `finish` is stop, length or content_filter."""

    outcome: Outcome
    error: StreamError | None = None
    finish: str = ""


EngineEvent = Routed | AttemptStarted | TextDelta | ReasoningDelta | StateNote | Trace | FellBack | Ended


@dataclass(frozen=True)
class Engine:
    """What answers are made with: shared by all answers of a process."""

    judge: Judge
    backends: Mapping[Tier, Backend]
    tiers: Sequence[TierStatus]
    answer_timeout_s: float = 900

    def answer(self, request: AnswerRequest, purse: Purse) -> Answering:
        return Answering(self, request, purse)

    async def warm(self) -> None:
        """Load the judge's weights and the clients' libraries: seconds of work that no question should wait for."""
        await asyncio.to_thread(self.judge.judge, JudgeInput(text="Is the engine warm?"))
        for backend in self.backends.values():
            await backend.warm()

    async def close(self) -> None:
        for backend in self.backends.values():
            await backend.close()


class Answering:
    def __init__(self, engine: Engine, request: AnswerRequest, purse: Purse) -> None:
        self.engine = engine
        self.request = request
        self.purse = purse
        self.attempts: list[Attempt] = []

    async def stream(self) -> AsyncGenerator[EngineEvent, None]:
        """Yield the events of the answer, `Ended` last. Raises nothing but cancellation.

        Falling back is silent in so far as it happens before the first visible text only; a pinned tier has no fallback.
        """
        try:
            async with asyncio.timeout(self.engine.answer_timeout_s):
                async with aclosing(self._run()) as events:
                    async for event in events:
                        yield event
        except TimeoutError:
            minutes = self.engine.answer_timeout_s / 60
            yield self._failed(StreamBroken(f"The answer took longer than {minutes:.0f} minutes and was ended."))
        except StreamError as error:
            yield self._failed(error)

    async def _run(self) -> AsyncGenerator[EngineEvent, None]:
        decision = decide(self._policy_input(), await self._judge())
        yield Routed(decision)
        models = (decision.model, *decision.fallbacks)
        for index, model in enumerate(models):
            attempt = self._new_attempt(model)
            yield AttemptStarted(attempt.number, model)
            try:
                async with aclosing(self._attempt(attempt)) as events:
                    async for event in events:
                        yield event
            except (UpstreamError, QuotaError) as error:
                attempt.error = error
                following = models[index + 1 : index + 2]
                if attempt.visible or not following:
                    raise
                yield FellBack(model, following[0], error)
            else:
                yield Ended(Outcome.COMPLETE, finish=attempt.finish)
                return
            finally:
                attempt.ended = True

    async def _judge(self) -> Judgement | None:
        """Return the judgement, MEDIUM when the judge is late, or None for a pinned tier: nothing to judge."""
        if self.request.tier_choice != AUTO:
            return None
        ask = self.request.ask
        question = JudgeInput(text=ask.question, context=ask.history)
        try:
            async with asyncio.timeout(JUDGE_TIMEOUT_S):
                return await asyncio.to_thread(self.engine.judge.judge, question)
        except TimeoutError:
            return LATE

    def _policy_input(self) -> PolicyInput:
        r = self.request
        return PolicyInput(
            ask=r.ask,
            tiers=self.engine.tiers,
            tier_choice=r.tier_choice,
            model_choice=r.model_choice,
            data_policy=r.data_policy,
            budget_left_micro=r.budget_left_micro,
        )

    def _new_attempt(self, model: ModelSpec) -> Attempt:
        prompt = build_prompt(self.request.ask, model)
        attempt = Attempt(len(self.attempts) + 1, model, prompt, started=time.monotonic())
        self.attempts.append(attempt)
        return attempt

    async def _attempt(self, attempt: Attempt) -> AsyncGenerator[EngineEvent, None]:
        model, prompt = attempt.model, attempt.prompt
        if not model.price.is_free:
            await self.purse.reserve(attempt, upper_bound_micro(model.price, prompt.tokens, prompt.max_tokens))
        call = ModelCall(
            model=model,
            messages=prompt.messages,
            max_tokens=prompt.max_tokens,
            data_policy=self.request.data_policy,
            key=f"{self.request.turn_id}.{attempt.number}",
            extra={"prompt_tokens_estimate": prompt.tokens},
        )
        attempt.sent = True
        async with aclosing(self.engine.backends[model.tier].stream(call)) as events:
            async for event in events:
                match event:
                    case TextDelta(text) | ReasoningDelta(text):
                        if attempt.first_text_at is None:
                            attempt.first_text_at = time.monotonic()
                        attempt.pieces.append(text)
                        yield event
                    case UsageReport(usage):
                        attempt.usage = usage
                    case Finish(reason):
                        attempt.finish = reason
                    case StateNote() | Trace():
                        yield event
                    case ToolDelta():
                        continue
        if not attempt.visible:
            raise UpstreamError(f"{model.label} ended without a word.", todo="Try again, or pick another tier.")

    def _failed(self, error: StreamError) -> Ended:
        visible = bool(self.attempts) and self.attempts[-1].visible
        if isinstance(error, StreamDamaged):
            return Ended(Outcome.DAMAGED, error=error)
        return Ended(Outcome.INTERRUPTED if visible else Outcome.FAILED, error=error)
