"""Only our own pages may open the chat's WebSocket: it is driven by the session cookie, which every page's request carries.

The rule: the handshake's Origin must be the host it is sent to, or one of STREAM_TRUSTED_ORIGINS. `null` and a missing
Origin are refused: every browser sends one, and scripts have the API.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from channels.security.websocket import WebsocketDenier
from django.conf import settings


class SameOrigin:
    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        headers = dict(scope["headers"])
        if is_ours(headers.get(b"origin", b"").decode("latin1"), headers.get(b"host", b"").decode("latin1")):
            return await self.app(scope, receive, send)
        return await WebsocketDenier()(scope, receive, send)


def is_ours(origin: str, host: str) -> bool:
    """Whether a page of `origin` may talk to us under `host` (name and port as the browser sent it)."""
    if origin in settings.CSRF_TRUSTED_ORIGINS:
        return True
    parts = urlsplit(origin)
    return bool(host) and parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
