"""Counts and amounts that servers send are read exactly, or not at all."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_worker.stream_items import UsageItem, count, micro_dollars, read_usage


@pytest.mark.parametrize(
    ("dollars", "micro"),
    [
        (0, 0),
        (1, 1_000_000),
        (0.00014, 140),
        ("0.00014", 140),
        (Decimal("0.0000005"), 0),
        (Decimal("0.0000015"), 2),
        (Decimal("0.0000025"), 2),
        (Decimal("0.00000250001"), 3),
        (1e-9, 0),
        (0.1 + 0.2, 300_000),
        (-1, None),
        ("free", None),
        (None, None),
        (True, None),
        (float("nan"), None),
        (float("inf"), None),
        ("1e999999999", None),
        (10**30, None),
        ([], None),
    ],
)
def test_reported_cost_becomes_whole_micro_dollars_rounded_half_even(dollars: object, micro: int | None) -> None:
    assert micro_dollars(dollars) == micro


@given(st.integers(0, 10**15 - 1))
def test_every_whole_amount_survives(micro: int) -> None:
    assert micro_dollars(Decimal(micro) / 1_000_000) == micro
    assert micro_dollars(f"{micro // 1_000_000}.{micro % 1_000_000:06d}") == micro


@pytest.mark.parametrize("value", [None, -1, "7", True, [], 10**13, float("nan"), float("inf")])
def test_what_is_no_count_counts_as_zero(value: object) -> None:
    assert count(value) == 0


def test_details_and_cost_are_read() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 20.0,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 5},
        "cost": Decimal("0.00214"),
    }
    assert read_usage(usage, "gen-1") == UsageItem(10, 20, 4, 5, 2140, "gen-1")


def test_missing_or_odd_details_are_zero() -> None:
    usage = {"prompt_tokens": 1, "prompt_tokens_details": None, "completion_tokens_details": [], "cost": None}
    assert read_usage(usage, "") == UsageItem(prompt=1)
