"""The relay inside Channels' URLRouter, on uvicorn with and without the relay's WebSocket class."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from hpc_worker import handshake as h
from hpc_worker import wire
from tests.integration.relay.peers import (
    RelayProcess,
    data_frame,
    dial,
    head_frame,
    open_consumer,
    open_producer,
)
from tests.integration.relay.test_channel import closed_with

STOCK, OURS = "websockets-sansio", "relay.uvicorn_ws:RelayWebSocket"


@pytest.fixture(params=[STOCK, OURS])
def site(request: pytest.FixtureRequest) -> Iterator[RelayProcess]:
    relay = RelayProcess({"frames_per_s": "1e9", "bytes_per_s": "1e12"})
    relay.command = ["-m", "uvicorn", "tests.integration.relay.embedded:application", "--ws", request.param]
    relay.start()
    yield relay
    relay.kill()


async def test_frames_flow_through_the_sites_router(site: RelayProcess) -> None:
    cid, salt, total = os.urandom(16), os.urandom(32), 2000
    async with dial(site.url) as consumer, dial(site.url) as producer:
        await open_consumer(consumer, cid)
        await open_producer(producer, cid, salt)

        async def produce() -> None:
            await producer.send(head_frame(salt))
            for seq in range(1, total):
                await producer.send(data_frame(seq))
            await producer.send(data_frame(total, kind=wire.FrameType.FIN))

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            assert await asyncio.wait_for(consumer.recv(), 10) == head_frame(salt)
            for seq in range(1, total + 1):
                frame = await asyncio.wait_for(consumer.recv(), 10)
                assert wire.peek(frame)[1] == seq  # type: ignore[arg-type]
                if not seq % 32 or seq == total:
                    await consumer.send(h.build_text(h.Ack(seq)))
        assert [await closed_with(consumer), await closed_with(producer)] == [1000, 1000]
    assert site.get("/healthz") == (200, "up\n")
