"""Encoder, features and n-grams to three calibrated probabilities. Weights are plain arrays; nothing is unpickled.

Three readers look at a text: a support vector machine and a linear model over encoder states and features, and a
linear model over n-grams. A small calibrated layer weighs their nine scores. docs/judge.md has the measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from routing.judge import features, ngrams
from routing.judge.encoder import Encoder
from routing.types import Complexity

CLASSES = (Complexity.LOW, Complexity.MEDIUM, Complexity.HIGH)
WEIGHTS = Path(__file__).parent / "weights"

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Reading:
    """What one text looks like. `probabilities` in the order of `CLASSES`; `states`: the encoder's, for likeness.

    `pull` is (features, 3): how far each measured feature, against the average text, moves the linear scores;
    `standing` is where the feature stands, in standard deviations above the average text.
    """

    probabilities: Floats
    states: Floats
    pull: Floats
    standing: Floats


class Head:
    """The classifier's arithmetic over arrays that train.py made."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._a = {name: np.asarray(value, dtype=np.float32) for name, value in arrays.items()}
        self._axes = np.ascontiguousarray(self._a["svm.axes"].T)
        self._vectors_squared = np.einsum("ij,ij->i", self._a["svm.vectors"], self._a["svm.vectors"])

    @property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        return self._a

    def scores(self, dense: Floats, counted: tuple[NDArray[np.int64], Floats]) -> Floats:
        """Return the nine scores of a text: machine (3 pairs), linear (3 classes), n-grams (3 classes)."""
        a = self._a
        z = (dense - a["mean"]) / a["scale"]
        return np.concatenate([self._machine(z), z @ a["linear.w"] + a["linear.b"], self._ngrams(counted)])

    def probabilities(self, scores: Floats) -> Floats:
        """Return the calibrated probabilities for `scores`."""
        return softmax(scores @ self._a["stack.w"] + self._a["stack.b"])

    def pull(self, dense: Floats) -> tuple[Floats, Floats]:
        """Return what each measured feature adds to the linear scores, (features, 3), and where it stands."""
        size = len(features.NAMES)
        standing: Floats = ((dense - self._a["mean"]) / self._a["scale"])[-size:]
        weights = self._a["linear.w"][-size:]
        return standing[:, None] * (weights - weights.mean(axis=1, keepdims=True)), standing

    def _machine(self, z: Floats) -> Floats:
        a = self._a
        size = len(features.NAMES)
        states = self._axes @ (z[:-size] - a["svm.mean"])
        point = np.concatenate([states, z[-size:] * a["svm.feature_gain"]])
        distances = self._vectors_squared - 2 * (a["svm.vectors"] @ point) + point @ point
        kernel = np.exp(-a["svm.gamma"] * np.maximum(distances, 0))
        return np.asarray(kernel @ a["svm.duals"] + a["svm.b"], dtype=np.float32)

    def _ngrams(self, counted: tuple[NDArray[np.int64], Floats]) -> Floats:
        a = self._a
        index, times = counted
        weighted: Floats = times * a["ngram.idf"][index]
        weighted /= np.float32(max(float(np.linalg.norm(weighted)), 1e-9))
        return np.asarray(weighted @ a["ngram.w"][index] + a["ngram.b"], dtype=np.float32)


class Classifier:
    """The trained classifier in `folder`; weights are read once, on first use. Thread safe."""

    def __init__(self, folder: Path = WEIGHTS, encoder: Encoder | None = None, head: Head | None = None) -> None:
        self._folder = folder
        self._given = (encoder, head)

    @cached_property
    def encoder(self) -> Encoder:
        return self._given[0] or Encoder(self._folder)

    @cached_property
    def head(self) -> Head:
        if self._given[1]:
            return self._given[1]
        with np.load(self._folder / "classifier.npz", allow_pickle=False) as stored:
            return Head(dict(stored))

    def read(self, text: str) -> Reading:
        """Return the reading of `text`. Work is bounded: a long text is read at its beginning and its end."""
        states, dense = describe(self.encoder, text)
        probabilities = self.head.probabilities(self.head.scores(dense, ngrams.count(text)))
        return Reading(probabilities, states, *self.head.pull(dense))


def describe(encoder: Encoder, text: str) -> tuple[Floats, Floats]:
    """Return the encoder's states of `text`, and states and features joined. Reads `features.MAX_CHARS` characters."""
    text = features.bounded(text, features.MAX_CHARS)
    states = encoder.encode(encoder.pieces(text))
    return states, np.concatenate([states, features.extract(text)])


def softmax(scores: Floats) -> Floats:
    """Return `scores` along the last axis as probabilities."""
    grown = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: Floats = grown / grown.sum(axis=-1, keepdims=True)
    return shares
