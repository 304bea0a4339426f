from __future__ import annotations

import pytest

from stream_site.devstack.http_get import NoAnswer, get
from stream_site.devstack.places import free_port
from tests.unit.stream_site.test_devstack_local_model import answering


async def test_returns_status_and_body() -> None:
    async with answering(b"up") as host:
        assert await get(f"http://{host}/healthz", 2) == (200, b"up")


async def test_a_refusal_is_an_answer() -> None:
    async with answering(b"no", status=b"404 Not Found") as host:
        assert await get(f"http://{host}/healthz", 2) == (404, b"no")


async def test_a_closed_port_is_no_answer() -> None:
    with pytest.raises(NoAnswer):
        await get(f"http://127.0.0.1:{free_port()}/", 2)


async def test_silence_is_no_answer() -> None:
    async with answering(None) as host:
        with pytest.raises(NoAnswer):
            await get(f"http://{host}/", 0.2)
