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
from routing.judge.classifier import CLASSES, WEIGHTS, Classifier, Head, describe, softmax
from routing.judge.encoder import Encoder
from routing.judge.heldout import DATA, is_held_out, read_rows
from routing.judge.readers import Corpus, fit_logistic, fit_readers
from routing.judge.train_context import FOLDS as CONTEXT_FOLDS
from routing.judge.train_context import conversation_rows, fold_of, follow_up_rows, train_context

SEED = 7
FOLDS = 5
STACK_STRENGTH = 0.01
LIKE = 0.5  # cosine of n-gram counts from which two rows count as near-duplicates

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


def labels(rows: Sequence[dict[str, Any]], key: str = "label") -> Ints:
    """Return the place of each row's label in `CLASSES`."""
    return np.array([CLASSES.index(row[key]) for row in rows])


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
class Rows:
    """The questions training may see, and the short messages beside them that only the readers of a text see."""

    corpus: Corpus
    y: Ints
    messages: Corpus
    messages_y: Ints

    def fit(self, rows: Ints, messages: Ints) -> dict[str, NDArray[Any]]:
        """Return readers fitted on these `rows` and `messages`."""
        both = self.corpus.take(rows).joined(self.messages.take(messages))
        return fit_readers(both, np.concatenate([self.y[rows], self.messages_y[messages]]))

    def score(self, head: Head, rows: Ints) -> Floats:
        """Return the nine scores of each of `rows`."""
        return np.array([head.scores(self.corpus.dense[i], self.corpus.counted[i]) for i in rows])


def cross_scores(rows: Rows, splits: Sequence[tuple[Ints, Ints]]) -> Floats:
    """Return out-of-fold scores."""
    scores = np.zeros((len(rows.y), 9), dtype=np.float32)
    for train, test in splits:
        scores[test] = rows.score(Head(rows.fit(train, np.arange(len(rows.messages_y)))), test)
    return scores


def cross_stack(scores: Floats, y: Ints, splits: Sequence[tuple[Ints, Ints]]) -> Floats:
    """Return probabilities of a calibrated layer that is fitted on other folds than it is applied to."""
    probabilities = np.zeros((len(y), 3), dtype=np.float32)
    for train, test in splits:
        weights, bias = fit_logistic(scores[train], y[train], strength=STACK_STRENGTH)
        probabilities[test] = softmax(scores[test] @ weights + bias)
    return probabilities


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


@dataclass(frozen=True)
class Material:
    """Everything read from `data`. `kept`: rows of `queries` that training sees; `tested`: those that only tests see.

    `groups`: a number per query, shared by near-duplicates. `messages`: conversations' last messages and follow-ups,
    labelled as they would be without a conversation.
    """

    queries: Sequence[dict[str, Any]]
    conversations: Sequence[dict[str, Any]]
    follow_ups: Sequence[dict[str, Any]]
    kept: Ints
    tested: Ints
    groups: Ints

    @property
    def messages(self) -> list[str]:
        return [row["turns"][-1]["text"] for row in self.conversations] + [row["text"] for row in self.follow_ups]

    @property
    def messages_y(self) -> Ints:
        alone = [CLASSES.index(row["label_alone"]) for row in self.conversations]
        return np.array(alone + [0] * len(self.follow_ups))

    @property
    def texts(self) -> list[str]:
        return [row["text"] for row in self.queries] + self.messages


def read_material(data: Path) -> Material:
    """Return the rows in `data`, near-duplicates of held-out rows in neither `kept` nor `tested`."""
    queries = read_rows(data / "queries.jsonl")
    texts = [row["text"] for row in queries]
    groups = near_duplicates(Corpus(np.zeros((len(texts), 1), np.float32), [ngrams.count(text) for text in texts]))
    out = np.array([is_held_out(text) for text in texts])
    kept = np.flatnonzero(~np.isin(groups, groups[out]))
    conversations, follow_ups = (read_rows(data / f"{name}.jsonl") for name in ("conversations", "followups"))
    return Material(queries, conversations, follow_ups, kept, np.flatnonzero(out), groups)


def rows_of(material: Material, dense: Floats) -> Rows:
    """Return the rows training may see; `dense` is of all of `material.texts`."""
    counted = [ngrams.count(text) for text in material.texts]
    size = len(material.queries)
    return Rows(
        Corpus(dense[:size], counted[:size]).take(material.kept),
        labels(material.queries)[material.kept],
        Corpus(dense[size:], counted[size:]),
        material.messages_y,
    )


