"""Pricing: the reported bills, and what must hold for any usage at all."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.pricing import MOST_MICRO, CostSource, PricedCost, cost_micro, upper_bound_micro
from routing.types import Price, Usage

REPORTED_PRICE = Price(input=1_250_000, output=10_000_000, cached=625_000)
REPORTED_USAGE = Usage(prompt=262_960, cached=257_955, completion=1_744)

rates = st.integers(0, 200_000_000)
prices = st.builds(Price, rates, rates, st.none() | rates, st.none() | rates)
counts = st.integers(0, 5_000_000)
any_counts = st.integers(-(2**63), 10**7)
garbage = st.builds(Usage, any_counts, any_counts, any_counts, any_counts)


@st.composite
def sound_usages(draw: st.DrawFn) -> Usage:
    prompt, completion = draw(counts), draw(counts)
    return Usage(prompt, completion, draw(st.integers(0, prompt)), draw(st.integers(0, completion)))


def exact_micro(price: Price, usage: Usage) -> Decimal:
    """The bill by the book, in exact decimals."""
    cached = price.input if price.cached is None else price.cached
    reasoning = price.output if price.reasoning is None else price.reasoning
    parts = [
        (usage.prompt - usage.cached, price.input),
        (usage.cached, cached),
        (usage.completion - usage.reasoning, price.output),
        (usage.reasoning, reasoning),
    ]
    return sum((Decimal(n) * rate / 1_000_000 for n, rate in parts), Decimal(0))


def test_cached_tokens_are_billed_once() -> None:
    """A-COST-01: the buggy sum billed them at full price and again at the cache price, 0.7642."""
    assert exact_micro(REPORTED_PRICE, REPORTED_USAGE) == Decimal("184918.125")
    cost = cost_micro(REPORTED_PRICE, REPORTED_USAGE)
    assert cost == PricedCost(184_919, CostSource.PRICE_TABLE)
    assert round(Decimal(cost.amount_micro) / 1_000_000, 4) == Decimal("0.1849")


def test_reasoning_tokens_are_billed_once() -> None:
    price = Price(input=0, output=10_000_000, reasoning=20_000_000)
    assert cost_micro(price, Usage(completion=100, reasoning=40)).amount_micro == 60 * 10 + 40 * 20


def test_no_price_of_their_own_means_the_price_of_the_whole() -> None:
    price = Price(input=1_000_000, output=2_000_000)
    assert cost_micro(price, Usage(10, 10, cached=7, reasoning=9)) == cost_micro(price, Usage(10, 10))


def test_a_cached_price_of_zero_is_a_price() -> None:
    assert cost_micro(Price(input=1_000_000, cached=0), Usage(prompt=10, cached=10)).amount_micro == 0


@pytest.mark.parametrize("estimated", [False, True])
def test_the_providers_word_wins(estimated: bool) -> None:
    """A-COST-04: whatever way the call was made, the usage carries the cost and it is taken, with its source."""
    usage = Usage(prompt=1000, completion=1000, cost_micro=77, estimated=estimated)
    assert cost_micro(REPORTED_PRICE, usage) == PricedCost(77, CostSource.PROVIDER)


def test_a_provider_can_charge_for_a_model_we_hold_for_free() -> None:
    assert cost_micro(Price(), Usage(prompt=5, cost_micro=9)) == PricedCost(9, CostSource.PROVIDER)


@pytest.mark.parametrize("reported", [None, 0, -1])
def test_a_free_tier_costs_nothing(reported: int | None) -> None:
    usage = Usage(prompt=10**6, completion=10**6, cost_micro=reported)
    assert cost_micro(Price(), usage) == PricedCost(0, CostSource.FREE)


def test_a_negative_reported_cost_is_no_word() -> None:
    assert cost_micro(REPORTED_PRICE, Usage(prompt=4, cost_micro=-5)) == PricedCost(5, CostSource.PRICE_TABLE)


def test_estimated_tokens_are_marked() -> None:
    assert cost_micro(REPORTED_PRICE, Usage(prompt=4, estimated=True)) == PricedCost(5, CostSource.ESTIMATE)


def test_one_token_costs_at_least_one_micro_dollar() -> None:
    assert cost_micro(Price(input=1), Usage(prompt=1)).amount_micro == 1


@pytest.mark.parametrize("bad", [1.5, "3", None, Decimal(2)])
def test_only_whole_numbers_are_taken(bad: object) -> None:
    with pytest.raises(TypeError, match="whole numbers"):
        cost_micro(REPORTED_PRICE, Usage(prompt=bad))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="whole numbers"):
        upper_bound_micro(Price(input=bad), 1, 1)  # type: ignore[arg-type]


def test_a_provider_cost_in_fractions_is_refused() -> None:
    with pytest.raises(TypeError):
        cost_micro(REPORTED_PRICE, Usage(cost_micro=0.5))  # type: ignore[arg-type]


@pytest.mark.parametrize("price", [Price(input=-1), Price(output=-1), Price(cached=-1), Price(reasoning=-1)])
def test_a_negative_price_is_refused(price: Price) -> None:
    with pytest.raises(ValueError, match="negative"):
        cost_micro(price, Usage(prompt=1))
    with pytest.raises(ValueError, match="negative"):
        upper_bound_micro(price, 1, 1)


def test_an_absurd_cost_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot cost"):
        cost_micro(REPORTED_PRICE, Usage(cost_micro=MOST_MICRO + 1))
    with pytest.raises(ValueError, match="cannot cost"):
        upper_bound_micro(REPORTED_PRICE, 10**18, 0)


@given(prices, garbage)
def test_never_negative_and_never_a_float(price: Price, usage: Usage) -> None:
    amount = cost_micro(price, usage).amount_micro
    assert type(amount) is int
    assert amount >= 0


@given(prices, sound_usages())
def test_exact_and_rounded_up_once(price: Price, usage: Usage) -> None:
    exact = exact_micro(price, usage)
    assert exact <= cost_micro(price, usage).amount_micro < exact + 1


@given(prices, sound_usages(), counts, counts)
def test_more_tokens_never_cost_less(price: Price, usage: Usage, more_in: int, more_out: int) -> None:
    grown = Usage(usage.prompt + more_in, usage.completion + more_out, usage.cached, usage.reasoning)
    assert cost_micro(price, grown).amount_micro >= cost_micro(price, usage).amount_micro


@given(prices, sound_usages(), sound_usages())
def test_two_calls_cost_their_sum_within_the_rounding(price: Price, a: Usage, b: Usage) -> None:
    both = Usage(a.prompt + b.prompt, a.completion + b.completion, a.cached + b.cached, a.reasoning + b.reasoning)
    apart = cost_micro(price, a).amount_micro + cost_micro(price, b).amount_micro
    assert 0 <= apart - cost_micro(price, both).amount_micro <= 1


@given(prices, counts, counts, counts, counts)
def test_more_cached_than_prompt_counts_as_all_cached(price: Price, p: int, c: int, over: int, over_r: int) -> None:
    clamped = cost_micro(price, Usage(p, c, cached=p + over, reasoning=c + over_r))
    assert clamped == cost_micro(price, Usage(p, c, cached=p, reasoning=c))


@given(prices, garbage, counts, counts)
def test_the_upper_bound_holds(price: Price, usage: Usage, more_in: int, more_out: int) -> None:
    bound = upper_bound_micro(price, max(0, usage.prompt) + more_in, max(0, usage.completion) + more_out)
    assert type(bound) is int
    assert cost_micro(price, usage).amount_micro <= bound
