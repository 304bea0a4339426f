"""The WebSocket route of the relay inside the web process, for a demonstration or a small site."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.urls import URLPattern, path

from relay.asgi import application

relay: Any = application  # an ASGI application; Django's stubs know views only

RELAY_ROUTE = "relay/v1"
relay_urlpatterns: list[URLPattern] = [path(RELAY_ROUTE, relay)] if settings.EMBEDDED_RELAY else []
