"""The ASGI application: pages and APIs over HTTP, chat and relay over WebSocket, and the server's start and end."""

from __future__ import annotations

import os

from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "stream_site.settings")
pages = get_asgi_application()  # sets Django up; what follows may import models

from asgiref.typing import ASGIReceiveCallable, ASGISendCallable, Scope  # noqa: E402
from django.conf import settings  # noqa: E402
from django.urls import re_path  # noqa: E402

from chat.origin import SameOrigin  # noqa: E402
from chat.runner.embedded import start_embedded_runner, stop_embedded_runner  # noqa: E402
from chat.ws_urls import websocket_urlpatterns  # noqa: E402
from routing.ws_urls import relay_urlpatterns  # noqa: E402
from stream_site.static_files import StaticFiles  # noqa: E402


async def lifespan(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """Answer the server's start and shutdown messages (ASGI specification, lifespan 2.0): the runner lives with it."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await start_embedded_runner()
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await stop_embedded_runner()
            await send({"type": "lifespan.shutdown.complete"})
            return


# Workers have neither session nor Origin: the relay admits its peers itself, and refuses browsers.
chat_sockets = SameOrigin(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))

application = ProtocolTypeRouter(
    {
        "http": StaticFiles(pages) if settings.SERVE_STATIC else pages,
        "websocket": URLRouter([*relay_urlpatterns, re_path(r"", chat_sockets)]) if relay_urlpatterns else chat_sockets,
        "lifespan": lifespan,
    }
)
