"""Learn the context rule from conversations and from short follow-ups. Training only: needs scikit-learn.

A follow-up (data/followups.jsonl) is set after held-out questions of every class, which no reader was trained on.
Whatever a row's signals rest on was fitted without that row: readers, acts and rule all run over the same folds.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from routing.judge import context, ngrams
from routing.judge.base import JudgeInput
from routing.judge.classifier import CLASSES, Reading, softmax
from routing.judge.readers import fit_logistic
from routing.types import Message

STRENGTH = 0.1
ACT_STATES_STRENGTH = 0.1
ACT_LETTERS_STRENGTH = 3.0
FOLDS = 5
FOLLOW_UP_WEIGHT = 0.15
# What the last message of each kind of conversation does; the other kinds are mixed.
ACT_OF_KIND = {
    "thanks_or_closing": "closes",
    "formatting_request": "reshapes",
    "clarifying_fact": "stands",
    "topic_switch_down": "stands",
    "topic_switch_up": "stands",
    "approval": "leans",
    "followup_why": "leans",
    "continuation_of_hard": "leans",
}
ANSWERS = (
    "Here is a first answer, in short. Shall I go on?",
    "It comes down to one point, and I can say more if you like.",
    "Yes. The usual way works here, with one exception that I left out.",
    "I would do it in three steps and have written out the first.",
    "That is right, as far as it goes.",
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
Read = Callable[[str], Reading]


@dataclass(frozen=True)
class Row:
    """A message in a conversation. `act`: its place in `ACTS`, or -1; `weight`: in the fit of the rule."""

    question: JudgeInput
    label: int
    act: int
    weight: float
    kind: str

    @property
    def fold(self) -> int:
        """Return the fold of all rows with this message."""
        return fold_of(self.question.text)


def fold_of(text: str) -> int:
    """Return the fold of a message, by its words: equal messages are never on both sides of a split."""
    return zlib.crc32(" ".join(text.lower().split()).strip("!?. ").encode()) % FOLDS


def conversation_rows(stored: Sequence[dict[str, Any]]) -> list[Row]:
    """Return the written conversations."""
    rows = []
    for row in stored:
        before = tuple(Message(t["role"], t["text"]) for t in row["turns"][:-1])
        act = context.ACTS.index(ACT_OF_KIND[row["kind"]]) if row["kind"] in ACT_OF_KIND else -1
        question = JudgeInput(row["turns"][-1]["text"], before)
        rows.append(Row(question, CLASSES.index(row["label"]), act, 1.0, row["kind"]))
    return rows


def follow_up_rows(stored: Sequence[dict[str, Any]], earlier: Sequence[dict[str, Any]], seed: int) -> list[Row]:
    """Return each follow-up after one question of each class out of `earlier`."""
    random = np.random.default_rng(seed)
    by_class = [[q["text"] for q in earlier if q["label"] == name] for name in CLASSES]
    rows = []
    for row in stored:
        for tier, asked in enumerate(by_class):
            before = (
                Message("user", asked[random.integers(len(asked))]),
                Message("assistant", ANSWERS[random.integers(len(ANSWERS))]),
            )
            label = tier if row["act"] == "leans" else 0  # what leans has the thread's class, all else is LOW
            question = JudgeInput(row["text"], before)
            rows.append(Row(question, label, context.ACTS.index(row["act"]), FOLLOW_UP_WEIGHT, "follow_up"))
    return rows


def train_context(out: Path, rows: Sequence[Row], readers: Sequence[Read]) -> dict[str, Any]:
    """Fit the rule, write context.npz, return accuracies. `readers[fold]` was fitted without that fold's messages."""
    threads = [_thread(row, readers[row.fold]) for row in rows]
    y, folds = np.array([row.label for row in rows]), np.array([row.fold for row in rows])
    weight = np.array([row.weight for row in rows], dtype=np.float32)
    x = np.zeros((len(rows), len(context.SIGNALS)), dtype=np.float32)
    for fold in range(FOLDS):
        seen = [i for i in range(len(rows)) if folds[i] != fold]
        acts = context.ContextRule(_fit_acts([rows[i] for i in seen], [threads[i].alone for i in seen]) | _NO_RULE)
        for i in map(int, np.flatnonzero(folds == fold)):
            text, before = rows[i].question.text, rows[i].question.context
            thread = context.Thread(
                threads[i].alone, threads[i].joined, threads[i].before, acts.acts(text, threads[i].alone)
            )
            x[i] = context.signals(text, before, thread)
    crossed = np.zeros((len(rows), 3), dtype=np.float32)
    for fold in range(FOLDS):
        rule = _fit_rule(x[folds != fold], y[folds != fold], weight[folds != fold])
        crossed[folds == fold] = _apply(rule, x[folds == fold])
    arrays = _fit_acts(rows, [t.alone for t in threads]) | _fit_rule(x, y, weight)
    half = {n: a.astype(np.float16) if n.endswith(".w") else a for n, a in arrays.items()}
    np.savez_compressed(out / "context.npz", **half)  # type: ignore[arg-type]
    return _figures(rows, threads, crossed, y)


