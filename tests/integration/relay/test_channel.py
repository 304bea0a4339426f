"""A real relay process, real sockets: the way of frames from producer to consumer and back."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from hpc_worker import handshake as h
from hpc_worker import wire
from tests.integration.relay.peers import (
    RelayProcess,
    challenge,
    data_frame,
    dial,
    head_frame,
    open_consumer,
    open_producer,
)

Start = Callable[..., RelayProcess]
pytestmark = pytest.mark.parametrize("start_relay", ["fast", "asgi"], indirect=True)


async def closed_with(ws: ClientConnection) -> int:
    """Read until the close and return its code."""
    try:
        while True:
            await asyncio.wait_for(ws.recv(), 10)
    except ConnectionClosed:
        assert ws.close_code is not None
        return ws.close_code


async def test_frames_arrive_byte_exact_and_fin_ends_both(start_relay: Start) -> None:
    relay, cid, salt = start_relay(), os.urandom(16), os.urandom(32)
    sent = [head_frame(salt), *(data_frame(n) for n in range(1, 100)), data_frame(100, kind=wire.FrameType.FIN)]
    async with dial(relay.url) as consumer, dial(relay.url) as producer:
        ok = await open_consumer(consumer, cid)
        assert (ok.producer, ok.top) == (False, 0)
        assert await open_producer(producer, cid, salt) == h.ProducerOk(ok.epoch, -1, 0)
        for frame in sent:
            await producer.send(frame)
        got = [await asyncio.wait_for(consumer.recv(), 5) for _ in sent]
        assert got == sent
        await consumer.send(h.build_text(h.Ack(100)))
        assert h.parse_text(await producer.recv(decode=True)) == h.Ack(100)
        assert await closed_with(producer) == 1000
        assert await closed_with(consumer) == 1000
    async with dial(relay.url) as late:
        nonce = (await challenge(late)).nonce
        assert len(nonce) == 32


async def test_control_frames_reach_a_producer_that_comes_later_and_one_that_returns(start_relay: Start) -> None:
    relay, cid, salt = start_relay(), os.urandom(16), os.urandom(32)
    cancel = data_frame(1, kind=wire.FrameType.CTRL)
    async with dial(relay.url) as consumer:
        await open_consumer(consumer, cid)
        await consumer.send(cancel)
        for _ in range(2):
            async with dial(relay.url) as producer:
                await open_producer(producer, cid, salt)
                assert await asyncio.wait_for(producer.recv(), 5) == cancel


@pytest.mark.parametrize("batch", [1, 7])
async def test_both_sides_resume_without_gap_or_repeat(start_relay: Start, batch: int) -> None:
    relay, cid, salt = start_relay(), os.urandom(16), os.urandom(32)
    head, total, stored, sent = head_frame(salt), 15 * batch, 0, 0
    while stored < total:
        async with dial(relay.url) as consumer, dial(relay.url) as producer:
            await open_consumer(consumer, cid, stored)
            ok = await open_producer(producer, cid, salt)
            assert ok.have == (sent if sent else -1)
            if ok.have < 0:
                await producer.send(head)
            for seq in range(ok.have + 1 if ok.have > 0 else 1, min(sent + 2 * batch, total) + 1):
                await producer.send(data_frame(seq))
                sent = seq
            assert await asyncio.wait_for(consumer.recv(), 5) == head
            for _ in range(batch):
                frame = await asyncio.wait_for(consumer.recv(), 5)
                assert frame == data_frame(stored + 1)
                stored += 1
                if stored == total:
                    break
            await consumer.send(h.build_text(h.Ack(stored)))
            await asyncio.sleep(0.02)
    assert stored == total
