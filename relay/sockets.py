"""One WebSocket on any ASGI server: a receive loop and one writer task, driven by the hub's actions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from relay.actions import Action, Close
from relay.hub import Hub
from relay.peer import Conn

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Perform = Callable[[tuple[Action, ...]], None]

# A peer that does not even take its close message is cut off after this long.
CLOSE_TIMEOUT_S = 2.0


class Socket:
    """The socket of one `Conn`. `was_cut` says that its task was cancelled because the peer took nothing."""

    __slots__ = (
        "_closing",
        "_conn",
        "_cutter",
        "_delay",
        "_held",
        "_hub",
        "_loop",
        "_perform",
        "_readable",
        "_send",
        "_task",
        "_wake",
        "was_cut",
    )

    def __init__(self, hub: Hub, conn: Conn, send: Send, perform: Perform) -> None:
        self._hub = hub
        self._conn = conn
        self._send = send
        self._perform = perform
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.current_task()
        self._closing: Close | None = None
        self._cutter: asyncio.TimerHandle | None = None
        self._delay = 0.0
        self._held = False
        self._readable: asyncio.Event | None = None
        self._wake = asyncio.Event()
        self.was_cut = False

    async def run(self, receive: Receive) -> None:
        """Serve the socket until it is gone."""
        try:
            async with asyncio.TaskGroup() as group:
                writer = group.create_task(self._write())
                await self._read(receive)
                writer.cancel()
        finally:
            if self._cutter is not None:
                self._cutter.cancel()

    # -- the hub's actions

    def wake(self) -> None:
        """Have the writer take."""
        self._wake.set()

    def pause(self, seconds: float) -> None:
        """Read nothing for `seconds`, or until `resume` when it is 0."""
        if seconds:
            self._delay = seconds
        else:
            self._held = True

    def resume(self) -> None:
        """Read again."""
        self._held = False
        if self._readable is not None:
            self._readable.set()

    def close(self, action: Close) -> None:
        """Have the writer close; the reader then sees the end."""
        self._closing = action
        self._cutter = self._loop.call_later(CLOSE_TIMEOUT_S, self._cut)
        self.wake()
        self.resume()

    def _cut(self) -> None:
        if self._task is not None:
            self.was_cut = True
            self._task.cancel()

    # -- reading

    async def _read(self, receive: Receive) -> None:
        """Pass messages to the hub until the peer has gone. Honours pauses: that is the back pressure."""
        hub, conn, perform, time = self._hub, self._conn, self._perform, self._loop.time
        while True:
            event = await receive()
            if event["type"] != "websocket.receive":
                return
            data = event.get("bytes")
            if data is not None:
                due = hub.on_binary(conn, data, time())
            else:
                due = hub.on_text(conn, event.get("text") or "", time())
            if due:
                perform(due)
                if self._held or self._delay:
                    await self._pause()

    async def _pause(self) -> None:
        seconds = None if self._held else self._delay
        self._delay = 0.0
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

    async def _write(self) -> None:
        """Send what the hub has for this socket, then close it when told. `send` waits for room in the transport."""
        hub, conn, send, time = self._hub, self._conn, self._send, self._loop.time
        try:
            while self._closing is None:
                batch = hub.take(conn, time())
                if due := hub.due():
                    self._perform(due)
                for item in batch:
                    await send(_message(item))
                    if self._closing is not None and not self._closing.flush:
                        break
                if not batch:
                    await self._wake.wait()
                    self._wake.clear()
            await self._finish(self._closing)
        except (OSError, RuntimeError):
            # The server says in this way that the peer is gone or was given up; the reader sees the same.
            return

    async def _finish(self, action: Close) -> None:
        if action.flush:
            for item in self._hub.take(self._conn, self._loop.time()):
                await self._send(_message(item))
        await self._send({"type": "websocket.close", "code": action.code, "reason": action.reason[:120]})


def _message(item: str | bytes) -> Event:
    if type(item) is str:
        return {"type": "websocket.send", "text": item}
    return {"type": "websocket.send", "bytes": item}
