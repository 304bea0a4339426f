"""Estimate tokens without a tokenizer: to bill an answer that was cut off, and to fit text into a window. Pure."""

from __future__ import annotations

import re

# Characters per token of the common byte-pair vocabularies, by script, on the careful side.
_NOT_LATIN = re.compile(r"[^\u0000-\u024f]+")
_WIDE = re.compile(r"[\u1100-\u11ff\u2e80-\ua4cf\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef]+")
_ASTRAL = re.compile(r"[\U00010000-\U0010ffff]+")


def estimate_tokens(text: str) -> int:
    """Return about how many tokens `text` is, rounded up.

    Latin letters, digits and punctuation count 1/4 token, Chinese, Japanese and Korean characters 1, emoji and
    other characters above U+FFFF 2, and every other script (Greek, Cyrillic, Arabic, mathematics ...) 1/2.
    """
    if text.isascii():
        return -(-len(text) // 4)
    other = "".join(_NOT_LATIN.findall(text))
    astral = sum(map(len, _ASTRAL.findall(other)))
    wide = sum(map(len, _WIDE.findall(other)))
    quarters = (len(text) - len(other)) + 2 * (len(other) - wide - astral) + 4 * wide + 8 * astral
    return -(-quarters // 4)
