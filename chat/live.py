"""The doorbell: live messages to watching sockets and to runners, over the channel layer.

It may lose a ring: the database is the truth, and everybody who waits for a ring also looks there now and then.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from hashlib import blake2b
from typing import Any

from channels.layers import get_channel_layer
from redis.exceptions import RedisError

log = logging.getLogger("stream.live")
SEND_TIMEOUT_S = 2.0
RUNNERS = "runners"


def conversation_group(conversation: uuid.UUID) -> str:
    return f"conversation.{conversation.hex}"


def session_group(session_key: str) -> str:
    """Return the group of the sockets of one signed-in browser; its name does not show the session's key."""
    return f"session.{blake2b(session_key.encode(), digest_size=16).hexdigest()}"


def user_group(user_id: int) -> str:
    return f"user.{user_id}"


async def ring(group: str, message: dict[str, Any]) -> bool:
    """Send `message` to `group`; return whether it was handed over. Never raises: a lost ring is made good from the database."""
    layer = get_channel_layer()
    if layer is None:
        return False
    try:
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await layer.group_send(group, message)
    except (OSError, RedisError, TimeoutError) as error:
        log.warning("a ring to %s was lost: %s", group.split(".")[0], error)
        return False
    return True
