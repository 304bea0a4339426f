"""Signing out ends the open pages of that browser: their sockets close and they ask to sign in again."""

from __future__ import annotations

from typing import Any

from asgiref.sync import async_to_sync
from django.contrib.auth.signals import user_logged_out
from django.dispatch import receiver
from django.http import HttpRequest

from chat.live import ring, session_group


@receiver(user_logged_out)
def end_sockets(sender: object, request: HttpRequest, **kwargs: Any) -> None:
    key = request.session.session_key
    if key:
        async_to_sync(ring)(session_group(key), {"type": "session.ended"})
