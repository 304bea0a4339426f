"""What one socket is fed: live events as they come, missing ones from the store, never more than its window."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from django.db import Error as DatabaseError

from chat import selectors
from chat.cursor import Event, TurnCursor, Window
from chat.models import Turn, TurnState
from chat.protocol import WINDOW_BYTES
from stream_site.database import in_database

LOOK_S = 1.0  # a ring that was lost is made good within this time
GAP_LOOK_S = 0.2  # events of a gap are in the store within one batch interval
MOST_HELD = 256  # live events held for a socket, of at most 4,096 characters each
Send = Callable[[dict[str, Any]], Awaitable[int]]


class Feed:
    """`offer` takes live events; `run` sends them in order, one writer for the socket's events."""

    def __init__(self, send: Send) -> None:
        self.send = send
        self.cursors: dict[str, TurnCursor] = {}
        self.live: dict[str, deque[tuple[int, Event]]] = {}
        self.window = Window(WINDOW_BYTES)
        self.bell = asyncio.Event()
        self.look_now = False

    # ── from the socket and the groups ────────────────────────────────────

    def watch(self, turn_id: uuid.UUID, last: int, *, is_new: bool = False) -> bool:
        """Follow a turn from after event `last`; return False when it is followed already.

        `is_new`: nothing of it can be in the store yet, so live events are not held back for a look there.
        """
        key = str(turn_id)
        known = self.cursors.get(key)
        if known and (is_new or last >= known.last):
            return False
        self.window.forget(key)
        self.cursors[key] = TurnCursor(last=last, behind=not is_new)
        self.look_now |= not is_new
        self.bell.set()
        return known is None

    def offer(self, turn: str, fence: int, events: list[Event]) -> None:
        """Take live events. A socket that does not keep up loses them here, and gets them from the store."""
        cursor = self.cursors.get(turn)
        if cursor is None or cursor.done:
            return
        held = self.live.setdefault(turn, deque())
        held.extend((fence, event) for event in events)
        if len(held) > MOST_HELD:
            held.clear()
            cursor.behind = True
        self.bell.set()

    def ack(self, turn: str, seq: int) -> None:
        self.window.ack(turn, seq)
        self.bell.set()

    def nudge(self) -> None:
        """Look into the store now."""
        self.look_now = True
        self.bell.set()

    def clear(self) -> None:
        """Follow nothing any more."""
        self.cursors.clear()
        self.live.clear()
        self.window = Window(WINDOW_BYTES)

    # ── the writer ────────────────────────────────────────────────────────

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        looked = clock()
        while True:
            wait_s = GAP_LOOK_S if self.is_behind else LOOK_S
            until_look = max(0.0, looked + wait_s - clock()) if self.cursors else None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(until_look):
                    await self.bell.wait()
            self.bell.clear()
            await self.send_live()
            if self.look_now or clock() - looked >= (GAP_LOOK_S if self.is_behind else LOOK_S):
                self.look_now, looked = False, clock()
                await self.send_stored()
                await self.send_live()

    @property
    def is_behind(self) -> bool:
        return self.window.is_open and any(cursor.behind for cursor in self.cursors.values())

    async def send_live(self) -> None:
        """Send what is held and in order; what is ahead of a gap stays held until the store has filled it."""
        for turn, held in list(self.live.items()):
            cursor = self.cursors.get(turn)
            while cursor and held and self.window.is_open:
                fence, event = held[0]
                due = cursor.offer(event, fence)
                if not due and cursor.behind and event["seq"] > cursor.last:
                    break
                held.popleft()
                if due:
                    await self.send_event(turn, cursor, fence, event)
            if cursor is None or cursor.done:
                self.live.pop(turn, None)
                self.cursors.pop(turn, None)

    async def send_stored(self) -> None:
        """Send what the store has and the socket has not. One query, and one more for each turn that is behind."""
        if not self.window.is_open:
            return
        try:
            rows = await in_database(selectors.turns_now, [uuid.UUID(t) for t in self.cursors])
            for turn in rows.values():
                await self.send_stored_of(turn)
        except DatabaseError:
            return  # the next look comes within LOOK_S

    async def send_stored_of(self, turn: Turn) -> None:
        key = str(turn.id)
        cursor = self.cursors.get(key)
        if cursor is None or (self.live.get(key) and not cursor.behind):
            return  # what is held goes on from where the socket is
        if turn.state == TurnState.ENDED:
            await self.send_ended(key, cursor, turn)
            return
        if turn.fence == cursor.fence and turn.events_end <= cursor.last:
            cursor.behind = False
            return
        start = cursor.last if turn.fence == cursor.fence or not cursor.fence else 0
        events = await in_database(selectors.events_after, turn.id, start)
        cursor.behind = not await self.send_all(key, cursor, turn.fence, events)

    async def send_ended(self, key: str, cursor: TurnCursor, turn: Turn) -> None:
        """Send the end alone to a socket that has all the text, else the whole answer again under a fence of its own."""
        self.live.pop(key, None)
        if cursor.fence in (0, turn.fence) and cursor.last == turn.events_end - 1:
            complete = await self.send_all(key, cursor, turn.fence, [selectors.done_event(turn)])
        else:
            cursor.start_over(turn.fence + 1)
            complete = await self.send_all(key, cursor, turn.fence + 1, selectors.replay_events(turn))
        cursor.behind = not complete
        if complete:
            self.cursors.pop(key, None)

    async def send_all(self, key: str, cursor: TurnCursor, fence: int, events: list[Event]) -> bool:
        """Send the events that are due; return False when the window closed before the last."""
        for event in events:
            if not self.window.is_open:
                return False
            if cursor.offer(event, fence):
                await self.send_event(key, cursor, fence, event)
        return True

    async def send_event(self, turn: str, cursor: TurnCursor, fence: int, event: Event) -> None:
        cursor.sent(event)
        size = await self.send({"t": "event", "turn": turn, "fence": fence, **event})
        self.window.add(turn, event["seq"], size)
