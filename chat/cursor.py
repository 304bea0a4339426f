"""How far one socket has come in one turn, and how much it has not acknowledged. Pure: no I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]


@dataclass
class TurnCursor:
    """The place of one socket in one turn.

    `last` is the last event sent. `behind`: something is known to be missing and must come from the store.
    """

    last: int = 0
    fence: int = 0
    behind: bool = False
    done: bool = False

    def offer(self, event: Event, fence: int) -> bool:
        """Return whether `event` is to be sent now; note a gap. A higher fence starts the turn over."""
        if self.done or fence < self.fence:
            return False
        if fence > self.fence:
            if self.fence:
                self.last = 0
            self.fence = fence
        if event["kind"] == "done":
            self.done = True
            return True
        if event["seq"] <= self.last:
            return False
        if event["seq"] > self.last + 1:
            self.behind = True
            return False
        return True

    def sent(self, event: Event) -> None:
        self.last = max(self.last, event["seq"])


@dataclass
class Window:
    """Bytes sent and not acknowledged on one socket, at most `limit`; one message may always be under way."""

    limit: int
    unacked: int = 0
    sizes: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        return self.unacked < self.limit

    def add(self, turn: str, seq: int, size: int) -> None:
        self.sizes.setdefault(turn, deque()).append((seq, size))
        self.unacked += size

    def ack(self, turn: str, seq: int) -> None:
        """Everything of `turn` up to `seq` is shown. An unknown turn or a number seen before changes nothing."""
        queue = self.sizes.get(turn)
        while queue and queue[0][0] <= seq:
            self.unacked -= queue.popleft()[1]
        if queue is not None and not queue:
            del self.sizes[turn]

    def forget(self, turn: str) -> None:
        for _, size in self.sizes.pop(turn, ()):
            self.unacked -= size
