"""The engine: fallback before the first visible text, never after; one end; what each attempt is booked for."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import aclosing

import pytest

from routing.context import Ask
from routing.engine import Answering, AnswerRequest, AttemptStarted, Ended, Engine, FellBack, Routed
from routing.types import Complexity, DataPolicy, Finish, Outcome, ReasoningDelta, TextDelta, Tier, Usage
from stream_site.errors import BudgetError, StreamBroken, StreamDamaged, UpstreamBusy, UpstreamError, UpstreamTimeout
from tests.fakes.engine_parts import FixedJudge, ListBackend, OpenPurse, Step, says, status

DOWN = UpstreamError("The connection was refused.")


def answering(
    backends: dict[Tier, list[Step]],
    *,
    complexity: Complexity = Complexity.LOW,
    purse: OpenPurse | None = None,
    timeout_s: float = 5,
    **request: object,
) -> Answering:
    engine = Engine(
        judge=FixedJudge(complexity),
        backends={tier: ListBackend(tier, steps) for tier, steps in backends.items()},
        tiers=tuple(status(tier, paid=tier is Tier.CLOUD) for tier in backends),
        answer_timeout_s=timeout_s,
    )
    fields = {
        "turn_id": uuid.uuid4(),
        "user_id": 1,
        "ask": Ask("What is a mole?"),
        "budget_left_micro": 10**9,
    } | request
    return engine.answer(AnswerRequest(**fields), purse or OpenPurse())  # type: ignore[arg-type]


async def events_of(a: Answering) -> list[object]:
    async with aclosing(a.stream()) as events:
        return [event async for event in events]


async def test_an_answer_is_routed_attempted_streamed_and_ended_once() -> None:
    a = answering({Tier.LOCAL: says("Hel", "lo")})
    events = await events_of(a)
    assert [type(e) for e in events] == [Routed, AttemptStarted, TextDelta, TextDelta, Ended]
    assert events[-1] == Ended(Outcome.COMPLETE, finish="stop")
    assert a.attempts[0].billable() == Usage(prompt=10, completion=2)


async def test_a_failure_before_the_first_text_falls_back_in_order_and_says_so() -> None:
    a = answering({Tier.LOCAL: [DOWN], Tier.HPC: [UpstreamBusy("Busy.")], Tier.CLOUD: says("ok")})
    events = await events_of(a)
    fell = [(e.failed.tier, e.next.tier) for e in events if isinstance(e, FellBack)]
    assert fell == [(Tier.LOCAL, Tier.HPC), (Tier.HPC, Tier.CLOUD)]
    assert [e.number for e in events if isinstance(e, AttemptStarted)] == [1, 2, 3]
    assert isinstance(events[-1], Ended)
    assert events[-1].outcome is Outcome.COMPLETE


@pytest.mark.parametrize("first", [TextDelta("Half an"), ReasoningDelta("Let me think")])
async def test_after_visible_text_nothing_restarts_the_partial_stays(first: Step) -> None:
    a = answering({Tier.LOCAL: [first, StreamBroken("Cut.")], Tier.CLOUD: says("never")})
    events = await events_of(a)
    assert not any(isinstance(e, FellBack) for e in events)
    assert isinstance(events[-1], Ended)
    assert events[-1].outcome is Outcome.INTERRUPTED
    assert len(a.attempts) == 1
    assert a.attempts[0].billable().estimated
    assert a.attempts[0].billable().completion > 0


@pytest.mark.parametrize("before", [[], [TextDelta("Half an")]])
async def test_an_altered_answer_ends_as_damaged_and_a_wrong_start_may_fall_back(before: list[Step]) -> None:
    altered = StreamDamaged("A part was altered.")
    alone = await events_of(answering({Tier.HPC: [*before, altered]}, tier_choice="hpc"))
    assert alone[-1] == Ended(Outcome.DAMAGED, error=altered)
    followed = await events_of(answering({Tier.HPC: [*before, altered], Tier.CLOUD: says("ok")}))
    assert isinstance(followed[-1], Ended)
    assert followed[-1].outcome is (Outcome.DAMAGED if before else Outcome.COMPLETE)


async def test_a_pinned_tier_fails_instead_of_being_left() -> None:
    a = answering({Tier.LOCAL: [DOWN], Tier.CLOUD: says("never")}, tier_choice="local")
    events = await events_of(a)
    assert events[-1] == Ended(Outcome.FAILED, error=DOWN)
    assert len(a.attempts) == 1


async def test_a_stream_that_ends_without_a_word_is_not_an_answer() -> None:
    a = answering({Tier.LOCAL: [Finish("stop")], Tier.CLOUD: says("ok")})
    events = await events_of(a)
    assert any(isinstance(e, FellBack) for e in events)
    assert "without a word" in str(a.attempts[0].error)


async def test_a_budget_that_closes_between_decision_and_call_falls_back_to_a_free_tier() -> None:
    purse = OpenPurse(refuse=BudgetError("Used up."))
    a = answering({Tier.CLOUD: says("paid"), Tier.LOCAL: says("free")}, complexity=Complexity.HIGH, purse=purse)
    events = await events_of(a)
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["free"]
    assert a.attempts[0].billable() == Usage(estimated=True)
    assert not a.attempts[0].sent


async def test_a_priced_call_reserves_its_upper_bound_first_and_a_free_one_nothing() -> None:
    purse = OpenPurse()
    a = answering({Tier.CLOUD: says("x")}, complexity=Complexity.HIGH, purse=purse)
    await events_of(a)
    prompt = a.attempts[0].prompt
    assert purse.asked == [(1, 3 * prompt.tokens + 15 * prompt.max_tokens)]
    free = OpenPurse()
    await events_of(answering({Tier.LOCAL: says("x")}, purse=free))
    assert free.asked == []


async def test_campus_only_reaches_no_cloud_backend_when_all_else_fails() -> None:
    a = answering({Tier.LOCAL: [DOWN], Tier.CLOUD: says("never")}, data_policy=DataPolicy.CAMPUS_ONLY)
    events = await events_of(a)
    assert isinstance(events[-1], Ended)
    assert events[-1].outcome is Outcome.FAILED
    assert a.engine.backends[Tier.CLOUD].calls == []  # type: ignore[attr-defined]


async def test_an_answer_over_its_time_ends_interrupted_and_its_stream_is_closed() -> None:
    a = answering({Tier.LOCAL: [TextDelta("x"), 60.0]}, timeout_s=0.05)
    events = await events_of(a)
    assert isinstance(events[-1], Ended)
    assert events[-1].outcome is Outcome.INTERRUPTED
    assert a.engine.backends[Tier.LOCAL].closed_early == 1  # type: ignore[attr-defined]


async def test_cancelling_closes_the_upstream_and_leaves_the_attempt_to_be_booked() -> None:
    a = answering({Tier.LOCAL: [TextDelta("some words"), 60.0]})

    async def consume() -> None:
        async with aclosing(a.stream()) as events:
            async for _ in events:
                pass

    task = asyncio.create_task(consume())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert a.engine.backends[Tier.LOCAL].closed_early == 1  # type: ignore[attr-defined]
    assert a.attempts[0].billable().completion == 3


async def test_a_refusal_by_status_before_any_work_costs_nothing_but_a_timeout_is_booked() -> None:
    refused = answering({Tier.CLOUD: [UpstreamBusy("429", upstream_status=429)]}, complexity=Complexity.HIGH)
    await events_of(refused)
    assert refused.attempts[0].billable().prompt == 0
    late = answering({Tier.CLOUD: [UpstreamTimeout("No word.")]}, complexity=Complexity.HIGH)
    await events_of(late)
    assert late.attempts[0].billable().prompt > 0


async def test_follow_ups_reach_the_judge_with_what_they_answer() -> None:
    from routing.types import Message

    history = (Message("user", "Prove it."), Message("assistant", "Here is a proof."))
    a = answering({Tier.LOCAL: says("x")}, ask=Ask("why?", history))
    await events_of(a)
    assert a.engine.judge.asked[0].context == history  # type: ignore[attr-defined]
