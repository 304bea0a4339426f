"""Cross from asyncio to the ORM: `await in_database(service, ...)`.

Unlike asgiref's `sync_to_async` this never swallows a cancellation (that one returns normally when the thread is
already running), runs calls of different people side by side, and keeps a bounded number of connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.db import connections

P = ParamSpec("P")
T = TypeVar("T")
_threads = ThreadPoolExecutor(max_workers=settings.DATABASE_THREADS, thread_name_prefix="database")


async def in_database(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `function` in one of the database threads and return what it returns.

    When the caller is cancelled, the call is waited for (it is short, and its writes are done or not done, never
    left behind), and then the cancellation goes on.
    """
    call = asyncio.get_running_loop().run_in_executor(
        _threads, partial(_with_live_connections, function, *args, **kwargs)
    )
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait({call})
        if not call.cancelled():
            call.exception()  # seen: nobody is left to raise it to
        raise


def _with_live_connections(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `function` on this thread's connections, replacing those that the database has dropped meanwhile."""
    for connection in connections.all(initialized_only=True):
        connection.health_check_done = False  # type: ignore[attr-defined] # not in the stubs
        connection.close_if_health_check_failed()
    return function(*args, **kwargs)
