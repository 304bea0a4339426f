"""What a call costs. Pure: no I/O, no Django, and integers only.

    tokens x (micro-dollars per million tokens) = pico-dollars, exact in Python's integers

The parts of a call are added in pico-dollars; the sum is rounded up to a whole micro-dollar once, at the end.
Cached tokens are part of the prompt, reasoning tokens part of the completion: each token is billed once, at one rate.
Nothing here is ever a float: one raises `TypeError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from routing.types import Price, Usage

TOKENS_PER_PRICE = 1_000_000
# A thousand million dollars: more than this for one call is a broken report.
MOST_MICRO = 10**15


class CostSource(StrEnum):
    """Where an amount comes from."""

    PROVIDER = "provider"  # the provider said what it charged
    PRICE_TABLE = "price_table"  # counted tokens times our price table
    ESTIMATE = "estimate"  # estimated tokens, or a whole reservation
    FREE = "free"  # the tier costs nothing
    NONE = "none"  # the row carries no cost of its own


@dataclass(frozen=True)
class PricedCost:
    amount_micro: int
    source: CostSource


def upper_bound_micro(price: Price, prompt_tokens: int, max_output_tokens: int) -> int:
    """Return the most a call can cost: no prompt token cached at a lower rate, and every output token used."""
    in_rate, out_rate, cached_rate, reasoning_rate = _rates(price)
    pico = _count(prompt_tokens) * max(in_rate, cached_rate) + _count(max_output_tokens) * max(out_rate, reasoning_rate)
    return _micro(pico)


def cost_micro(price: Price, usage: Usage) -> PricedCost:
    """Return what a call cost: the provider's own word first, else the price table.

    Counts that cannot be (negative, more cached than prompt, more reasoning than completion) are clamped.
    Raises `ValueError` for a negative price or an absurd sum and `TypeError` for anything but whole numbers.
    """
    if usage.cost_micro is not None and _whole(usage.cost_micro) >= 0 and not (price.is_free and usage.cost_micro == 0):
        return PricedCost(_plausible(usage.cost_micro), CostSource.PROVIDER)
    if price.is_free:
        return PricedCost(0, CostSource.FREE)
    source = CostSource.ESTIMATE if usage.estimated else CostSource.PRICE_TABLE
    return PricedCost(_from_table(price, usage), source)


def _from_table(price: Price, usage: Usage) -> int:
    in_rate, out_rate, cached_rate, reasoning_rate = _rates(price)
    prompt, completion = _count(usage.prompt), _count(usage.completion)
    cached = min(_count(usage.cached), prompt)
    reasoning = min(_count(usage.reasoning), completion)
    return _micro(
        (prompt - cached) * in_rate
        + cached * cached_rate
        + (completion - reasoning) * out_rate
        + reasoning * reasoning_rate
    )


def _rates(price: Price) -> tuple[int, int, int, int]:
    """Return (input, output, cached, reasoning) in micro-dollars per million tokens."""
    cached = price.input if price.cached is None else price.cached
    reasoning = price.output if price.reasoning is None else price.reasoning
    rates = (_whole(price.input), _whole(price.output), _whole(cached), _whole(reasoning))
    if min(rates) < 0:
        raise ValueError(f"A price is negative: {price}.")
    return rates


def _micro(pico: int) -> int:
    return _plausible(-(-pico // TOKENS_PER_PRICE))


def _plausible(amount_micro: int) -> int:
    if amount_micro > MOST_MICRO:
        raise ValueError(f"One call cannot cost {amount_micro} micro-dollars.")
    return amount_micro


def _count(tokens: int) -> int:
    return max(0, _whole(tokens))


def _whole(value: int) -> int:
    if not isinstance(value, int):
        raise TypeError(f"Money and tokens are whole numbers, not {type(value).__name__}.")
    return value
