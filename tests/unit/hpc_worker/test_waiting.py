"""Waiting for a limited time: the result, the time limit, and a cancellation that always goes through."""

from __future__ import annotations

import asyncio

import pytest

from hpc_worker.waiting import within


async def test_it_returns_the_result_and_raises_the_fault() -> None:
    async def fault() -> None:
        raise ValueError("mine")

    assert await within(asyncio.sleep(0, "done"), 1) == "done"
    with pytest.raises(ValueError, match="mine"):
        await within(fault(), 1)


async def test_it_ends_what_takes_too_long() -> None:
    ended = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with pytest.raises(asyncio.TimeoutError):
        await within(slow(), 0.01)
    assert ended.is_set()


async def test_a_cancellation_that_meets_the_result_goes_through() -> None:
    result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    waiting = asyncio.create_task(within(result, 60))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    result.set_result("too late")
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
