from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.judge import features, ngrams
from routing.judge.word_groups import WORD_GROUPS


def value(text: str, name: str) -> float:
    return float(features.extract(text)[features.NAMES.index(name)])


def test_names_are_unique_and_match_the_values():
    assert len(set(features.NAMES)) == len(features.NAMES) == len(features.extract("What is this?"))


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ("why", "Warum ist der Himmel blau?"),
        ("why", "为什么天空是蓝色的？"),
        ("why", "لماذا السماء زرقاء؟"),
        ("prove", "Show that the sum is even."),
        ("prove", "Démontrer que la suite converge."),
        ("how_many", "Quantos planetas existem?"),
        ("compute", "慣性モーメントを計算してください"),
        ("design", "Diseñar un experimento"),
    ],
)
def test_word_groups_speak_the_languages_of_the_data(group, text):
    assert value(text, f"says_{group}") > 0


def test_word_groups_match_whole_words():
    assert not WORD_GROUPS["which"].findall("whichever sandwiches")


@pytest.mark.parametrize(("text", "ends"), [("Really?", 1.0), ("本当ですか？", 1.0), ("Really.", 0.0), ("", 0.0)])
def test_question_mark_at_the_end(text, ends):
    assert value(text, "ends_question") == ends


def test_long_text_is_read_at_both_ends():
    text = "a" * 5_000 + "z" * 5_000
    cut = features.bounded(text, 100)
    assert len(cut) == 100
    assert cut[0] == "a"
    assert cut[-1] == "z"
    assert features.bounded("short", 100) == "short"


@given(st.text(alphabet=st.characters(), max_size=300))
def test_any_text_has_finite_features(text):
    assert np.isfinite(features.extract(text)).all()


@given(st.text(alphabet=st.characters(), max_size=300))
def test_ngram_buckets_stay_in_range(text):
    index, times = ngrams.count(text)
    assert len(index) == len(times)
    assert ((index >= 0) & (index < ngrams.BUCKETS)).all()
    assert (times >= 1).all()


def test_ngrams_do_not_depend_on_case_or_spacing():
    one, other = ngrams.count("Prove  IT"), ngrams.count("prove it")
    assert sorted(one[0]) == sorted(other[0])