def _figures(rows: Sequence[Row], threads: Sequence[context.Thread], crossed: Floats, y: Ints) -> dict[str, Any]:
    kinds = np.array([row.kind for row in rows])
    written = kinds != "follow_up"
    right = crossed.argmax(axis=1) == y
    alone = np.array([t.alone.probabilities for t in threads]).argmax(axis=1) == y
    joined = np.array([t.joined.probabilities for t in threads]).argmax(axis=1) == y
    return {
        "rows": int(written.sum()),
        "message_alone": round(float(alone[written].mean()), 4),
        "joined_text": round(float(joined[written].mean()), 4),
        "rule_cross_validated": round(float(right[written].mean()), 4),
        "rule_by_kind": {str(k): round(float(right[kinds == k].mean()), 2) for k in sorted(set(kinds))},
    }


def _thread(row: Row, read: Read) -> context.Thread:
    text, before = row.question.text, row.question.context
    return context.Thread(
        alone=read(text),
        joined=read(context.join(text, before)),
        before=[read(q) for q in context.earlier_questions(before)],
        acts=np.zeros(len(context.ACTS), dtype=np.float32),
    )


_NO_RULE: dict[str, Floats] = {name: np.zeros(1, dtype=np.float32) for name in ("mean", "scale", "w", "b")}


def _fit_acts(rows: Sequence[Row], alone: Sequence[Reading]) -> dict[str, NDArray[Any]]:
    """Return the arrays of the reader of acts; equal messages count once."""
    once = {row.question.text: i for i, row in enumerate(rows) if row.act >= 0}
    at = list(once.values())
    acts = np.array([rows[i].act for i in at])
    counted = [ngrams.count(rows[i].question.text) for i in at]
    ends = np.cumsum([0, *(len(index) for index, _ in counted)])
    values = np.concatenate([times / np.linalg.norm(times) for _, times in counted])
    letters = csr_matrix(
        (values, np.concatenate([index for index, _ in counted]), ends), shape=(len(at), ngrams.BUCKETS)
    )
    states = np.array([context.act_input(alone[i]) for i in at])
    arrays: dict[str, NDArray[Any]] = {}
    for name, x, strength in (
        ("states", states, ACT_STATES_STRENGTH),
        ("letters", letters, ACT_LETTERS_STRENGTH),
    ):
        arrays[f"act.{name}.w"], arrays[f"act.{name}.b"] = fit_logistic(x, acts, strength)
    return arrays


def _fit_rule(x: Floats, y: Ints, weight: Floats) -> dict[str, NDArray[Any]]:
    mean, scale = x.mean(axis=0), x.std(axis=0) + np.float32(1e-6)
    model = LogisticRegression(C=STRENGTH, max_iter=1000).fit((x - mean) / scale, y, sample_weight=weight)
    weights, bias = model.coef_.T.astype(np.float32), model.intercept_.astype(np.float32)
    return {"mean": mean, "scale": scale, "w": weights, "b": bias}


def _apply(rule: dict[str, NDArray[Any]], x: Floats) -> Floats:
    return softmax(np.asarray((x - rule["mean"]) / rule["scale"] @ rule["w"] + rule["b"], dtype=np.float32))
