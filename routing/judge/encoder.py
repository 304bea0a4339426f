"""A small sentence encoder (BERT architecture) in numpy: piece ids to mean-pooled hidden states. No I/O.

Weights are stored as signed bytes with one scale per output column. Layer matrices are widened to float32 once;
the embedding table, half of all weights, stays in bytes and only the rows of a question are widened.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
HEADS = 12
NORM_EPSILON = 1e-12


class Encoder:
    """The first layers of the encoder. `encode` is thread safe."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]], pooled: Sequence[int]) -> None:
        """Take `arrays` as `convert.py` writes them; `pooled` names the layers, from 0 (embeddings), to pool."""
        self.pooled = tuple(pooled)
        self._words = arrays["words.q"]
        self._word_scale = arrays["words.s"].astype(np.float32)
        self._positions = arrays["positions"].astype(np.float32)
        self._embedding_norm = arrays["embedding_norm"].astype(np.float32)
        self._layers = [_layer(arrays, i) for i in range(max(self.pooled))]
        self.width = self._positions.shape[1]

    def encode(self, ids: Sequence[int]) -> Floats:
        """Return the means over all pieces of the pooled layers, joined: shape (layers x width,)."""
        index = np.asarray(ids, dtype=np.int64)
        x = self._words[index].astype(np.float32) * self._word_scale[index, None]
        x = _norm(x + self._positions[: len(index)], self._embedding_norm)
        pooled = [x.mean(axis=0)] if 0 in self.pooled else []
        for number, layer in enumerate(self._layers, start=1):
            x = _forward(x, layer)
            if number in self.pooled:
                pooled.append(x.mean(axis=0))
        return np.concatenate(pooled)


def _layer(arrays: Mapping[str, NDArray[Any]], number: int) -> dict[str, Floats]:
    layer: dict[str, Floats] = {}
    for name in ("qkv", "out", "up", "down"):
        scale = arrays[f"{number}.{name}.s"].astype(np.float32)
        layer[name] = np.ascontiguousarray(arrays[f"{number}.{name}.q"].astype(np.float32) * scale)
        layer[f"{name}.b"] = arrays[f"{number}.{name}.b"].astype(np.float32)
    for name in ("norm1", "norm2"):
        layer[name] = arrays[f"{number}.{name}"].astype(np.float32)
    return layer


def _forward(x: Floats, layer: Mapping[str, Floats]) -> Floats:
    count, width = x.shape
    depth = width // HEADS
    qkv = (x @ layer["qkv"] + layer["qkv.b"]).reshape(count, 3, HEADS, depth).transpose(1, 2, 0, 3)
    scores = qkv[0] @ qkv[1].transpose(0, 2, 1)
    scores *= np.float32(1 / math.sqrt(depth))
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    mixed = (scores @ qkv[2]).transpose(1, 0, 2).reshape(count, width)
    x = _norm(x + mixed @ layer["out"] + layer["out.b"], layer["norm1"])
    wide = _gelu(x @ layer["up"] + layer["up.b"])
    return _norm(x + wide @ layer["down"] + layer["down.b"], layer["norm2"])


def _gelu(x: Floats) -> Floats:
    """Return GELU in its tanh form; the classifier is trained on the same form."""
    inner = x * x
    inner *= np.float32(0.044715)
    inner += 1
    inner *= x
    inner *= np.float32(math.sqrt(2 / math.pi))
    np.tanh(inner, out=inner)
    inner += 1
    inner *= x
    inner *= np.float32(0.5)
    return inner


def _norm(x: Floats, weights: Floats) -> Floats:
    """Return layer-normalised `x`; `weights` is (2, width): gain and bias."""
    x = x - x.mean(axis=-1, keepdims=True)
    variance = np.einsum("ij,ij->i", x, x)[:, None] / np.float32(x.shape[1])
    x /= np.sqrt(variance + np.float32(NORM_EPSILON))
    x *= weights[0]
    x += weights[1]
    return x
