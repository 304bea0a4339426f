"""The relay as plain ASGI: `/v1` (WebSocket), `/healthz` and `/metrics`.

Alone: `python -m relay`, or `uvicorn relay.asgi:application --ws relay.uvicorn_ws:RelayWebSocket`.
Inside another ASGI site: mount `relay.asgi.application` (or `RelayApp(config).websocket`) where `/v1` is routed.
No Django, no channel layer, no thread.
"""

from __future__ import annotations

import asyncio
import functools
import hmac
import logging
import os
from typing import Any

from relay import actions
from relay.admission import Admission
from relay.config import RelayConfig
from relay.fastpath import FastSocket
from relay.hub import Hub
from relay.peer import Conn
from relay.reports import CidHash, log_line, metrics
from relay.sockets import Event, Receive, Send, Socket

PATH = "/v1"
TICK_S = 1.0
log = logging.getLogger("relay")


class RelayApp:
    """One relay process: a hub and its sockets."""

    def __init__(self, config: RelayConfig) -> None:
        self._config = config
        admission = Admission(config.name, config.consumer_keys, config.producer_keys, os.urandom)
        self.hub = Hub(admission, config.limits)
        self._sockets: dict[Conn, Socket | FastSocket] = {}
        self._names = CidHash()
        self._timer: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()
        self._empty.set()

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        match scope["type"]:
            case "websocket":
                await self.websocket(scope, receive, send)
            case "http":
                await self._http(scope, send)
            case "lifespan":
                await _lifespan(receive, send)

    async def websocket(self, scope: Event, receive: Receive, send: Send) -> None:
        """Serve one WebSocket. A browser (Origin is sent) has no business here and is refused before the upgrade."""
        if (await receive())["type"] != "websocket.connect":
            return
        # Mounted under another site, the router has matched the path already.
        if any(name == b"origin" for name, _ in scope["headers"]) or not scope["path"].endswith(PATH):
            self.hub.life.counters["refused_before_upgrade"] += 1
            await send({"type": "websocket.close", "code": 4403})
            return
        await send({"type": "websocket.accept"})
        client = scope.get("client")
        conn, due = self.hub.connect(client[0] if client else "", self._now())
        socket = self._sockets[conn] = self._socket(scope, conn, send)
        self._empty.clear()
        self._perform(due)
        self._set_timer()
        try:
            await socket.run(receive)
        except asyncio.CancelledError:
            if not socket.was_cut:
                raise
        finally:
            self._perform(self.hub.disconnect(conn, self._now()))
            del self._sockets[conn]
            if not self._sockets:
                self._empty.set()

    def _socket(self, scope: Event, conn: Conn, send: Send) -> Socket | FastSocket:
        """Return the fast socket where the server offers it and the configuration does not forbid it."""
        line = (scope.get("extensions") or {}).get("stream.relay", {}).get("line")
        if line is not None and self._config.fast_path:
            fast = FastSocket(self.hub, conn, line, self._perform)
            if fast.attach():
                return fast
        return Socket(self.hub, conn, send, self._perform)

    async def drain(self) -> None:
        """Take no more connections, let channels finish for `drain_s`, close the rest with 4430, wait for them."""
        self._perform(self.hub.drain(self._now()))
        try:
            async with asyncio.timeout(self._config.limits.drain_s + 3 * TICK_S):
                await self._empty.wait()
        except TimeoutError:
            log.warning("event=drain left=%d", len(self._sockets))

    # -- the hub's actions

    def _perform(self, due: tuple[actions.Action, ...]) -> None:
        sockets = self._sockets
        for action in due:
            if type(action) is actions.Wake:  # by far the most frequent
                if (woken := sockets.get(action.conn)) is not None:
                    woken.wake()
                continue
            if isinstance(action, actions.Ended):
                now = self._now()
                log.info("%s", log_line(action.conn, self._names.name(action.conn.cid, now), now))
                continue
            socket = sockets.get(action.conn)
            if socket is None:
                continue
            match action:
                case actions.Pause():
                    socket.pause(action.seconds)
                case actions.Resume():
                    socket.resume()
                case actions.Close():
                    socket.close(action)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _set_timer(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._perform(self.hub.tick(self._now()))
        if self._sockets or len(self.hub.registry):
            self._set_timer()

    # -- plain HTTP

    async def _http(self, scope: Event, send: Send) -> None:
        status, text = 404, "not found\n"
        if scope["method"] not in ("GET", "HEAD"):
            status, text = 405, "only GET\n"
        elif scope["path"] == "/healthz":
            status, text = (503, "draining\n") if self.hub.draining else (200, "up\n")
        elif scope["path"] == "/metrics" and self._config.metrics_token:
            status, text = (200, metrics(self.hub)) if self._may_read_metrics(scope) else (401, "a token is needed\n")
        body = text.encode()
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _may_read_metrics(self, scope: Event) -> bool:
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        return hmac.compare_digest(given, b"Bearer " + self._config.metrics_token.encode())


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        event = await receive()
        await send({"type": f"{event['type']}.complete"})
        if event["type"] == "lifespan.shutdown":
            return


@functools.cache
def relay_app() -> RelayApp:
    """Return this process's relay, configured from the environment. Raises `RelayConfigError`."""
    return RelayApp(RelayConfig.from_environ(os.environ))


async def application(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Serve ASGI. The environment is read with the first scope, so that importing needs none."""
    await relay_app()(scope, receive, send)
