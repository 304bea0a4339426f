"""Token estimates for text that no tokenizer has counted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.tokens import estimate_tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("a", 1),
        ("four", 1),
        ("fiver", 2),
        ("Größe für Übermut", 5),
        ("你好世界", 4),
        ("こんにちは", 5),
        ("안녕", 2),
        ("你好abcd", 3),
        ("Привет", 3),
        ("🌍", 2),
        ("你好 🌍 é", 5),
    ],
)
def test_estimates(text: str, tokens: int) -> None:
    assert estimate_tokens(text) == tokens


@given(st.text(), st.text())
def test_grows_with_the_text_and_splitting_it_loses_nothing(a: str, b: str) -> None:
    whole = estimate_tokens(a + b)
    assert max(estimate_tokens(a), estimate_tokens(b)) <= whole <= estimate_tokens(a) + estimate_tokens(b)


@given(st.text(min_size=1))
def test_between_a_quarter_and_two_tokens_per_character(text: str) -> None:
    assert len(text) / 4 <= estimate_tokens(text) <= 2 * len(text)
