"""Join small pieces of text into frames: one in 25 ms, or at 512 bytes. Pure; time is passed in.

A piece that comes 25 ms or later after the last frame leaves at once, as the first one does: a slow model's text is never
held back, and a fast one's leaves every 25 ms.
"""

from __future__ import annotations

from hpc_worker.wire import Kind

FLUSH_AFTER_S = 0.025
FLUSH_AT_BYTES = 512
PIECE_BYTES = 8192


class Coalescer:
    """Hold text back for at most 25 ms. Bodies are whole UTF-8 characters, and the order of kinds is kept."""

    def __init__(self) -> None:
        self._kind = Kind.TEXT
        self._parts: list[bytes] = []
        self._size = 0
        self._free_at = float("-inf")  # when the next frame may leave
        self.due: float | None = None  # when `flush` must be called

    def add(self, kind: Kind, text: str, now: float) -> list[tuple[Kind, bytes]]:
        """Take text; return the (kind, body) pairs that are to be sent now."""
        out = self.flush() if kind is not self._kind else []
        # a lone surrogate is no character and has no UTF-8 form
        data = text.encode("utf-8", "replace")
        if not data:
            return out
        self._kind = kind
        self._parts.append(data)
        self._size += len(data)
        if now >= self._free_at or self._size >= FLUSH_AT_BYTES:
            self._free_at = now + FLUSH_AFTER_S
            return out + self.flush()
        if self.due is None:
            self.due = min(self._free_at, now + FLUSH_AFTER_S)
            self._free_at = self.due + FLUSH_AFTER_S
        return out

    def flush(self) -> list[tuple[Kind, bytes]]:
        """Return all that is held."""
        data = b"".join(self._parts)
        self._parts, self._size, self.due = [], 0, None
        return [(self._kind, piece) for piece in split_utf8(data, PIECE_BYTES)]


def split_utf8(data: bytes, size: int) -> list[bytes]:
    """Cut valid UTF-8 into pieces of at most `size` (4 or more) bytes between characters."""
    out = []
    start = 0
    while len(data) - start > size:
        end = start + size
        while data[end] & 0xC0 == 0x80:
            end -= 1
        out.append(data[start:end])
        start = end
    if start < len(data):
        out.append(data[start:])
    return out
