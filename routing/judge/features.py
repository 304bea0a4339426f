"""Measured properties of a text: its shape, its marks, the small words it uses. Pure.

No single feature decides. Each is one number among some seventy that the classifier weighs together with the
encoder's reading, so a question is not sent to the cheapest tier for starting with "which".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from routing.judge.word_groups import WORD_GROUPS

MAX_CHARS = 2_000

_WORD = re.compile(r"[^\W\d_]+(?:['’\-][^\W\d_]+)*")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_SENTENCE_END = re.compile(r"[.!?。！？؟।]+(?=\s|$|[^\x00-\x7f])")

_MARKS: dict[str, re.Pattern[str]] = {
    "commas": re.compile(r"[,،、，]"),
    "colons": re.compile(r"[:：]"),
    "semicolons": re.compile(r"[;；؛]"),
    "dashes": re.compile(r"\s[-–—]\s|—"),
    "brackets": re.compile(r"[(\[（]"),
    "quotes": re.compile(r"[\"“”«»„「『`]"),
    "mathematics": re.compile(r"[=<>^+*/\\∑∫√≤≥≠≈∞∂∈∀∃×·→$±|]"),
    "code": re.compile(r"[{}_#;]|\(\)|->|::|==|&&|--\w"),
    "question_marks": re.compile(r"[?？؟]"),
    "lines": re.compile(r"\n"),
}

_SCRIPTS: dict[str, re.Pattern[str]] = {
    "accented": re.compile(r"[À-ÖØ-öø-ɏ]"),
    "arabic": re.compile(r"[\u0600-\u06ff]"),
    "devanagari": re.compile(r"[\u0900-\u097f]"),
    "han": re.compile(r"[\u3400-\u9fff]"),
    "kana": re.compile(r"[\u3040-\u30ff]"),
    "hangul": re.compile(r"[\uac00-\ud7af]"),
}

_SHAPE = (
    "log_chars",
    "log_words",
    "log_sentences",
    "words_per_sentence",
    "word_length",
    "longest_word",
    "long_words",
    "short_words",
    "distinct_words",
    "numbers",
    "digits",
    "capitals",
    "capitalised_words",
    "acronyms",
    "starts_lower",
    "ends_question",
    "ends_stop",
    "ends_open",
)

NAMES: tuple[str, ...] = (
    *_SHAPE,
    *(f"mark_{name}" for name in _MARKS),
    *(f"script_{name}" for name in _SCRIPTS),
    *(f"says_{name}" for name in WORD_GROUPS),
)


def extract(text: str) -> NDArray[np.float32]:
    """Return the features of `text`, in the order of `NAMES`. Reads at most `MAX_CHARS` characters: see `bounded`."""
    text = bounded(text, MAX_CHARS).strip()
    lower = text.lower()
    words = _WORD.findall(text)
    count = max(len(words), 1)
    size = max(len(text), 1)
    values = _shape(text, words)
    # A square root of a rate: the first mark or word of a kind tells more than the fifth.
    values += [math.sqrt(len(p.findall(text)) / count) for p in _MARKS.values()]
    # Plain ASCII, most of what is asked, holds none of the other scripts.
    scripts = () if text.isascii() else _SCRIPTS.values()
    values += [math.sqrt(len(p.findall(text)) / size) for p in scripts] or [0.0] * len(_SCRIPTS)
    values += [math.sqrt(len(p.findall(lower)) / count) for p in WORD_GROUPS.values()]
    return np.array(values, dtype=np.float32)


def bounded(text: str, limit: int) -> str:
    """Return `text`, or of a longer one its first two thirds of `limit` and its end: questions stand first or last."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return text[:head] + "\n" + text[len(text) - (limit - head - 1) :]


def _shape(text: str, words: list[str]) -> list[float]:
    count = max(len(words), 1)
    size = max(len(text), 1)
    lengths = [len(w) for w in words] or [0]
    numbers = _NUMBER.findall(text)
    sentences = max(len(_SENTENCE_END.findall(text)), 1)
    last = text[-1:]

    def share(test: Callable[[str], bool]) -> float:
        return sum(1 for w in words if test(w)) / count

    return [
        math.log1p(len(text)),
        math.log1p(len(words)),
        math.log(sentences),
        math.log1p(len(words) / sentences),
        sum(lengths) / count / 10,
        min(max(lengths), 30) / 10,
        share(lambda w: len(w) >= 9),
        share(lambda w: len(w) <= 3),
        len({w.lower() for w in words}) / count,
        math.log1p(len(numbers)),
        sum(c.isdigit() for c in text) / size,
        sum(c.isupper() for c in text) / size,
        share(lambda w: w[0].isupper()),
        share(lambda w: len(w) > 1 and w.isupper()),
        float(text[:1].islower()),
        float(last in "?？؟") if last else 0.0,
        float(last in ".!。।！") if last else 0.0,
        float(last.isalnum()),
    ]
