from __future__ import annotations

import numpy as np
import pytest

from routing.judge import JudgeInput, context, default_judge
from routing.judge.heldout import DATA, read_rows
from routing.judge.judge import KeptReadings
from routing.types import Complexity, Message

HARD = "Prove or refute that every finitely generated residually finite torsion group of bounded exponent is finite."
HARD_ANSWER = (
    "A proof goes through Zelmanov's solution of the restricted Burnside problem. Shall I work out the details?"
)
EASY = "What is the capital of Peru?"


def judged(text, *turns):
    roles = ("user", "assistant") * len(turns)
    before = tuple(Message(role, turn) for role, turn in zip(roles, turns, strict=False))
    return default_judge().judge(JudgeInput(text, before))


def p_high(text, *turns):
    return judged(text, *turns).probabilities[Complexity.HIGH]


LEANING = ["why?", "yes, do it", "continue", "und auf Deutsch?"]
DESIGN = "Design a replication scheme for our three data centres that stays available in a partition, and weigh it."
HARD_THREADS = [(HARD, HARD_ANSWER), (DESIGN, "There are two candidates, each with a cost. Shall I go into both?")]
EASY_THREADS = [(EASY, "Lima."), ("How many legs does a spider have?", "Eight.")]


@pytest.mark.parametrize("thread", HARD_THREADS, ids=["proof", "design"])
@pytest.mark.parametrize("text", LEANING)
def test_what_leans_on_a_hard_thread_stays_hard(text, thread):
    assert judged(text, *thread).complexity is Complexity.HIGH


@pytest.mark.parametrize("easy", EASY_THREADS, ids=["capital", "spider"])
@pytest.mark.parametrize("text", LEANING)
def test_the_same_words_are_easier_after_an_easy_answer(text, easy):
    after_easy = judged(text, *easy)
    assert after_easy.complexity is not Complexity.HIGH
    for hard in HARD_THREADS:
        assert p_high(text, *hard) > after_easy.probabilities[Complexity.HIGH] + 0.2


@pytest.mark.parametrize("text", ["why?", "yes, do it", "thanks", "continue", "ok"])
def test_short_messages_without_a_conversation_are_not_hard(text):
    assert judged(text).complexity is Complexity.LOW


@pytest.mark.parametrize("thread", [*HARD_THREADS, *EASY_THREADS])
@pytest.mark.parametrize("text", ["thanks!", "ok great, that helps", "danke dir"])
def test_thanks_are_low_whatever_was_asked(text, thread):
    assert judged(text, *thread).complexity is Complexity.LOW


@pytest.mark.parametrize("text", ["as a table please", "shorter please", "in one sentence"])
def test_another_format_is_low_after_a_fact_and_never_hard(text):
    for thread in EASY_THREADS:
        assert judged(text, *thread).complexity is Complexity.LOW
    for thread in HARD_THREADS:
        assert judged(text, *thread).complexity is not Complexity.HIGH


@pytest.mark.parametrize("thread", HARD_THREADS, ids=["proof", "design"])
@pytest.mark.parametrize("text", ["Other topic: what is the capital of Norway?", "which year was it published?"])
def test_a_fact_after_a_hard_thread_may_go_low(text, thread):
    assert judged(text, *thread).complexity is Complexity.LOW


def test_slow_down_a_hard_question_still_counts_after_a_short_step():
    turns = (HARD, HARD_ANSWER, "yes, do it", "The first lemma is done; the second is left.")
    assert judged("continue", *turns).complexity is Complexity.HIGH


def test_fast_up_a_hard_question_after_an_easy_one():
    assert judged(HARD, EASY, "Lima.").complexity is Complexity.HIGH


def test_the_hardest_earlier_turn_fades():
    def reading(high):
        p = np.array([1 - high, 0, high], dtype=np.float32)
        return context.Reading(p, p, p, p)

    easy, hard = reading(0.1), reading(0.9)
    assert context.hardest([easy, hard])[2] == pytest.approx(0.9)
    assert context.hardest([reading(0.8), reading(0.9)])[2] == pytest.approx(0.8)
    assert context.hardest([]).sum() == pytest.approx(1)


def test_only_the_last_turns_are_read_and_each_is_cut():
    turns = [Message("user", f"question {i}") for i in range(9)]
    assert context.earlier_questions(turns) == ["question 8", "question 7"]
    assert context.earlier_questions([Message("user", "x" * n) for n in (9, 2, 3, 2, 1)]) == ["x", "xxx"]
    joined = context.join("why?", [Message("user", "q" * 9_000), Message("assistant", "a" * 9_000)])
    assert len(joined) <= context.QUESTION_CHARS + context.ANSWER_CHARS + len("why?") + 2
    assert joined.endswith("\nwhy?")


def test_a_system_message_alone_is_no_conversation():
    with_system = default_judge().judge(JudgeInput(EASY, (Message("system", "Be brief."),)))
    assert with_system.probabilities == default_judge().judge(JudgeInput(EASY)).probabilities


def test_conversations_are_judged_better_with_the_rule_than_alone():
    rows = read_rows(DATA / "conversations.jsonl")
    alone = [default_judge().judge(JudgeInput(row["turns"][-1]["text"])).complexity == row["label"] for row in rows]
    with_context = [
        judged(row["turns"][-1]["text"], *(t["text"] for t in row["turns"][:-1])).complexity == row["label"]
        for row in rows
    ]
    assert np.mean(with_context) > np.mean(alone) + 0.1


def test_the_reason_says_that_the_conversation_counted():
    assert judged("why?", EASY, "Lima.").reason.startswith("With the conversation before it: ")


def test_a_reading_is_kept_by_hash_and_the_oldest_goes_first():
    read = []
    nothing = np.zeros(3, dtype=np.float32)

    def reader(text):
        read.append(text)
        return context.Reading(nothing, nothing, nothing, nothing)

    kept = KeptReadings(reader, size=2)
    for text in ("a", "b", "a", "c", "a", "b", "\ud800"):
        kept.read(text)
    assert read == ["a", "b", "c", "b", "\ud800"]
    assert len(kept) == 2
    assert not any(text in vars(kept)["_kept"] for text in (*read, *(t.encode("utf-8", "surrogatepass") for t in read)))
