"""One WebSocket without a task: the transport's callbacks call the hub, the hub's actions call the transport."""

from __future__ import annotations

import asyncio

from hpc_worker.wire import Close as CloseCode
from relay.actions import Close
from relay.hub import Hub
from relay.peer import Conn
from relay.sockets import CLOSE_TIMEOUT_S, Perform, Receive
from relay.uvicorn_ws import RelayWebSocket


class FastSocket:
    """The socket of one `Conn` on a `RelayWebSocket`. Frames of one read leave in one write."""

    __slots__ = ("_conn", "_cutter", "_held", "_hub", "_line", "_loop", "_pacer", "_perform", "_writing")

    was_cut = False

    def __init__(self, hub: Hub, conn: Conn, line: RelayWebSocket, perform: Perform) -> None:
        self._hub = hub
        self._conn = conn
        self._line = line
        self._perform = perform
        self._loop = asyncio.get_running_loop()
        self._held = False
        self._pacer: asyncio.TimerHandle | None = None
        self._cutter: asyncio.TimerHandle | None = None
        self._writing = False

    def attach(self) -> bool:
        """Take the connection over from ASGI, when that is still possible."""
        return self._line.attach(self._on_message, self._flush)

    async def run(self, receive: Receive) -> None:
        """Wait until the socket is gone."""
        self.wake()
        try:
            while (await receive())["type"] != "websocket.disconnect":
                continue
        finally:
            for timer in (self._cutter, self._pacer):
                if timer is not None:
                    timer.cancel()

    # -- the hub's actions

    def wake(self) -> None:
        """Write when the frames that were read together are all in the ring."""
        if not self._writing:
            self._writing = True
            self._loop.call_soon(self._flush)

    def pause(self, seconds: float) -> None:
        """Read nothing for `seconds`, or until `resume` when it is 0."""
        if not seconds:
            self._held = True
        elif self._pacer is None:
            self._pacer = self._loop.call_later(seconds, self._paced)
        self._line.stop_reading()

    def resume(self) -> None:
        """Read again."""
        self._held = False
        if self._pacer is None:
            self._line.read_again()

    def close(self, action: Close) -> None:
        """Close, after what is still due when the action says so."""
        if action.flush:
            batch = self._hub.take(self._conn, self._loop.time())
            if batch and not self._line.transport.is_closing():
                self._line.write(batch)
        self._line.close_with(action.code, action.reason[:120])
        if action.code == CloseCode.SLOW_CONSUMER:
            self._line.cut()
        elif not self._line.writable.is_set():
            self._cutter = self._loop.call_later(CLOSE_TIMEOUT_S, self._line.cut)

    # -- the transport's callbacks

    def _on_message(self, message: bytes, is_text: bool) -> bool:
        now = self._loop.time()
        if is_text:
            # What is not UTF-8 cannot be one of our messages; the hub refuses it in words of its own.
            due = self._hub.on_text(self._conn, message.decode("utf-8", "replace"), now)
        else:
            due = self._hub.on_binary(self._conn, message, now)
        if not due:
            return True
        self._perform(due)
        return not self._held and self._pacer is None

    def _paced(self) -> None:
        self._pacer = None
        if not self._held:
            self._line.read_again()

    def _flush(self) -> None:
        self._writing = False
        line, hub, conn, now = self._line, self._hub, self._conn, self._loop.time()
        while line.may_write:
            batch = hub.take(conn, now)
            if not batch:
                return
            line.write(batch)
            if due := hub.due():
                self._perform(due)
            if conn.waiting:
                return
