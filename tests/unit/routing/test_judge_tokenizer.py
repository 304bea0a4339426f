"""The tokeniser against ids from the reference implementation (the `tokenizers` package, same vocabulary)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.judge.classifier import WEIGHTS
from routing.judge.tokenizer import Tokenizer

VECTORS = json.loads((Path(__file__).parent / "tokenizer_vectors.json").read_text(encoding="utf-8"))
TOKENIZER = Tokenizer((WEIGHTS / "vocab.txt").read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("vector", VECTORS, ids=[ascii(v["text"][:20]) for v in VECTORS])
def test_ids_equal_the_reference(vector):
    assert TOKENIZER.bounded_ids(vector["text"], 10_000, 0) == vector["ids"]


def test_long_text_keeps_its_beginning_and_its_end():
    words = [f"w{i}" for i in range(500)]
    whole = TOKENIZER.ids(" ".join(words))
    assert TOKENIZER.bounded_ids(" ".join(words), 5, 3) == [TOKENIZER.start, *whole[:5], *whole[-3:], TOKENIZER.end]


@given(st.text(alphabet=st.characters(), max_size=200))
def test_any_text_has_ids_within_the_vocabulary(text):
    assert all(0 <= i < 30_522 for i in TOKENIZER.ids(text))
