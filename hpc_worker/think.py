"""Clean the text of a model and tell its thinking from its answer. Pure: no I/O, Python 3.9."""

from __future__ import annotations

import re

OPEN_TAG = "<think>"
CLOSE_TAG = "</think>"
_BAD = re.compile("[\x00\ud800-\udfff]")


class TextCleaner:
    """Make deltas storable: NUL and lone surrogates become U+FFFD; a pair cut in two deltas is joined again."""

    def __init__(self) -> None:
        self._half = ""

    def push(self, text: str) -> str:
        """Return what can be shown now. A high surrogate at the end waits for its other half."""
        text = self._half + text
        self._half = ""
        if not _BAD.search(text):
            return text
        if "\ud800" <= text[-1] <= "\udbff":
            self._half = text[-1]
            text = text[:-1]
        # UTF-16 is where two halves are one character: joining is decoding.
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return joined.replace("\0", "\ufffd")

    def flush(self) -> str:
        """Return U+FFFD if half a character is left, else nothing."""
        left, self._half = self._half, ""
        return "\ufffd" if left else ""


class ThinkSplitter:
    """Split answer text that carries its thinking in `<think>...</think>` into (is_reasoning, text) pieces.

    A tag opens only where nothing has been shown yet: later it is text, because an answer may be about such tags.
    Line breaks next to the tags belong to the tags. `starts_in_reasoning` is for models whose template already
    contains the opening tag, so that only `</think>` arrives. Without it, such a tag moves nothing that was shown: it
    stays in the text and is counted in `stray_closings`, so that somebody can set the flag.
    """

    def __init__(self, starts_in_reasoning: bool = False) -> None:
        self.stray_closings = 0
        self._state = "primed" if starts_in_reasoning else "start"
        self._held = ""  # not decided yet: blanks at the start, or what may become a tag
        self._thought: list[str] = []  # of a block that is not closed yet
        self._tail = ""  # shown already; kept to notice a stray closing tag over two deltas
        self._shown = False

    def thinking_comes_apart(self) -> None:
        """Say that the server separates the thinking itself, so the text begins with the answer."""
        if self._state == "primed":
            self._state = "start"

    def push(self, text: str) -> list[tuple[bool, str]]:
        """Return the pieces that are certain after `text`."""
        self._held += text
        out: list[tuple[bool, str]] = []
        while self._step(out):
            pass
        return out

    def flush(self, complete: bool = True) -> list[tuple[bool, str]]:
        """Return what is left at the end.

        A block that was never closed is thinking without an answer, or an answer taken for thinking. When the stream
        is `complete` and nothing else was shown, its text is given again as text: an answer never comes out empty.
        """
        out: list[tuple[bool, str]] = []
        held, self._held = self._held, ""
        if self._state in ("inside", "primed"):
            self._think(held, out)
            if complete and not self._shown and self._thought:
                out.append((False, "".join(self._thought)))
        elif held:
            self._show(held, out)
        self._thought = []
        return out

    def _step(self, out: list[tuple[bool, str]]) -> bool:
        """Take one decision. Return False when more text is needed."""
        if self._state == "after":
            self._held = self._held.lstrip("\r\n")
            self._state = "start" if self._held else "after"
        if not self._held:
            return False
        if self._state in ("start", "primed"):
            return self._start()
        if self._state == "inside":
            return self._inside(out)
        self._show(self._held, out)
        self._held = ""
        return False

    def _start(self) -> bool:
        bare = self._held.lstrip()
        if bare.startswith(OPEN_TAG):
            self._held = bare[len(OPEN_TAG) :]
            self._state = "inside"
            return True
        if OPEN_TAG.startswith(bare):  # blanks only, or the beginning of a tag
            return False
        self._state = "inside" if self._state == "primed" else "text"
        return True

    def _inside(self, out: list[tuple[bool, str]]) -> bool:
        at = self._held.find(CLOSE_TAG)
        if at < 0:
            keep = len(self._held) - _undecided(self._held)
            self._think(self._held[:keep], out)
            self._held = self._held[keep:]
            return False
        self._think(self._held[:at].rstrip("\r\n"), out)
        self._held = self._held[at + len(CLOSE_TAG) :]
        self._thought = []
        self._state = "after"
        return True

    def _think(self, text: str, out: list[tuple[bool, str]]) -> None:
        if not self._thought:
            text = text.lstrip("\r\n")
        if text:
            self._thought.append(text)
            out.append((True, text))

    def _show(self, text: str, out: list[tuple[bool, str]]) -> None:
        seen = self._tail + text
        self.stray_closings += seen.count(CLOSE_TAG)
        self._tail = seen[-(len(CLOSE_TAG) - 1) :]
        self._shown = True
        out.append((False, text))


def _undecided(text: str) -> int:
    """Return how many characters at the end may turn out to be line breaks before `</think>`, or a part of it."""
    size = next((n for n in range(len(CLOSE_TAG) - 1, 0, -1) if text.endswith(CLOSE_TAG[:n])), 0)
    body = text[: len(text) - size]
    return size + len(body) - len(body.rstrip("\r\n"))
