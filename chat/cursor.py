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

    def start_over(self, fence: int) -> None:
        """Go back to the beginning under `fence`, unless that is where the cursor is."""
        if fence != self.fence:
            self.fence, self.last = fence, 0

    def offer(self, event: Event, fence: int) -> bool:
        """Return whether `event` is to be sent now; note a gap. A higher fence starts the turn over."""
        if self.done or fence < self.fence:
            return False
        if not self.fence:
            self.fence = fence  # the browser's own count was under this fence
        elif fence > self.fence:
            self.start_over(fence)
        if event["seq"] <= self.last:
            return False
        if event["seq"] > self.last + 1:
            self.behind = True
            return False
        return True

    def sent(self, event: Event) -> None:
        self.last = event["seq"]
        self.done = event["kind"] == "done"


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
        """Count a message. Numbers that start over replace the old ones: nobody will acknowledge those."""
        queue = self.sizes.get(turn)
        if queue and seq <= queue[-1][0]:
            self.forget(turn)
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
