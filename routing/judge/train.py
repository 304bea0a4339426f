"""Train the judge from routing/judge/data. Prints figures on kinds of text not seen, and writes the weights.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m routing.judge.train --safetensors model.safetensors

Needs requirements-train.txt, vocab.txt in `--out` (see convert.py), and queries.jsonl, conversations.jsonl and
followups.jsonl in `--data`. Writes encoder.onnx, classifier.npz, context.npz and calibration.json. Deterministic on one
machine; takes about a quarter of an hour on one core, most of it to fine-tune the encoder three times.
Held-out rows (`is_held_out`) and their near-duplicates train no encoder, reader or calibration; the tests judge them.
The context rule sets written follow-ups after them.
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
import onnx
from numpy.typing import NDArray

from routing.judge import convert, features, ngrams
from routing.judge.classifier import CLASSES, WEIGHTS, Classifier, Head, describe, softmax
from routing.judge.encoder import HEAD_PIECES, TAIL_PIECES, Encoder
from routing.judge.finetune import FineTuner, Recipe
from routing.judge.heldout import DATA, is_held_out, read_rows
from routing.judge.readers import Corpus, fit_logistic, fit_readers
from routing.judge.tokenizer import Tokenizer
from routing.judge.train_context import FOLDS as CONTEXT_FOLDS
from routing.judge.train_context import conversation_rows, fold_of, follow_up_rows, train_context

SEED = 7
# Kinds of text left out together. Halves, not single kinds: the encoder is fine-tuned once for each.
HALVES = ((1, 3), (2, 4, 5))
STACK_STRENGTH = 0.01
TUNED_SHARE = np.float32(0.5)
MESSAGE_WEIGHT = 0.2  # of a short message beside a question; at 1 they cost a point of accuracy on questions
LIKE = 0.5  # cosine of n-gram counts from which two rows count as near-duplicates

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


def labels(rows: Sequence[dict[str, Any]], key: str = "label") -> Ints:
    """Return the place of each row's label in `CLASSES`."""
    return np.array([CLASSES.index(row[key]) for row in rows])


def tune_encoder(out: Path, kept: Path, safetensors: Path, material: Material) -> list[Floats]:
    """Write encoder.onnx, fine-tuned on all rows; return the states of all texts by the encoders of `HALVES`.

    Fine-tuned layers found in `kept`, by recipe and data, are used again: the rest of the training can be repeated in minutes.
    """
    tensors = convert.read_safetensors(convert.checked(safetensors, convert.SOURCE_SHA256))
    tokenizer = Tokenizer((out / "vocab.txt").read_text(encoding="utf-8").splitlines())
    cut = [features.bounded(text, features.MAX_CHARS) for text in material.texts]
    tuner = FineTuner(tensors, [tokenizer.bounded_ids(text, HEAD_PIECES, TAIL_PIECES) for text in cut], Recipe())
    y, kinds = labels(material.queries), np.array([row["kind"] for row in material.queries])
    kept.mkdir(parents=True, exist_ok=True)
    made_from = repr((Recipe(), HALVES, [(row["text"], row["label"], row["kind"]) for row in material.queries]))
    key = hashlib.sha256(made_from.encode()).hexdigest()[:12]

    def tuned_on(name: str, rows: Ints) -> dict[str, Floats]:
        file = kept / f"{name}-{key}.npz"
        if not file.exists():
            np.savez(file, **tuner.train(rows, y[rows]))  # type: ignore[arg-type]
        with np.load(file, allow_pickle=False) as layers:
            return tensors | mixed(tensors, dict(layers))

    without = [material.kept[~np.isin(kinds[material.kept], half)] for half in HALVES]
    states = [tuner.states(tuned_on(f"without_half_{i}", rows)) for i, rows in enumerate(without)]
    onnx.save(convert.build(tuned_on("all", material.kept)), out / "encoder.onnx")
    return states


def mixed(published: dict[str, Floats], tuned: dict[str, Floats]) -> dict[str, Floats]:
    """Return layers halfway from the published to the tuned ones (Wortsman et al. 2022): better on unseen text."""
    return {name: published[name] + TUNED_SHARE * (value - published[name]) for name, value in tuned.items()}


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
        weight = np.concatenate([np.ones(len(rows)), np.full(len(messages), MESSAGE_WEIGHT)]).astype(np.float32)
        return fit_readers(both, np.concatenate([self.y[rows], self.messages_y[messages]]), weight)

    def score(self, head: Head, rows: Ints) -> Floats:
        """Return the nine scores of each of `rows`."""
        return np.array([head.scores(self.corpus.dense[i], self.corpus.counted[i]) for i in rows])