def train_queries(out: Path, material: Material, dense: Floats) -> dict[str, Any]:
    """Fit the readers and the calibrated layer, write classifier.npz, return the figures."""
    rows = rows_of(material, dense)
    kinds, languages = (np.array([material.queries[i][key] for i in material.kept]) for key in ("kind", "lang"))
    shuffled = StratifiedGroupKFold(FOLDS, shuffle=True, random_state=SEED)
    at_random = list(shuffled.split(rows.corpus.dense, rows.y, material.groups[material.kept]))
    crossed = cross_stack(cross_scores(rows, at_random), rows.y, at_random)
    by_kind = [(np.flatnonzero(kinds != k), np.flatnonzero(kinds == k)) for k in sorted(set(kinds))]
    scores = cross_scores(rows, by_kind)
    unseen = cross_stack(scores, rows.y, by_kind)
    arrays = rows.fit(np.arange(len(rows.y)), np.arange(len(rows.messages_y)))
    # Calibrated on kinds of text the readers did not see: people's questions differ from our rows at least as much.
    arrays["stack.w"], arrays["stack.b"] = fit_logistic(scores, rows.y, strength=STACK_STRENGTH)
    head = save(out, arrays)
    y, tested = labels(material.queries), material.tested
    held = [head.probabilities(head.scores(dense[i], ngrams.count(material.texts[i]))) for i in tested]
    right = crossed.argmax(1) == rows.y
    return {
        "rows": {"trained": len(rows.y), "held_out": len(tested), "messages": len(rows.messages_y)},
        "cross_validated": figures(crossed, rows.y),
        "unseen_kind_of_text": figures(unseen, rows.y),
        "held_out": figures(np.array(held), y[tested]),
        "accuracy_by_language": {
            str(name): round(float(right[languages == name].mean()), 3) for name in sorted(set(languages))
        },
        "support_vectors": len(arrays["svm.vectors"]),
    }


def save(out: Path, arrays: dict[str, NDArray[Any]]) -> Head:
    """Write classifier.npz, its large arrays at half precision, and return the head it makes."""
    half = ("vectors", "axes", "w", "idf")
    small = {n: a.astype(np.float16) if n.split(".")[-1] in half else a for n, a in arrays.items()}
    np.savez_compressed(out / "classifier.npz", **small)  # type: ignore[arg-type]
    return Head(small)


def train_conversations(out: Path, material: Material, dense: Floats) -> dict[str, Any]:
    """Fit the context rule; every fold's messages are read by readers that did not learn from them."""
    classifier = Classifier(out)
    encoder, stored = classifier.encoder, classifier.head.arrays
    rows = rows_of(material, dense)
    folds = np.array([fold_of(text) for text in material.messages])
    everything = np.arange(len(rows.y))
    readers = []
    for fold in range(CONTEXT_FOLDS):
        arrays = rows.fit(everything, np.flatnonzero(folds != fold))
        stack = {name: stored[name] for name in ("stack.w", "stack.b")}
        readers.append(Classifier(out, encoder, Head(arrays | stack)).read)
    earlier = [material.queries[i] for i in material.tested]
    written = conversation_rows(material.conversations)
    return train_context(out, written + follow_up_rows(material.follow_ups, earlier, SEED), readers)


def main() -> None:
    """Train, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--data", type=Path, default=DATA)
    args = parser.parse_args()
    report: dict[str, Any] = {"seed": SEED, "features": len(features.NAMES)}
    report["data_sha256"] = {
        name: hashlib.sha256((args.data / name).read_bytes()).hexdigest()
        for name in ("queries.jsonl", "conversations.jsonl", "followups.jsonl")
    }
    material = read_material(args.data)
    encoder = Encoder(args.out)
    dense = np.array([describe(encoder, text)[1] for text in material.texts])
    report["queries"] = train_queries(args.out, material, dense)
    report["conversations"] = train_conversations(args.out, material, dense)
    text = json.dumps(report, indent=2)
    (args.out / "calibration.json").write_text(text + "\n", encoding="utf-8")
    print(text)  # noqa: T201 - the command's output


if __name__ == "__main__":
    main()
