"""The pusher and a consumer through real relay processes, some of which are killed."""

from __future__ import annotations

import asyncio
import os
import random
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hpc_worker import bodies, crypto, handshake, keyring
from hpc_worker.dial import dial
from hpc_worker.producer import Control, Identity
from hpc_worker.push import Parked, Pusher, PushJob
from hpc_worker.wire import FrameType, Kind
from tests.integration.hpc_worker.consumer import Consumer
from tests.integration.relay.peers import CONSUMER, NAME, PRODUCER, RelayProcess

KEY = bytes(range(50, 82))
RING = keyring.Keyring("k1", {"k1": KEY})


@pytest.fixture
def start_relay(tmp_path: Path) -> Iterator[Callable[..., RelayProcess]]:
    running: list[RelayProcess] = []

    def start(**limits: str) -> RelayProcess:
        running.append(RelayProcess(limits, log=tmp_path / f"relay{len(running)}.log").start())
        return running[-1]

    yield start
    for relay in running:
        if relay.process.poll() is None:
            relay.kill()


def make(relay: RelayProcess, *, eager: bool = False, deadline_s: float = 60) -> tuple[PushJob, Consumer]:
    scope, salt_c, salt_p = crypto.Scope("k1", os.urandom(16), 1), os.urandom(32), os.urandom(32)
    keys = crypto.derive_stream(KEY, scope, salt_c, salt_p)
    who = Identity(keys, salt_p, PRODUCER[0], PRODUCER[1], NAME)
    job = PushJob(relay.url, who, KEY, salt_c, deadline_s, eager=eager)
    return job, Consumer(relay.url, NAME, CONSUMER, RING, scope, salt_c)


@asynccontextmanager
async def consuming(consumer: Consumer) -> AsyncIterator[asyncio.Task[bodies.Fin]]:
    task = asyncio.create_task(consumer.run())
    await asyncio.wait_for(consumer.ready.wait(), 10)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def ignore(_: Control) -> None:
    """Take no instruction."""


async def push(pusher: Pusher, count: int, pause_s: float) -> str:
    rng = random.Random(7)
    sent = []
    for number in range(count):
        word = f"{number} " + rng.choice(["the ", "größer ", "数据 ", "🙂", "x" * 700, "\n"])
        sent.append(word)
        await pusher.send(Kind.TEXT, word)
        await asyncio.sleep(pause_s)
    return "".join(sent)


async def test_a_stream_through_the_relay(start_relay: Callable[..., RelayProcess]) -> None:
    job, consumer = make(start_relay())
    async with consuming(consumer) as task, Pusher(job, ignore) as pusher:
        assert await pusher.won(10)
        pusher.state("prefill")
        text = await push(pusher, 300, 0.001)
        result = await pusher.finish(bodies.Fin("stop", usage=bodies.Usage(1, 2)))
        assert result.outcome == "delivered"
        fin = await task
    assert consumer.text == text
    assert fin.usage == bodies.Usage(1, 2)
    data = [o for o in consumer.opened if o.type is FrameType.DATA]
    assert (fin.data_frames, fin.data_bytes) == (len(data), sum(len(o.body) for o in data))
    assert pusher.connections == 1


async def test_a_relay_killed_five_times_costs_no_byte(start_relay: Callable[..., RelayProcess]) -> None:
    relay = start_relay()
    job, consumer = make(relay)
    async with consuming(consumer) as task, Pusher(job, ignore) as pusher:
        assert await pusher.won(10)
        pushing = asyncio.create_task(push(pusher, 10_000, 0.003))
        for kills in range(1, 6):
            stored = len(consumer.opened)
            while len(consumer.opened) < stored + 10 or pusher.connections < kills:
                await asyncio.sleep(0.01)
            relay.kill()
            await asyncio.to_thread(relay.start)
        pushing.cancel()
        await asyncio.gather(pushing, return_exceptions=True)
        text = await push(pusher, 10, 0)
        assert (await pusher.finish(bodies.Fin("stop"))).outcome == "delivered"
        fin = await task
    assert pusher.connections == 6
    data = [o for o in consumer.opened if o.type is FrameType.DATA]
    assert (fin.data_frames, fin.data_bytes) == (len(data), sum(len(o.body) for o in data))
    numbers = re.findall(r"(?:^|[^\d])(\d+) ", consumer.text.removesuffix(text).replace("x" * 700, " "))
    assert [int(n) for n in numbers] == list(range(len(numbers)))
    assert len(numbers) > 50


