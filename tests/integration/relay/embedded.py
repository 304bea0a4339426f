"""A site that carries the relay beside its own WebSockets, as the web process does."""

from __future__ import annotations

from channels.routing import ProtocolTypeRouter, URLRouter
from django.urls import path

from relay.asgi import application as relay

application = ProtocolTypeRouter({"http": relay, "websocket": URLRouter([path("v1", relay)])})
