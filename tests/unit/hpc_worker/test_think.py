"""Thinking is told from the answer, and text is made storable, however the deltas are cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_worker.think import TextCleaner, ThinkSplitter


def split(*deltas: str, starts: bool = False, complete: bool = True) -> tuple[str, str]:
    splitter = ThinkSplitter(starts)
    pieces = [piece for delta in deltas for piece in splitter.push(delta)] + splitter.flush(complete)
    assert all(text for _, text in pieces)
    return "".join(t for thought, t in pieces if thought), "".join(t for thought, t in pieces if not thought)


@pytest.mark.parametrize(
    ("text", "starts", "thought", "answer"),
    [
        ("plain answer", False, "", "plain answer"),
        ("<think>why</think>because", False, "why", "because"),
        ("\n <think>\nwhy\n\n</think>\n\n  because\n", False, "why", "  because\n"),
        ("<think></think>\n\nbecause", False, "", "because"),
        ("<think>a</think>\n<think>b</think>\nc", False, "ab", "c"),
        ("why</think>\nbecause", True, "why", "because"),
        ("<think>why</think>because", True, "why", "because"),
        ("</think>because", True, "", "because"),
        ("  \n ", False, "", "  \n "),
        ("    indented\n\n\tcode", False, "", "    indented\n\n\tcode"),
        ("<thin air>", False, "", "<thin air>"),
        ("<think", False, "", "<think"),
        ("", False, "", ""),
        ("", True, "", ""),
    ],
)
def test_thinking_is_folded_away_and_the_answer_is_clean(text: str, starts: bool, thought: str, answer: str) -> None:
    for cut in range(len(text) + 1):
        assert split(text[:cut], text[cut:], starts=starts) == (thought, answer)
    assert split(*text, starts=starts) == (thought, answer)


def test_a_tag_in_the_middle_of_an_answer_is_text() -> None:
    text = "Write `<think>` first and `</think>` last."
    assert split(text) == ("", text)


def test_an_unclosed_block_still_shows_its_text() -> None:
    assert split("<think>all ", "of it") == ("all of it", "all of it")


def test_a_model_wrongly_taken_to_start_in_reasoning_still_shows_its_answer() -> None:
    assert split("the ", "answer", starts=True) == ("the answer", "the answer")


def test_a_block_cut_by_a_broken_stream_is_not_taken_for_an_answer() -> None:
    assert split("<think>half a thou", complete=False) == ("half a thou", "")


def test_a_closing_tag_after_shown_text_moves_nothing_and_is_counted_once() -> None:
    splitter = ThinkSplitter()
    shown = [splitter.push(delta) for delta in ("why", "</thi", "nk>", "because")]
    assert shown == [[(False, "why")], [(False, "</thi")], [(False, "nk>")], [(False, "because")]]
    assert splitter.stray_closings == 1


def test_text_is_not_held_back_once_the_answer_has_begun() -> None:
    splitter = ThinkSplitter()
    assert splitter.push("a") == [(False, "a")]
    assert splitter.push("<") == [(False, "<")]


def test_thinking_is_not_held_back_unless_the_closing_tag_may_follow() -> None:
    splitter = ThinkSplitter()
    assert splitter.push("<think>step one <") == [(True, "step one ")]
    assert splitter.push("b") == [(True, "<b")]


PIECES = st.lists(st.sampled_from(["<think>", "</think>", "\n", " ", "<", "</", "think>", "a", "é🌍", "\r\n", ">"]))


@given(PIECES, st.lists(st.integers(0, 60)), st.booleans(), st.booleans())
def test_however_deltas_are_cut_thought_and_answer_are_the_same(
    pieces: list[str], cuts: list[int], starts: bool, complete: bool
) -> None:
    text = "".join(pieces)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    deltas = [text[a:b] for a, b in itertools.pairwise(places)]
    assert split(*deltas, starts=starts, complete=complete) == split(text, starts=starts, complete=complete)


@given(PIECES, st.booleans())
def test_nothing_but_tags_and_line_breaks_is_ever_lost(pieces: list[str], starts: bool) -> None:
    text = "".join(pieces)
    thought, answer = split(text, starts=starts, complete=False)
    kept = [c for c in thought + answer if c not in "\r\n <>/think"]
    assert kept == [c for c in text if c not in "\r\n <>/think"]


@given(st.text(alphabet=st.characters(exclude_characters="<"), min_size=1))
def test_text_without_tags_is_passed_on_exactly(text: str) -> None:
    assert split(*text) == ("", text)


# ── cleaning ──────────────────────────────────────────────────────────────


def clean(*deltas: str) -> str:
    cleaner = TextCleaner()
    return "".join(cleaner.push(delta) for delta in deltas) + cleaner.flush()


@pytest.mark.parametrize(
    ("deltas", "text"),
    [
        (["a\0b"], "a\ufffdb"),
        (["\ud83d"], "\ufffd"),
        (["\ude00x"], "\ufffdx"),
        (["\ud83d\ude00"], "😀"),
        (["x\ud83d", "\ude00y"], "x😀y"),
        (["\ud83d", "", "\ude00"], "😀"),
        (["\ud83d", "a"], "\ufffda"),
        (["\ud83d", "\ud83d\ude00"], "\ufffd😀"),
        (["\ude00", "\ud83d"], "\ufffd\ufffd"),
        (["\r\n\t é 🌍"], "\r\n\t é 🌍"),
    ],
)
def test_what_a_database_cannot_store_is_replaced_and_cut_pairs_are_joined(deltas: list[str], text: str) -> None:
    assert clean(*deltas) == text


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=()))))
def test_cleaned_text_can_always_be_encoded(deltas: list[str]) -> None:
    text = clean(*deltas)
    assert "\0" not in text
    assert text.encode("utf-8").decode("utf-8") == clean("".join(deltas))
