"""WordPiece as BERT's uncased models use it, in plain Python. Pure: the vocabulary is passed in.

Follows the reference tokeniser of google-research/bert: NFD, accents and control characters dropped, lower case,
punctuation and CJK ideographs stand alone, then the longest known piece first.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

UNKNOWN = "[UNK]"
START = "[CLS]"
END = "[SEP]"
MAX_WORD_CHARS = 100
_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class _CharMap(dict[int, str]):
    """What each character becomes, filled as characters are met. At most the 65,536 of the basic plane are kept."""

    def __missing__(self, code: int) -> str:
        mapped = _map_char(chr(code))
        if code < 0x10000:
            self[code] = mapped
        return mapped


def _map_char(char: str) -> str:
    code = ord(char)
    if char.isspace():
        return " "
    category = unicodedata.category(char)
    if category[0] == "C" or category == "Mn" or code == 0xFFFD:
        return ""
    if category[0] == "P" or (code < 128 and not char.isalnum()):
        return f" {char} "
    if any(low <= code <= high for low, high in _CJK):
        return f" {char} "
    return char


_CHARS = _CharMap()


def basic_tokens(text: str) -> list[str]:
    """Split `text` into lower-case words, punctuation marks and ideographs."""
    # Character by character, capital sigma has one small form; str.lower() knows a second one for the end of words.
    plain = unicodedata.normalize("NFD", text).translate(_CHARS).replace("Σ", "σ")
    return plain.lower().split()


class Tokenizer:
    """Text to piece ids. Thread safe: holds nothing that changes but a bounded cache of words."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._ids = {piece: i for i, piece in enumerate(vocabulary)}
        self._unknown = self._ids[UNKNOWN]
        self.start = self._ids[START]
        self.end = self._ids[END]
        self._word = lru_cache(maxsize=8192)(self._pieces)

    def ids(self, text: str) -> list[int]:
        """Return the ids of all pieces of `text`, without start and end marks."""
        return [i for word in basic_tokens(text) for i in self._word(word)]

    def bounded_ids(self, text: str, head: int, tail: int) -> list[int]:
        """Return start mark, pieces, end mark. Of a long text only the first `head` and last `tail` pieces are kept."""
        pieces = self.ids(text)
        if len(pieces) > head + tail:
            pieces = pieces[:head] + pieces[len(pieces) - tail :]
        return [self.start, *pieces, self.end]

    def _pieces(self, word: str) -> tuple[int, ...]:
        if len(word) > MAX_WORD_CHARS:
            return (self._unknown,)
        found: list[int] = []
        begin = 0
        while begin < len(word):
            for end in range(len(word), begin, -1):
                piece = self._ids.get(word[begin:end] if begin == 0 else "##" + word[begin:end])
                if piece is not None:
                    break
            else:
                return (self._unknown,)
            found.append(piece)
            begin = end
        return tuple(found)
