"""Amounts as people read them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.money import format_usd, format_usd_exact, usd_to_micro


@pytest.mark.parametrize(
    ("micro", "text"),
    [
        (0, "$0.0000"),
        (1, "<$0.0001"),
        (99, "<$0.0001"),
        (100, "$0.0001"),
        (4_151, "$0.0042"),
        (184_919, "$0.1849"),
        (999_949, "$0.9999"),
        (999_950, "$1.00"),
        (1_000_000, "$1.00"),
        (3_414_999, "$3.41"),
        (3_415_000, "$3.42"),
        (1_234_567_890_000, "$1,234,567.89"),
        (-1, "-<$0.0001"),
        (-2_500, "-$0.0025"),
        (-3_410_000, "-$3.41"),
    ],
)
def test_format(micro: int, text: str) -> None:
    assert format_usd(micro) == text


@pytest.mark.parametrize(
    ("micro", "text"),
    [(0, "$0.00"), (9_999, "$0.009999"), (20_000_000, "$20.00"), (1_234_500_000, "$1,234.50"), (-10, "-$0.00001")],
)
def test_format_exact(micro: int, text: str) -> None:
    assert format_usd_exact(micro) == text


@given(st.integers(-(10**15), 10**15))
def test_zero_is_the_only_amount_that_reads_as_zero(micro: int) -> None:
    reads_as_zero = not any(digit in format_usd(micro) for digit in "123456789")
    assert reads_as_zero == (micro == 0)


@given(st.integers(-(10**15), 10**15))
def test_the_exact_form_loses_nothing(micro: int) -> None:
    assert usd_to_micro(format_usd_exact(micro).replace("$", "").replace(",", "")) == micro


@pytest.mark.parametrize(
    ("usd", "micro"), [(20, 20_000_000), (0.1, 100_000), ("0.0000001", 1), (Decimal("3.41"), 3_410_000)]
)
def test_dollars_to_micro(usd: Decimal | str | float, micro: int) -> None:
    assert usd_to_micro(usd) == micro