async def test_a_relay_that_restarts_in_order_costs_no_byte(start_relay: Callable[..., RelayProcess]) -> None:
    relay = start_relay(drain_s="0.5", restart_after_ms="300")
    job, consumer = make(relay)
    async with consuming(consumer) as task, Pusher(job, ignore) as pusher:
        assert await pusher.won(10)
        pushing = asyncio.create_task(push(pusher, 1000, 0.003))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(relay.stop)
        await asyncio.to_thread(relay.start)
        text = await pushing
        assert (await pusher.finish(bodies.Fin("stop"))).outcome == "delivered"
        await task
    assert consumer.text == text


async def test_a_task_started_twice_never_wins(start_relay: Callable[..., RelayProcess]) -> None:
    job, consumer = make(start_relay())
    async with consuming(consumer) as task, Pusher(job, ignore) as first:
        assert await first.won(10)
        await asyncio.sleep(0.1)
        salt_p = os.urandom(32)
        keys = crypto.derive_stream(KEY, consumer.scope, consumer.salt_c, salt_p)
        twin = Identity(keys, salt_p, PRODUCER[0], PRODUCER[1], NAME)
        async with Pusher(PushJob(job.relay_url, twin, KEY, consumer.salt_c, 10), ignore) as second:
            assert not await second.won()
            assert second.outcome == "replaced"
        text = await push(first, 20, 0)
        assert (await first.finish(bodies.Fin("stop"))).outcome == "delivered"
        await task
    assert consumer.text == text


async def test_the_worker_may_come_before_the_consumer(start_relay: Callable[..., RelayProcess]) -> None:
    job, consumer = make(start_relay())
    async with Pusher(job, ignore) as pusher:
        assert not await pusher.won(0.5)
        async with consuming(consumer) as task:
            assert await pusher.won(10)
            text = await push(pusher, 20, 0)
            assert (await pusher.finish(bodies.Fin("stop"))).outcome == "delivered"
            await task
    assert consumer.text == text


async def test_a_cancel_reaches_the_worker(start_relay: Callable[..., RelayProcess]) -> None:
    got: list[Control] = []
    job, consumer = make(start_relay())
    async with consuming(consumer) as task, Pusher(job, got.append) as pusher:
        assert await pusher.won(10)
        await pusher.send(Kind.TEXT, "half")
        while not consumer.opened:
            await asyncio.sleep(0.01)
        await consumer.cancel()
        async with asyncio.timeout(1):
            while not got:
                await asyncio.sleep(0.01)
        assert got[0].kind is Kind.CANCEL
        assert (await pusher.finish(bodies.Fin("cancelled"))).outcome == "delivered"
        assert (await task).finish == "cancelled"


async def test_a_parked_socket_answers_at_once(start_relay: Callable[..., RelayProcess]) -> None:
    relay = start_relay()
    job, consumer = make(relay, eager=True)
    socket = await dial(relay.url)
    first = handshake.parse_text(await asyncio.wait_for(socket.recv(), 5))
    assert isinstance(first, handshake.Challenge)
    park = keyring.sign(PRODUCER[1], first.nonce, NAME, handshake.Park(PRODUCER[0]))
    await socket.send(handshake.build_text(park))
    renewed = await asyncio.wait_for(socket.recv(), 5)
    assert isinstance(renewed, str)
    async with consuming(consumer) as task, Pusher(job, ignore, parked=Parked(socket, renewed)) as pusher:
        text = await push(pusher, 20, 0)
        assert (await pusher.finish(bodies.Fin("stop"))).outcome == "delivered"
        await task
    assert consumer.text == text
    assert pusher.connections == 1
