"""How a message in a conversation is judged: with what it answers. Pure.

"why?", "yes, do it" and "und auf Deutsch?" say little alone. Combined are: the message alone, the message joined to
what it answers, the hardest earlier question, and what the message does: lean on the rest, close, reshape, stand alone.
The weights are learned from conversations (train.py); the rule is one small linear layer, so it can be explained.
An earlier hard question counts in full at once and fades over the turns: fast up, slow down.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from routing.judge import features, ngrams
from routing.judge.classifier import Reading, softmax
from routing.types import Message

LOOK_BACK = 3  # user turns before the last one
FADE = 0.8  # a turn further back counts this much less
QUESTION_CHARS = 300
ANSWER_CHARS = 200

Floats = NDArray[np.float32]

# What a message does in a conversation, told by its words. Signals among others: none of them decides.
_CLOSES = re.compile(
    r"\b(?:thanks|thank you|thx|cheers|perfect|great|got it|clear now|bye|danke|merci|gracias|grazie|obrigad[oa])\b"
    r"|谢谢|ありがとう|감사|고마|شكر|धन्यवाद"
)
_RESHAPES = re.compile(
    r"\b(?:shorter|longer|shorten|bullets?|bullet points|table|format|rewrite|rephrase|translate|summari[sz]e|tl;?dr"
    r"|(?:in|auf|en|em) (?:english|german|deutsch|englisch|spanish|french|français|español|one sentence|two lines)"
    r"|sentences?|words|plain|simpler|latex|markdown|json|csv|kürzer|tabelle|plus court|más corto|più breve)\b"
    r"|翻译|表格|简短|短く|表に|짧게|번역|ترجم|अनुवाद"
)
_CORRECTS = re.compile(
    r"\b(?:wrong|incorrect|mistake|doesn't|does not|didn't|not what i|i meant|no,|but|actually|still|again)\b"
)

ACTS = ("leans", "closes", "reshapes", "stands")  # leans on what was said; stands: a question that needs no thread

SIGNALS = (
    *(f"{what}_{name}" for what in ("alone", "joined", "before") for name in ("low", "high")),
    *ACTS,
    *(f"leans_{what}_{name}" for what in ("before", "joined") for name in ("low", "high")),
    *(f"stands_alone_{name}" for name in ("low", "high")),
    "log_words",
    "longer_than_before",
    "like_question",
    "asks",
    "answer_asks",
    "earlier_turns",
    "says_this",
    "says_contrast",
    "says_explain",
    "starts_lower",
    "closes_by_words",
    "reshapes_by_words",
    "corrects",
)


@dataclass(frozen=True)
class Thread:
    """The readings the rule combines. `before`: earlier user turns, latest first; `acts` in the order of `ACTS`."""

    alone: Reading
    joined: Reading
    before: Sequence[Reading]
    acts: Floats


def earlier_questions(context: Sequence[Message]) -> list[str]:
    """Return the user's last turn before this one and the longest of the `LOOK_BACK` before that.

    Two readings bound the work; a hard question is seldom the shorter one, and "why?" after it does not hide it.
    """
    asked = [m.text for m in reversed(context) if m.role == "user" and m.text.strip()]
    further = asked[1 : 1 + LOOK_BACK]
    return [*asked[:1], *([max(further, key=len)] if further else [])]


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
    readings = (thread.alone.probabilities, thread.joined.probabilities, hardest(thread.before))
    alone, joined, before = ([_relative(p, 0), _relative(p, 2)] for p in readings)
    leans, stands = float(thread.acts[0]), float(thread.acts[3])
    values = [*alone, *joined, *before, *(float(p) for p in thread.acts)]
    values += [leans * value for value in (*before, *joined)]
    values += [stands * value for value in alone]
    values += [
        float(shape["log_words"]),
        math.log1p(len(text)) - math.log1p(len(questions[0]) if questions else 0),
        _likeness(thread.alone, thread.before[0] if thread.before else None),
        float(shape["ends_question"]),
        float(answer.rstrip()[-1:] in ("?", "？", "؟")),
        float(len(questions)),
        float(shape["says_this"]),
        float(shape["says_contrast"]),
        float(shape["says_explain"]),
        float(shape["starts_lower"]),
    ]
    start = features.bounded(text, features.MAX_CHARS).lower()
    values += [float(bool(act.search(start))) for act in (_CLOSES, _RESHAPES, _CORRECTS)]
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
        self._acts = {
            name: np.asarray(value, dtype=np.float32) for name, value in arrays.items() if name.startswith("act.")
        }

    def acts(self, text: str, alone: Reading) -> Floats:
        """Return how likely `text`, whose reading is `alone`, does each of `ACTS`."""
        a = self._acts
        index, times = ngrams.count(text)
        weighted = times / np.float32(max(float(np.linalg.norm(times)), 1e-9))
        by_letters = softmax(np.asarray(weighted @ a["act.letters.w"][index] + a["act.letters.b"], dtype=np.float32))
        by_states = softmax(np.asarray(act_input(alone) @ a["act.states.w"] + a["act.states.b"], dtype=np.float32))
        return np.asarray((by_letters + by_states) / 2, dtype=np.float32)

    def probabilities(self, values: Floats) -> Floats:
        """Return the calibrated probabilities of the message in its conversation."""
        scores = (values - self._mean) / self._scale @ self._w + self._b
        return softmax(np.asarray(scores, dtype=np.float32))


def act_input(alone: Reading) -> Floats:
    """Return what the reader of acts sees of a message: direction of the encoder's states, and bounded features."""
    length = max(float(np.linalg.norm(alone.states)), 1e-9)
    return np.concatenate([alone.states / length * 10, np.clip(alone.standing, -4, 4)]).astype(np.float32)


def _relative(p: Floats, at: int) -> float:
    """Return how much likelier class `at` is than MEDIUM, as a logarithm bounded by 5."""
    return float(np.clip(np.log((p[at] + 1e-6) / (p[1] + 1e-6)), -5, 5))


def _likeness(one: Reading, other: Reading | None) -> float:
    if other is None:
        return 0.0
    a, b = one.states, other.states
    return float(a @ b / max(float(np.linalg.norm(a) * np.linalg.norm(b)), 1e-9))
