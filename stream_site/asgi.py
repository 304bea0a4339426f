"""The ASGI application: pages and APIs over HTTP, and the server's start and end."""

from __future__ import annotations

import os

from channels.routing import ProtocolTypeRouter
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "stream_site.settings")
pages = get_asgi_application()  # sets Django up; what follows may import models

from asgiref.typing import ASGIReceiveCallable, ASGISendCallable, Scope  # noqa: E402
from django.conf import settings  # noqa: E402

from stream_site.static_files import StaticFiles  # noqa: E402


async def lifespan(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    """Answer the server's start and shutdown messages (ASGI specification, lifespan 2.0)."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        elif message["type"] == "lifespan.shutdown":
            await send({"type": "lifespan.shutdown.complete"})
            return


application = ProtocolTypeRouter({"http": StaticFiles(pages) if settings.SERVE_STATIC else pages, "lifespan": lifespan})
