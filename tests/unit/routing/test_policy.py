"""The policy: which tier, why, and what happens when one is shut."""

from __future__ import annotations

from dataclasses import replace

import pytest

from routing.context import Ask
from routing.policy import PolicyInput, decide
from routing.types import Complexity, DataPolicy, Judgement, Message, Tier, TierStatus
from stream_site.errors import AccessError, BudgetError, InputError, RoutingError, TooLongError
from tests.fakes.engine_parts import model, status

ALL = (status(Tier.LOCAL), status(Tier.HPC, window=32_000), status(Tier.CLOUD, window=200_000, paid=True))
RICH = 10_000_000_000


def judged(complexity: Complexity) -> Judgement:
    return Judgement(complexity, {complexity: 1.0}, "classifier", "")


def given(text: str = "What is a mole?", **kwargs: object) -> PolicyInput:
    fields = {"ask": Ask(text), "tiers": ALL, "budget_left_micro": RICH} | kwargs
    return PolicyInput(**fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("complexity", "order"),
    [
        (Complexity.LOW, [Tier.LOCAL, Tier.HPC, Tier.CLOUD]),
        (Complexity.MEDIUM, [Tier.HPC, Tier.CLOUD, Tier.LOCAL]),
        (Complexity.HIGH, [Tier.CLOUD, Tier.HPC, Tier.LOCAL]),
    ],
)
def test_each_complexity_has_its_order_of_tiers(complexity: Complexity, order: list[Tier]) -> None:
    route = decide(given(), judged(complexity))
    assert [route.tier, *(m.tier for m in route.fallbacks)] == order
    assert not route.pinned


def test_campus_only_never_meets_the_cloud_not_even_as_a_fallback() -> None:
    for complexity in Complexity:
        route = decide(given(data_policy=DataPolicy.CAMPUS_ONLY), judged(complexity))
        assert Tier.CLOUD not in [route.tier, *(m.tier for m in route.fallbacks)]
        assert not next(c for c in route.candidates if c.tier is Tier.CLOUD).allowed
    with pytest.raises(AccessError, match="campus only"):
        decide(given(data_policy=DataPolicy.CAMPUS_ONLY, tier_choice="cloud"), None)


def test_a_tier_that_is_not_configured_is_shown_with_the_reason_and_never_chosen() -> None:
    shut = TierStatus(Tier.CLOUD, configured=False, models=(model(Tier.CLOUD, paid=True),), why="No key is set.")
    route = decide(given(tiers=(*ALL[:2], shut)), judged(Complexity.HIGH))
    assert route.tier is Tier.HPC
    assert "No key is set." in route.reason
    with pytest.raises(RoutingError, match="No key is set"):
        decide(given(tiers=(*ALL[:2], shut), tier_choice="cloud"), None)


def test_an_empty_budget_shuts_the_paid_tier_and_leaves_the_free_ones() -> None:
    route = decide(given(budget_left_micro=0), judged(Complexity.HIGH))
    assert route.tier is Tier.HPC
    assert "budget" in route.reason
    with pytest.raises(BudgetError):
        decide(given(budget_left_micro=0, tier_choice="cloud"), None)


def test_a_pinned_tier_has_no_fallback_and_is_never_left() -> None:
    route = decide(given(tier_choice="local"), None)
    assert (route.tier, route.fallbacks, route.pinned) == (Tier.LOCAL, (), True)


def test_a_pinned_model_is_found_by_name_and_an_unknown_one_is_refused() -> None:
    mini = model(Tier.CLOUD, paid=True, name="mini")
    tiers = (replace(ALL[2], models=(*ALL[2].models, mini)),)
    assert decide(given(tiers=tiers, tier_choice="cloud", model_choice="mini"), None).model == mini
    with pytest.raises(InputError, match="no model 'maxi'"):
        decide(given(tiers=tiers, tier_choice="cloud", model_choice="maxi"), None)


def test_a_long_chat_with_a_trivial_last_turn_goes_where_it_fits() -> None:
    history = tuple(Message(role, "word " * 4000) for role in ("user", "assistant") * 6)
    ask = Ask("ok continue", history)
    route = decide(given(ask=ask), judged(Complexity.LOW))
    assert route.tier is Tier.CLOUD
    assert "cannot hold the whole conversation" in route.reason
    assert route.dropped_messages == 0


def test_when_no_window_holds_the_history_the_oldest_is_left_out_and_said() -> None:
    history = tuple(Message(role, "word " * 4000) for role in ("user", "assistant") * 2)
    route = decide(given(ask=Ask("ok", history), tiers=ALL[:1]), judged(Complexity.LOW))
    assert route.tier is Tier.LOCAL
    assert route.dropped_messages == 4
    assert "4 earlier messages do not fit" in route.reason


def test_a_question_that_fits_nowhere_is_refused_in_words() -> None:
    with pytest.raises(TooLongError, match="does not fit"):
        decide(given("word " * 40_000, tiers=ALL[:1]), judged(Complexity.LOW))


def test_no_tier_at_all_is_an_error_in_words() -> None:
    with pytest.raises(RoutingError, match="No tier is set up"):
        decide(given(tiers=()), judged(Complexity.LOW))


def test_without_a_judgement_a_question_counts_as_medium() -> None:
    assert decide(given(), None).tier is Tier.HPC
