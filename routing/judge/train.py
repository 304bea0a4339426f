"""Train the judge from routing/judge/data. Deterministic; prints cross-validated figures and writes the weights.

    python -m routing.judge.train --out routing/judge/weights

Needs requirements-train.txt, encoder.onnx and vocab.txt in `--out` (see convert.py), queries.jsonl and
conversations.jsonl in `--data`. Writes classifier.npz, context.npz and calibration.json.
Held-out rows (`is_held_out`) and their near-duplicates are in no fold and no weight; the tests judge them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

from routing.judge import features, ngrams
from routing.judge.classifier import CLASSES, WEIGHTS, Head, describe, softmax
from routing.judge.encoder import Encoder
from routing.judge.heldout import DATA, is_held_out, read_rows
from routing.judge.readers import Corpus, fit_logistic, fit_readers
from routing.judge.train_context import train_context

SEED = 7
FOLDS = 5
STACK_STRENGTH = 0.01
LIKE = 0.5  # cosine of n-gram counts from which two rows count as near-duplicates

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


def labels(rows: Sequence[dict[str, Any]], key: str = "label") -> Ints:
    """Return the place of each row's label in `CLASSES`."""
    return np.array([CLASSES.index(row[key]) for row in rows])


def corpus_of(encoder: Encoder, texts: Sequence[str]) -> Corpus:
    """Return everything the readers need of `texts`."""
    dense = np.array([describe(encoder, text)[1] for text in texts])
    return Corpus(dense, [ngrams.count(text) for text in texts])


def near_duplicates(corpus: Corpus) -> Ints:
    """Return a group number per row: rows linked by a chain of near-duplicates share one."""
    matrix = corpus.sparse(np.ones(ngrams.BUCKETS, dtype=np.float32))
    likeness = (matrix @ matrix.T).tocoo()
    group = np.arange(len(corpus))
    for one, other, value in zip(likeness.row, likeness.col, likeness.data, strict=True):
        if one < other and value > LIKE and group[one] != group[other]:
            group[group == group[other]] = group[one]
    return group


@dataclass(frozen=True)
class Crossed:
    """Scores that every row got from readers that never saw it or anything like it."""

    scores: Floats
    probabilities: Floats


def cross_validate(corpus: Corpus, y: Ints, splits: Sequence[tuple[Ints, Ints]]) -> Crossed:
    """Return out-of-fold scores; the calibrated layer, too, is fitted on other folds than it is applied to."""
    scores = np.zeros((len(y), 9), dtype=np.float32)
    for train, test in splits:
        head = Head(fit_readers(corpus.take(train), y[train]))
        for row in test:
            scores[row] = head.scores(corpus.dense[row], corpus.counted[row])
    probabilities = np.zeros((len(y), 3), dtype=np.float32)
    for train, test in splits:
        weights, bias = fit_logistic(scores[train], y[train], strength=STACK_STRENGTH)
        probabilities[test] = softmax(scores[test] @ weights + bias)
    return Crossed(scores, probabilities)


def calibration_error(probabilities: Floats, y: Ints, bins: int = 10) -> float:
    """Return the expected calibration error (Guo et al. 2017) over `bins` equal bins of confidence."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == y
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [abs(right[place == b].mean() - confidence[place == b].mean()) * (place == b).mean() for b in set(place)]
    return float(sum(gaps))


def figures(probabilities: Floats, y: Ints) -> dict[str, float]:
    """Return accuracy, recalls and calibration error."""
    found = probabilities.argmax(axis=1)
    result = {"accuracy": float((found == y).mean())}
    for place, name in enumerate(CLASSES):
        result[f"recall_{name.lower()}"] = float((found[y == place] == place).mean())
    result["ece"] = calibration_error(probabilities, y)
    return {name: round(value, 4) for name, value in result.items()}


def train_queries(out: Path, data: Path) -> dict[str, Any]:
    """Fit the readers and the calibrated layer, write classifier.npz, return the figures."""
    encoder = Encoder(out)
    rows = read_rows(data / "queries.jsonl")
    corpus = corpus_of(encoder, [row["text"] for row in rows])
    groups = near_duplicates(corpus)
    held = {int(g) for g, row in zip(groups, rows, strict=True) if is_held_out(row["text"])}
    kept = np.array([i for i, g in enumerate(groups) if int(g) not in held])
    tested = np.array([i for i, row in enumerate(rows) if is_held_out(row["text"])])
    y = labels(rows)
    mine, mine_y = corpus.take(kept), y[kept]
    kinds = np.array([row["kind"] for row in rows])[kept]
    languages = np.array([row["lang"] for row in rows])[kept]
    shuffled = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=SEED).split(mine.dense, mine_y, groups[kept])
    crossed = cross_validate(mine, mine_y, list(shuffled))
    by_kind = [(np.flatnonzero(kinds != k), np.flatnonzero(kinds == k)) for k in sorted(set(kinds))]
    unseen = cross_validate(mine, mine_y, by_kind)
    arrays = fit_readers(mine, mine_y)
    # Calibrated on kinds of text the readers did not see: people's questions differ from our rows at least as much.
    arrays["stack.w"], arrays["stack.b"] = fit_logistic(unseen.scores, mine_y, strength=STACK_STRENGTH)
    small = {
        n: a.astype(np.float16) if n.split(".")[-1] in ("vectors", "axes", "w", "idf") else a for n, a in arrays.items()
    }
    np.savez_compressed(out / "classifier.npz", **small)  # type: ignore[arg-type]
    head = Head(small)
    held_p = np.array([head.probabilities(head.scores(corpus.dense[i], corpus.counted[i])) for i in tested])
    by_language = {
        str(name): round(float((crossed.probabilities.argmax(1) == mine_y)[languages == name].mean()), 3)
        for name in sorted(set(languages))
    }
    return {
        "rows": {"trained": len(kept), "held_out": len(tested)},
        "cross_validated": figures(crossed.probabilities, mine_y),
        "unseen_kind_of_text": figures(unseen.probabilities, mine_y),
        "held_out": figures(held_p, y[tested]),
        "accuracy_by_language": by_language,
        "support_vectors": len(arrays["svm.vectors"]),
    }


def main() -> None:
    """Train, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--data", type=Path, default=DATA)
    args = parser.parse_args()
    report: dict[str, Any] = {"seed": SEED, "features": len(features.NAMES)}
    report["data_sha256"] = {
        name: hashlib.sha256((args.data / name).read_bytes()).hexdigest()
        for name in ("queries.jsonl", "conversations.jsonl")
    }
    report["queries"] = train_queries(args.out, args.data)
    rows = read_rows(args.data / "conversations.jsonl")
    report["conversations"] = train_context(args.out, rows, labels(rows), SEED)
    text = json.dumps(report, indent=2)
    (args.out / "calibration.json").write_text(text + "\n", encoding="utf-8")
    print(text)  # noqa: T201 - the command's output


if __name__ == "__main__":
    main()
