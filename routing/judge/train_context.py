"""Learn the context rule from conversations. Training only: needs scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold

from routing.judge.base import JudgeInput
from routing.judge.classifier import Classifier, softmax
from routing.judge.context import signals
from routing.judge.judge import ClassifierJudge
from routing.judge.readers import fit_logistic
from routing.types import Message

STRENGTH = 0.3
REPEATS = 5
FOLDS = 5

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


def question_of(turns: Sequence[dict[str, Any]]) -> JudgeInput:
    """Return the last of `turns` as a question with the others as its context."""
    return JudgeInput(turns[-1]["text"], tuple(Message(t["role"], t["text"]) for t in turns[:-1]))


def train_context(out: Path, rows: Sequence[dict[str, Any]], y: Ints, seed: int) -> dict[str, Any]:
    """Fit the rule, write context.npz, return accuracies: message alone, joined, and the rule cross-validated."""
    judge, classifier = ClassifierJudge(out), Classifier(out)
    values, alone, joined = [], [], []
    for row in rows:
        question = question_of(row["turns"])
        thread = judge.thread(question, classifier.read(question.text))
        values.append(signals(question.text, question.context, thread))
        alone.append(thread.alone.probabilities)
        joined.append(thread.joined.probabilities)
    x = np.array(values)
    crossed = np.mean([_cross(x, y, seed + r) for r in range(REPEATS)], axis=0)
    np.savez(out / "context.npz", **_fit(x, y))  # type: ignore[arg-type]
    kinds = np.array([row["kind"] for row in rows])
    right = crossed.argmax(axis=1) == y
    return {
        "rows": len(rows),
        "message_alone": round(float((np.array(alone).argmax(axis=1) == y).mean()), 4),
        "joined_text": round(float((np.array(joined).argmax(axis=1) == y).mean()), 4),
        "rule_cross_validated": round(float(right.mean()), 4),
        "rule_by_kind": {str(k): round(float(right[kinds == k].mean()), 2) for k in sorted(set(kinds))},
    }


def _fit(x: Floats, y: Ints) -> dict[str, Floats]:
    mean, scale = x.mean(axis=0), x.std(axis=0) + np.float32(1e-6)
    weights, bias = fit_logistic((x - mean) / scale, y, STRENGTH)
    return {"mean": mean, "scale": scale, "w": weights, "b": bias}


def _cross(x: Floats, y: Ints, seed: int) -> Floats:
    found = np.zeros((len(y), 3), dtype=np.float32)
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(x, y):
        rule = _fit(x[train], y[train])
        found[test] = softmax((x[test] - rule["mean"]) / rule["scale"] @ rule["w"] + rule["b"])
    return found
