"""How a message in a conversation is judged: with what it answers. Pure.

"why?", "yes, do it" and "und auf Deutsch?" say little alone. Four readings are combined: the message alone, the
message joined to what it answers, the hardest earlier question, and how much the message leans on the rest.
The weights are learned from conversations (train.py); the rule is one small linear layer, so it can be explained.
An earlier hard question counts in full at once and fades over the turns: fast up, slow down.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from routing.judge import features
from routing.judge.classifier import Reading, softmax
from routing.types import Message

LOOK_BACK = 3  # earlier user turns
FADE = 0.8  # a turn further back counts this much less
QUESTION_CHARS = 300
ANSWER_CHARS = 200

Floats = NDArray[np.float32]

SIGNALS = (
    *(f"{what}_{name}" for what in ("alone", "joined", "before") for name in ("low", "high")),
    "log_words",
    "longer_than_before",
    "like_question",
    "like_answer",
    "asks",
    "answer_asks",
    "earlier_turns",
    "says_this",
    "says_contrast",
    "says_explain",
    "starts_lower",
)


@dataclass(frozen=True)
class Thread:
    """The readings the rule combines. `before`: earlier user turns, latest first; `answer`: the last reply, if any."""

    alone: Reading
    joined: Reading
    before: Sequence[Reading]
    answer: Reading | None


def earlier_questions(context: Sequence[Message]) -> list[str]:
    """Return the user's last turns before this one, latest first."""
    asked = [m.text for m in reversed(context) if m.role == "user" and m.text.strip()]
    return asked[:LOOK_BACK]


def last_answer(context: Sequence[Message]) -> str:
    """Return what the assistant said last, or nothing."""
    return next((m.text for m in reversed(context) if m.role == "assistant" and m.text.strip()), "")


def join(text: str, context: Sequence[Message]) -> str:
    """Return `text` after the question it follows and the end of the answer it replies to, each cut short."""
    parts = [features.bounded(q, QUESTION_CHARS) for q in earlier_questions(context)[:1]]
    parts.append(last_answer(context)[-ANSWER_CHARS:])
    return "\n".join([*(p for p in parts if p), text])


def signals(text: str, context: Sequence[Message], thread: Thread) -> Floats:
    """Return the numbers in the order of `SIGNALS`."""
    shape = dict(zip(features.NAMES, features.extract(text), strict=True))
    answer = last_answer(context)
    questions = earlier_questions(context)
    before = hardest(thread.before)
    values: list[float] = []
    for p in (thread.alone.probabilities, thread.joined.probabilities, before):
        values += [_relative(p, 0), _relative(p, 2)]
    values += [
        float(shape["log_words"]),
        math.log1p(len(text)) - math.log1p(len(questions[0]) if questions else 0),
        _likeness(thread.alone, thread.before[0] if thread.before else None),
        _likeness(thread.alone, thread.answer),
        float(shape["ends_question"]),
        float(answer.rstrip()[-1:] in ("?", "？", "؟")),
        float(len(questions)),
        float(shape["says_this"]),
        float(shape["says_contrast"]),
        float(shape["says_explain"]),
        float(shape["starts_lower"]),
    ]
    return np.array(values, dtype=np.float32)


def hardest(before: Sequence[Reading]) -> Floats:
    """Return the probabilities of the earlier turn with the largest, faded P(HIGH); even ones when there is none."""
    if not before:
        return np.full(3, 1 / 3, dtype=np.float32)
    return max(enumerate(before), key=lambda item: float(item[1].probabilities[2]) * FADE ** item[0])[1].probabilities


class ContextRule:
    """The learned layer over `SIGNALS`."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._mean, self._scale, self._w, self._b = (
            np.asarray(arrays[name], dtype=np.float32) for name in ("mean", "scale", "w", "b")
        )

    def probabilities(self, values: Floats) -> Floats:
        """Return the calibrated probabilities of the message in its conversation."""
        scores = (values - self._mean) / self._scale @ self._w + self._b
        return softmax(np.asarray(scores, dtype=np.float32))


def _relative(p: Floats, at: int) -> float:
    """Return how much likelier class `at` is than MEDIUM, as a logarithm bounded by 5."""
    return float(np.clip(np.log((p[at] + 1e-6) / (p[1] + 1e-6)), -5, 5))


def _likeness(one: Reading, other: Reading | None) -> float:
    if other is None:
        return 0.0
    a, b = one.states, other.states
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-9))
