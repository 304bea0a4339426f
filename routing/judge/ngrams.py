"""Hashed character n-grams: which letter sequences a text holds, in any script and without a vocabulary. Pure."""

from __future__ import annotations

import zlib
from collections import Counter
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from routing.judge.features import bounded

BUCKETS = 1 << 15
SIZES = (3, 4)
MAX_CHARS = 600


def count(text: str) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the buckets `text` falls into and 1 + log of how often, for at most `MAX_CHARS` characters.

    Words are padded with a space on both sides; n-grams do not cross words.
    """
    buckets: Counter[int] = Counter()
    for word in bounded(text, MAX_CHARS).lower().split():
        buckets.update(_buckets(word))
    index = np.fromiter(buckets.keys(), dtype=np.int64, count=len(buckets))
    times_seen = np.fromiter(buckets.values(), dtype=np.float32, count=len(buckets))
    return index, (1 + np.log(times_seen)).astype(np.float32)


@lru_cache(maxsize=8192)
def _buckets(word: str) -> tuple[int, ...]:
    padded = f" {word} "
    grams = (padded[i : i + size] for size in SIZES for i in range(max(len(padded) - size + 1, 1)))
    # "surrogatepass": a lone surrogate is an odd character, not an error.
    return tuple(zlib.crc32(gram.encode("utf-8", "surrogatepass")) % BUCKETS for gram in grams)
