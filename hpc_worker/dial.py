"""Open WebSockets to the relay: compression off, small bounds, and a close code whatever ends them. Async edge."""

from __future__ import annotations

import asyncio
import random
import re

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from hpc_worker.wire import MAX_FRAME_BYTES

CONNECT_TIMEOUT_S = 10.0
PING_INTERVAL_S = 15.0
# A relay that holds a fast producer back stops reading, and so answers no ping, until its consumer has caught up
# or is closed after 30 s. A dead peer is noticed after at most 75 s, which bounds every send and receive.
PING_TIMEOUT_S = 60.0
_AFTER_MS = re.compile(r"after_ms=(\d{1,6})\Z")
_BACKOFF_FIRST_S = 0.1
_BACKOFF_MAX_S = 5.0

DIAL_ERRORS = (OSError, asyncio.TimeoutError, InvalidHandshake, InvalidURI, EOFError)


async def dial(url: str) -> ClientConnection:
    """Connect to a relay. Raises one of `DIAL_ERRORS`. Proxies are taken from the environment."""
    return await connect(
        url,
        compression=None,
        max_size=MAX_FRAME_BYTES,
        max_queue=64,
        open_timeout=CONNECT_TIMEOUT_S,
        ping_interval=PING_INTERVAL_S,
        ping_timeout=PING_TIMEOUT_S,
        close_timeout=1.0,
        user_agent_header=None,
    )


def close_code(error: ConnectionClosed) -> tuple[int, int | None]:
    """Return the peer's close code, 1006 when it sent none, and the `after_ms=n` of its reason."""
    if error.rcvd is None:
        return 1006, None
    match = _AFTER_MS.match(error.rcvd.reason)
    return error.rcvd.code, int(match[1]) if match else None


def backoff_s(failures: int) -> float:
    """Return seconds to wait before dial number `failures` + 1: doubling to 5 s, the upper half random."""
    full: float = min(_BACKOFF_MAX_S, _BACKOFF_FIRST_S * 2.0 ** min(failures, 16))
    return full * random.uniform(0.5, 1.0)
