"""uvicorn's sans-I/O WebSocket protocol with two changes that back pressure needs.

Use as `uvicorn --ws relay.uvicorn_ws:RelayWebSocket`. uvicorn stops reading a socket whose application does not
receive, and then does not see the pongs either: its keepalive would kill a producer only because the consumer is slow.
And a peer that reads nothing would keep its socket, because closing waits for the write buffer; `stream.abort` cuts it.
"""

from __future__ import annotations

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request


class RelayWebSocket(WebSocketsSansIOProtocol):
    """A WebSocket whose reading may be paused for long."""

    def handle_connect(self, event: Request) -> None:
        """Offer the application a way to cut the transport. The task that runs it starts after this."""
        super().handle_connect(event)
        if hasattr(self, "scope"):
            extensions = self.scope.setdefault("extensions", {})
            if extensions is not None:
                extensions["stream.abort"] = {"abort": self._abort}

    def keepalive_timeout(self) -> None:
        """Take a missing pong for a dead peer only while we read."""
        if self.read_paused:
            self.pong_timer = None
            self.pending_ping_payload = None
            self.schedule_ping()
        else:
            super().keepalive_timeout()

    def _abort(self) -> None:
        self.stop_keepalive()
        self.transport.abort()