def cross_scores(by_split: Sequence[Rows], splits: Sequence[tuple[Ints, Ints]]) -> Floats:
    """Return out-of-fold scores. `by_split[i]` has the states of an encoder that did not learn from `splits[i][1]`."""
    scores = np.zeros((len(by_split[0].y), 9), dtype=np.float32)
    for rows, (train, test) in zip(by_split, splits, strict=True):
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


def temperature(probabilities: Floats, y: Ints) -> float:
    """Return by what the logarithms of `probabilities` should be divided to fit `y` best, at least 1."""
    logs = np.log(probabilities + 1e-9)
    tried = np.arange(1.0, 4.0, 0.05)
    loss = [-np.log(softmax(logs / np.float32(t))[np.arange(len(y)), y]).mean() for t in tried]
    return float(tried[int(np.argmin(loss))])


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

    `messages`: conversations' last messages and follow-ups, labelled as they would be without a conversation.
    """

    queries: Sequence[dict[str, Any]]
    conversations: Sequence[dict[str, Any]]
    follow_ups: Sequence[dict[str, Any]]
    kept: Ints
    tested: Ints

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
    return Material(queries, conversations, follow_ups, kept, np.flatnonzero(out))


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


def train_queries(out: Path, material: Material, dense: Floats, tuned: Sequence[Floats]) -> dict[str, Any]:
    """Fit the readers and the calibrated layer, write classifier.npz, return the figures.

    `tuned[i]`: states of all texts by an encoder that learned from no row of `HALVES[i]`.
    """
    rows = rows_of(material, dense)
    kinds = np.array([material.queries[i]["kind"] for i in material.kept])
    measured = dense[:, -len(features.NAMES) :]
    by_half = [rows_of(material, np.concatenate([states, measured], axis=1)) for states in tuned]
    names = sorted(set(kinds))
    splits = [(np.flatnonzero(kinds != k), np.flatnonzero(kinds == k)) for k in names]
    blind = [by_half[next(i for i, half in enumerate(HALVES) if k in half)] for k in names]
    scores = cross_scores(blind, splits)
    unseen = cross_stack(scores, rows.y, splits)
    arrays = rows.fit(np.arange(len(rows.y)), np.arange(len(rows.messages_y)))
    # Calibrated on kinds of text nothing here saw, and then for the worst of them: people's questions differ from our
    # rows at least as much.
    weights, bias = fit_logistic(scores, rows.y, strength=STACK_STRENGTH)
    heat = max(temperature(unseen[kinds == k], rows.y[kinds == k]) for k in names)
    arrays["stack.w"], arrays["stack.b"] = weights / heat, bias / heat
    head = save(out, arrays)
    y, tested = labels(material.queries), material.tested
    held = [head.probabilities(head.scores(dense[i], ngrams.count(material.texts[i]))) for i in tested]
    languages = np.array([material.queries[i]["lang"] for i in material.kept])
    right = unseen.argmax(1) == rows.y
    return {
        "rows": {"trained": len(rows.y), "held_out": len(tested), "messages": len(rows.messages_y)},
        "unseen_kinds_of_text": figures(unseen, rows.y),
        "unseen_kind": {int(k): figures(unseen[kinds == k], rows.y[kinds == k]) for k in names},
        "temperature": round(heat, 3),
        "held_out": figures(np.array(held), y[tested]),
        "unseen_kinds_by_language": {
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
    parser.add_argument("--safetensors", type=Path, required=True, help="the published all-MiniLM-L6-v2 weights")
    parser.add_argument("--tuned", type=Path, default=Path("build/judge"), help="where fine-tuned layers are kept")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument("--data", type=Path, default=DATA)
    args = parser.parse_args()
    report: dict[str, Any] = {"seed": SEED, "features": len(features.NAMES)}
    report["data_sha256"] = {
        name: hashlib.sha256((args.data / name).read_bytes()).hexdigest()
        for name in ("queries.jsonl", "conversations.jsonl", "followups.jsonl")
    }
    material = read_material(args.data)
    tuned = tune_encoder(args.out, args.tuned, args.safetensors, material)
    encoder = Encoder(args.out)
    dense = np.array([describe(encoder, text)[1] for text in material.texts])
    report["queries"] = train_queries(args.out, material, dense, tuned)
    report["conversations"] = train_conversations(args.out, material, dense)
    text = json.dumps(report, indent=2)
    (args.out / "calibration.json").write_text(text + "\n", encoding="utf-8")
    print(text)  # noqa: T201 - the command's output


if __name__ == "__main__":
    main()
