"""Fit the judge's three readers. Training only: needs scikit-learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from sklearn.svm import SVC

from routing.judge import features, ngrams

# Chosen by cross-validation on our own rows, with each kind of text left out in turn; docs/judge.md has the table.
SVM_C = 3.0
SVM_AXES = 200
SVM_FEATURE_GAIN = 2.0
LINEAR_STRENGTH = 0.003
NGRAM_STRENGTH = 10.0

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Corpus:
    """Texts as the readers see them: `dense` (rows, states + features) and n-gram counts."""

    dense: Floats
    counted: Sequence[tuple[Ints, Floats]]

    def __len__(self) -> int:
        return len(self.counted)

    def take(self, rows: Ints) -> Corpus:
        """Return the corpus of `rows`."""
        return Corpus(self.dense[rows], [self.counted[i] for i in rows])

    def joined(self, other: Corpus) -> Corpus:
        """Return this corpus followed by `other`."""
        return Corpus(np.concatenate([self.dense, other.dense]), [*self.counted, *other.counted])

    def sparse(self, idf: Floats) -> Any:
        """Return the n-gram counts, weighted by `idf`, rows of length 1."""
        ends = np.cumsum([0, *(len(index) for index, _ in self.counted)])
        index = np.concatenate([index for index, _ in self.counted])
        times = np.concatenate([times for _, times in self.counted])
        return normalize(csr_matrix((times * idf[index], index, ends), shape=(len(self), ngrams.BUCKETS)))


def fit_logistic(x: Any, y: Ints, strength: float, weight: Floats | None = None) -> tuple[Floats, Floats]:
    """Return weights (inputs, 3) and bias of a multinomial logistic regression; small `strength` shrinks more."""
    model = LogisticRegression(C=strength, max_iter=400).fit(x, y, sample_weight=weight)
    return model.coef_.T.astype(np.float32), model.intercept_.astype(np.float32)


def fit_readers(corpus: Corpus, y: Ints, weight: Floats) -> dict[str, NDArray[Any]]:
    """Return the arrays of `Head`, but for its calibrated layer. `weight`: how much each row counts."""
    mean = np.average(corpus.dense, axis=0, weights=weight)
    spread = np.sqrt(np.average((corpus.dense - mean) ** 2, axis=0, weights=weight))
    arrays: dict[str, NDArray[Any]] = {"mean": mean.astype(np.float32), "scale": spread.astype(np.float32) + 1e-6}
    z = (corpus.dense - arrays["mean"]) / arrays["scale"]
    arrays["linear.w"], arrays["linear.b"] = fit_logistic(z, y, LINEAR_STRENGTH, weight)
    seen = np.bincount(np.concatenate([index for index, _ in corpus.counted]), minlength=ngrams.BUCKETS)
    arrays["ngram.idf"] = (np.log((1 + len(corpus)) / (1 + seen)) + 1).astype(np.float32)
    arrays["ngram.w"], arrays["ngram.b"] = fit_logistic(corpus.sparse(arrays["ngram.idf"]), y, NGRAM_STRENGTH, weight)
    return arrays | _fit_machine(z, y, weight)


def _fit_machine(z: Floats, y: Ints, weight: Floats) -> dict[str, NDArray[Any]]:
    size = len(features.NAMES)
    axes = PCA(SVM_AXES, svd_solver="covariance_eigh").fit(z[:, :-size])
    points = np.concatenate([axes.transform(z[:, :-size]), z[:, -size:] * SVM_FEATURE_GAIN], axis=1)
    gamma = 1 / float((points**2).sum(axis=1).mean())
    machine = SVC(C=SVM_C, gamma=gamma, cache_size=500).fit(points, y, sample_weight=weight)
    return {
        "svm.mean": axes.mean_.astype(np.float32),
        "svm.axes": axes.components_.T.astype(np.float32),
        "svm.feature_gain": np.array(SVM_FEATURE_GAIN, np.float32),
        "svm.vectors": machine.support_vectors_.astype(np.float32),
        "svm.gamma": np.array(gamma, np.float32),
        "svm.duals": _pair_weights(machine),
        "svm.b": machine.intercept_.astype(np.float32),
    }


def _pair_weights(machine: SVC) -> Floats:
    """Return one column of weights per pair of classes (libsvm's order: 0-1, 0-2, 1-2)."""
    starts = np.cumsum([0, *machine.n_support_])
    pairs = [(0, 1), (0, 2), (1, 2)]
    weights = np.zeros((len(machine.support_vectors_), len(pairs)), dtype=np.float32)
    for column, (one, other) in enumerate(pairs):
        of_one, of_other = slice(starts[one], starts[one + 1]), slice(starts[other], starts[other + 1])
        weights[of_one, column] = machine.dual_coef_[other - 1, of_one]
        weights[of_other, column] = machine.dual_coef_[one, of_other]
    return weights
