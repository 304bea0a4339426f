"""Wait for something for a limited time, on every supported Python.

Before Python 3.12 `asyncio.wait_for` can swallow a cancellation that meets a result: a cancelled answer would go on.
`asyncio.timeout` cannot, but Python 3.10 has none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def within(awaitable: Awaitable[T], seconds: float | None) -> T:
    """Return what `awaitable` returns. Raises `asyncio.TimeoutError`, never for None; a cancellation always goes through."""
    task = asyncio.ensure_future(awaitable)
    try:
        done, _ = await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await _end(task)
        raise
    if not done:
        await _end(task)
        raise asyncio.TimeoutError
    return task.result()


async def _end(task: asyncio.Future[T]) -> None:
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()  # seen: nobody is left to raise it to
