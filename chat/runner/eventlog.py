"""Number the events of one turn and join small pieces of text. Pure: time is passed in."""

from __future__ import annotations

from typing import Any

Event = dict[str, Any]
JOINED = ("delta", "reasoning")
MOST_CHARS = 4096  # a longer piece goes out at once, so that one event stays far below the socket's window


class EventLog:
    """The events of a turn, `seq` from 1 without a gap.

    The first text goes out at once; later pieces are joined for up to `interval_s` or `MOST_CHARS`.
    """

    def __init__(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.last_seq = 0
        self.waiting: list[str] = []
        self.waiting_kind = ""
        self.waiting_chars = 0
        self.last_out = float("-inf")

    def add(self, now: float, kind: str, **fields: Any) -> list[Event]:
        """Return the events that are due now, in order, numbered."""
        if kind not in JOINED:
            return [*self.flush(now), self._number(kind, fields)]
        due = self.flush(now) if self.waiting and self.waiting_kind != kind else []
        self.waiting.append(fields["text"])
        self.waiting_chars += len(fields["text"])
        self.waiting_kind = kind
        if now - self.last_out >= self.interval_s or self.waiting_chars >= MOST_CHARS:
            due += self.flush(now)
        return due

    def due_in(self, now: float) -> float | None:
        """Return in how many seconds `flush` should be called, or None when nothing waits."""
        if not self.waiting:
            return None
        return max(0.0, self.last_out + self.interval_s - now)

    def flush(self, now: float) -> list[Event]:
        """Return what waits, as one event."""
        if not self.waiting:
            return []
        text = "".join(self.waiting)
        self.waiting.clear()
        self.waiting_chars = 0
        self.last_out = now
        return [
            self._number(self.waiting_kind, {"text": text[at : at + MOST_CHARS]})
            for at in range(0, len(text), MOST_CHARS)
        ]

    def _number(self, kind: str, fields: Event) -> Event:
        self.last_seq += 1
        return {"seq": self.last_seq, "kind": kind, **fields}
