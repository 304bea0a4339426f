"""Run on uvloop where it is installed: an answer's pieces cost about half as much there as on asyncio's own loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a new event loop and return what it returns."""
    try:
        import uvloop
    except ImportError:  # the extra "fast" is not installed, or there is none for this platform
        return asyncio.run(main)
    return uvloop.run(main)
