"""uvicorn's sans-I/O WebSocket protocol, changed where a relay needs it. Use as `--ws relay.uvicorn_ws:RelayWebSocket`.

* Keepalive. uvicorn stops reading a socket whose application does not receive, and then sees no pongs either: its
  keepalive would kill a producer only because the consumer is slow. Here a pong may be missing while we do not read.
* Cut. Closing waits for the write buffer, so a peer that reads nothing would keep its socket: `cut` does not wait.
* Fast path. Once the application calls `attach`, whole data messages go to a callback and whole batches to the
  transport, without an ASGI event, a queue and a task switch for each. Handshake, ping, pong and close stay uvicorn's.

The application finds the connection in `scope["extensions"]["stream.relay"]["line"]`. Tied to uvicorn's internals: the
lock file pins the version, and every test of tests/integration/relay runs with the fast path and without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

try:
    from websockets.speedups import apply_mask
except ImportError:  # a platform without the compiled wheel
    from websockets.utils import apply_mask

_TEXT, _BINARY = 1, 2
_TEXT_HEADS, _BINARY_HEADS = ([bytes((0x80 | opcode, size)) for size in range(126)] for opcode in (_TEXT, _BINARY))

# Takes (message, is_text); returns False to get nothing more before `read_again`.
OnMessage = Callable[[bytes, bool], bool]


class RelayWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket whose reading may be paused for long and whose messages may bypass ASGI."""

    _on_message: OnMessage | None = None
    _on_writable: Callable[[], None] | None = None
    _early = False
    _rest = b""
    _parts: tuple[int, bytes] | None = None

    # -- what the application calls

    def attach(self, on_message: OnMessage, on_writable: Callable[[], None]) -> bool:
        """Take the fast path. Returns False when the peer sent before the upgrade was answered: then ASGI has it."""
        if self._early or not self.queue.empty():
            return False
        self._on_message, self._on_writable = on_message, on_writable
        return True

    @property
    def may_write(self) -> bool:
        """Say whether the transport takes more."""
        return self.writable.is_set() and not self.close_sent and not self.transport.is_closing()

    def write(self, messages: Iterable[str | bytes]) -> None:
        """Send whole messages in one write."""
        out: list[bytes] = []
        for message in messages:
            if isinstance(message, str):
                payload = message.encode()
                size = len(payload)
                out.append(_TEXT_HEADS[size] if size < 126 else bytes((0x81, 126, size >> 8, size & 255)))
                out.append(payload)
            else:
                size = len(message)
                out.append(_BINARY_HEADS[size] if size < 126 else bytes((0x82, 126, size >> 8, size & 255)))
                out.append(message)
        self.transport.write(b"".join(out))

    async def send(self, message: ASGISendEvent) -> None:
        """Send, as uvicorn does. A message on a line without extensions needs none of its state machine."""
        if (
            message["type"] == "websocket.send"
            and self.may_write
            and self.handshake_complete
            and not self.conn.extensions
        ):
            data = message.get("bytes")
            self.write((data if data is not None else message["text"] or "",))
        else:
            await super().send(message)

    def stop_reading(self) -> None:
        """Let the kernel's buffer fill: the peer is held back by TCP."""
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    def read_again(self) -> None:
        """Go on with what was read already, then with the socket."""
        if self._on_message is not None and self._rest and not self._parse(b""):
            return
        if self.read_paused and not self.transport.is_closing():
            self.read_paused = False
            self.transport.resume_reading()

    def close_with(self, code: int, reason: str) -> None:
        """Start the closing handshake as uvicorn does for `websocket.close`."""
        if self.close_sent or self.transport.is_closing():
            return
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.conn.send_close(code, reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.read_again()
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)

    def cut(self) -> None:
        """Drop the connection and what is still to be written."""
        self.stop_keepalive()
        self.transport.abort()

    # -- what uvicorn and the event loop call

    def handle_connect(self, event: Request) -> None:
        """Show the application this object. The task that runs it starts after this."""
        super().handle_connect(event)
        self._early = bool(self.conn.reader.buffer)
        if hasattr(self, "scope"):
            extensions = self.scope.setdefault("extensions", {})
            if extensions is not None:
                extensions["stream.relay"] = {"line": self}

    def keepalive_timeout(self) -> None:
        """Take a missing pong for a dead peer only while we read."""
        if self.read_paused:
            self.pong_timer = None
            self.pending_ping_payload = None
            self.schedule_ping()
        else:
            super().keepalive_timeout()

    def resume_writing(self) -> None:
        """Tell the application that there is room."""
        super().resume_writing()
        if self._on_writable is not None:
            self._on_writable()

    def data_received(self, data: bytes) -> None:
        """Read from the socket."""
        if self._on_message is not None:
            if self.read_paused:  # a transport with TLS may still hand on what it had read
                self._rest += data
            else:
                self._parse(data)
            return
        self._early = self._early or self.handshake_initiated
        super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what was not taken yet: it was not acknowledged, so it will be sent again."""
        self._rest = b""
        super().connection_lost(exc)

    # -- frames (RFC 6455, section 5.2)

    def _parse(self, data: bytes) -> bool:
        """Take frames apart. Returns False when the application wants nothing more now."""
        buffer, self._rest = self._rest + data if self._rest else data, b""
        at, size, on_message = 0, len(buffer), self._on_message
        limit = self.config.ws_max_size
        while size - at >= 6:
            first, second = buffer[at], buffer[at + 1]
            if first == 0x82 and 0x80 <= second < 0xFE and self._parts is None:  # nearly all that comes
                start, end = at + 6, at + second - 0x7A
                if end > size:
                    break
                message = apply_mask(buffer[start:end], buffer[at + 2 : start])
                at = end
                if on_message is not None and not on_message(message, False):
                    self._rest = buffer[at:]
                    return False
                continue
            length, start = second & 127, at + 6
            if length == 126:
                if size - at < 8:
                    break
                length, start = (buffer[at + 2] << 8) | buffer[at + 3], at + 8
            if length > limit or length == 127 or not second & 0x80 or first & 0x70:
                self._unusual(buffer[at:])
                return True
            end = start + length
            if end > size:
                break
            if first == 0x82 or first == 0x81:
                if not self.close_sent and self._parts is None:
                    payload = apply_mask(buffer[start:end], buffer[start - 4 : start])
                    if on_message is not None and not on_message(payload, first == 0x81):
                        self._rest = buffer[end:]
                        return False
                elif self._parts is not None:
                    self._unusual(buffer[at:])
                    return True
            elif first & 15 < 8:
                payload = apply_mask(buffer[start:end], buffer[start - 4 : start])
                if not self._fragment(first, payload):
                    self._rest = buffer[end:]
                    return False
            else:
                super().data_received(buffer[at:end])
            at = end
        self._rest = buffer[at:] if at < size else b""
        return True

    def _fragment(self, first: int, payload: bytes) -> bool:
        opcode = first & 15
        kind, parts = (opcode, b"") if opcode else self._parts or (0, b"")
        parts += payload
        if kind not in (_TEXT, _BINARY) or (opcode and self._parts) or len(parts) > self.config.ws_max_size:
            self._fail(1009 if kind and len(parts) > self.config.ws_max_size else 1002)
            return True
        self._parts = None if first & 0x80 else (kind, parts)
        if self._parts is not None or self.close_sent or self._on_message is None:
            return True
        return self._on_message(parts, kind == _TEXT)

    def _unusual(self, rest: bytes) -> None:
        """Refuse what the protocol's messages never need: reserved bits, no mask, more than the size limit."""
        too_long = rest[1] & 127 >= 126 and rest[1] & 0x80 and not rest[0] & 0x70
        self._fail(1009 if too_long else 1002)

    def _fail(self, code: int) -> None:
        self._rest, self._parts = b"", None
        if self.close_sent or self.transport.is_closing():
            return
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": ""})
        self.conn.fail(code)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.transport.close()
