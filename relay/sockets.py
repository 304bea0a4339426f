"""One WebSocket: a receive loop and one writer task, driven by the hub's actions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from hpc_worker.wire import Close as CloseCode
from relay.actions import Close
from relay.hub import Hub
from relay.peer import Conn

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]

# A peer that does not even take its close message is cut off after this long.
CLOSE_TIMEOUT_S = 2.0


class Socket:
    """The socket of one `Conn`. `abort` cuts the transport, where the server lets us."""

    __slots__ = ("_abort", "_closing", "_conn", "_delay", "_hub", "_now", "_readable", "_send", "_wake", "held")

    def __init__(self, hub: Hub, conn: Conn, send: Send, abort: Callable[[], None] | None) -> None:
        self._hub = hub
        self._conn = conn
        self._send = send
        self._abort = abort
        self._now = asyncio.get_running_loop().time
        self._closing: Close | None = None
        self._delay = 0.0
        self.held = False
        self._wake = asyncio.Event()
        self._readable: asyncio.Event | None = None

    # -- the hub's actions

    def wake(self) -> None:
        """Have the writer take."""
        self._wake.set()

    def pause(self, seconds: float) -> None:
        """Read nothing for `seconds`, or until `resume` when it is 0."""
        if seconds:
            self._delay = seconds
        else:
            self.held = True

    def resume(self) -> None:
        """Read again."""
        self.held = False
        if self._readable is not None:
            self._readable.set()

    def close(self, action: Close) -> None:
        """Have the writer close; the reader stops."""
        self._closing = action
        self._wake.set()
        self.resume()

    # -- reading

    async def read(self, receive: Receive, on_message: Callable[[Event], None]) -> None:
        """Pass every message to `on_message` until the peer has gone. Honours pauses: that is the back pressure."""
        while True:
            event = await receive()
            if event["type"] == "websocket.disconnect":
                return
            on_message(event)
            if self.held:
                await self._until_resumed(None)
            elif self._delay:
                delay, self._delay = self._delay, 0.0
                await self._until_resumed(delay)

    async def _until_resumed(self, seconds: float | None) -> None:
        if self._closing is not None:
            return
        event = self._readable = asyncio.Event()
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            pass
        self._readable = None

    # -- writing

    async def write(self) -> None:
        """Send what the hub has for this socket, then close it when told. Waits for room in the transport."""
        closer: asyncio.TimerHandle | None = None
        hub, conn, send, now = self._hub, self._conn, self._send, self._now
        while self._closing is None:
            batch = hub.take(conn, now())
            for item in batch:
                if self._closing is not None:
                    break
                await send(_message(item))
            if not batch:
                await self._wake.wait()
                self._wake.clear()
        del closer
        await self._finish(self._closing)

    async def _finish(self, action: Close) -> None:
        if action.flush:
            for item in self._hub.take(self._conn, self._now()):
                await self._send(_message(item))
        await self._send({"type": "websocket.close", "code": action.code, "reason": action.reason[:120]})
        if action.code == CloseCode.SLOW_CONSUMER and self._abort is not None:
            self._abort()


def _message(item: str | bytes) -> Event:
    if type(item) is str:
        return {"type": "websocket.send", "text": item}
    return {"type": "websocket.send", "bytes": item}
