from __future__ import annotations

import numpy as np
import pytest

from routing.judge import JudgeInput, context, default_judge
from routing.judge.heldout import DATA, read_rows
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


def test_approval_is_judged_with_what_it_approves():
    assert p_high("yes, do it", HARD, HARD_ANSWER) > p_high("yes, do it") + 0.1
    assert p_high("yes, do it", HARD, HARD_ANSWER) > p_high("yes, do it", EASY, "Lima. Shall I write it down?") + 0.1


def test_why_weighs_more_after_a_hard_answer_than_after_an_easy_one():
    assert p_high("why?", HARD, HARD_ANSWER) > p_high("why?", EASY, "Lima.")


def test_fast_up_a_hard_question_after_an_easy_one():
    assert judged(HARD, EASY, "Lima.").complexity is Complexity.HIGH


def test_thanks_after_an_easy_question_is_low():
    assert judged("thanks!", EASY, "Lima.").complexity is Complexity.LOW


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
    assert context.earlier_questions(turns) == ["question 8", "question 7", "question 6"]
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
