"""What a relay's memory holds in the middle of a stream: sealed frames, and neither text nor content key."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from hpc_worker import crypto, wire
from hpc_worker.keyring import Keyring
from hpc_worker.producer import Identity
from hpc_worker.push import Pusher, PushJob
from hpc_worker.wire import Kind
from relay.subscription import Timers
from routing.backends.hpc.channel import TAKEN_AHEAD, JobChannel, make_offer
from routing.backends.hpc.directory import Campus
from routing.types import TextDelta
from tests.faults.attacks import unsealed
from tests.faults.memory_dump import forms, search
from tests.integration.relay.peers import (
    CONSUMER,
    NAME,
    PRODUCER,
    TOKEN,
    RelayProcess,
    dial,
    head_frame,
    open_consumer,
    open_producer,
)

pytestmark = pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs /proc/PID/mem, which Linux has")

CANARY = "The canary sings at dawn, 你好. "
PLANTED = "This plain frame was planted to be found."
FRAMES = 3 * TAKEN_AHEAD


def campus(relay: RelayProcess, key: bytes) -> Campus:
    return Campus(
        id=1,
        name="lab",
        label="Lab",
        control="process",
        model="small",
        relays={relay.url: NAME},
        content=Keyring("k1", {"k1": key}),
        producers=Keyring(PRODUCER[0], {PRODUCER[0]: PRODUCER[1]}),
        consumer=CONSUMER,
    )


async def plant(relay: RelayProcess) -> None:
    """Leave a plain text in the ring of another channel: what a worker that does not seal would do."""
    cid = os.urandom(16)
    async with dial(relay.url) as consumer, dial(relay.url) as producer:
        await open_consumer(consumer, cid)
        await open_producer(producer, cid, bytes(32))
        await producer.send(head_frame(bytes(32)))
        await producer.send(wire.header(wire.FrameType.DATA, 1) + unsealed(Kind.TEXT, PLANTED.encode()))
        async with asyncio.timeout(10):
            while not isinstance(message := await consumer.recv(), bytes) or PLANTED.encode() not in message:
                pass


async def dump_in_the_middle(relay: RelayProcess, key: bytes) -> Counter[str]:
    """Stream the canary to a reader that takes only some of it, so that the rest waits in the ring; then search."""
    place = campus(relay, key)
    offer = make_offer(place, b'{"messages":[{"content":"' + CANARY.encode() + b'"}]}', 60)
    channel = JobChannel(place, offer, Timers())
    reading = asyncio.create_task(channel.run())
    salt_p = os.urandom(32)
    keys = crypto.derive_stream(key, crypto.Scope("k1", offer.cid, 1), offer.salt_c, salt_p)
    job = PushJob(relay.url, Identity(keys, salt_p, *PRODUCER, NAME), key, offer.salt_c, 60.0)
    async with asyncio.timeout(30):
        await channel.consumer.attached.wait()
        async with Pusher(job, lambda control: None) as pusher:
            assert await pusher.won(10)
            for _ in range(FRAMES):
                await pusher.send(Kind.TEXT, CANARY * 17)  # over what is joined: a frame of its own
            assert await channel.next(10) == TextDelta(CANARY * 17)
            while relay.get("/metrics", TOKEN)[1].find(f"relay_frames_total {FRAMES}") < 0:
                if pusher._producer.has_unsent:
                    await asyncio.sleep(0.02)
                else:
                    break
            await asyncio.sleep(0.3)
            waiting = pusher._producer._unacked[-1]
            secrets = {
                "text": CANARY.encode(),
                "content key": key,
                "stream key": keys.p2c[0],
                "question": b'{"messages":[{"content"',
                "sealed frame": waiting[5:45],
                "planted": PLANTED.encode(),
                "admission key": CONSUMER[1],
            }
            found = await asyncio.to_thread(search, relay.process.pid, secrets)
            reading.cancel()
    await asyncio.wait({reading})
    return found


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "asgi"])
async def test_neither_text_nor_content_key_is_in_the_relays_memory(fast: bool) -> None:
    relay = RelayProcess(fast=fast).start()
    try:
        await plant(relay)
        found = await dump_in_the_middle(relay, os.urandom(32))
    finally:
        relay.kill()
    assert found["planted"] > 0, "the search would not find what is there"
    assert found["sealed frame"] > 0, "nothing of the stream was in memory when it was searched"
    assert found["admission key"] > 0, "the relay holds this one, and it must be found"
    assert {name: found[name] for name in ("text", "content key", "stream key", "question")} == {
        "text": 0,
        "content key": 0,
        "stream key": 0,
        "question": 0,
    }


@pytest.mark.parametrize("number", range(len(list(forms(b"a secret of 32 bytes, or longer")))))
def test_every_form_of_a_secret_is_found(number: int) -> None:
    secret = b"a secret of 32 bytes, or longer"
    # the child makes the form itself: in its arguments it would be found in any case
    code = (
        "import sys; from tests.faults.memory_dump import forms; "
        "secret = bytes(b ^ 1 for b in sys.stdin.buffer.readline()[:-1]); "
        f"held = b'x' + list(forms(secret))[{number}] + b'y'; del secret; print('ready', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin
        assert child.stdout
        child.stdin.write(bytes(b ^ 1 for b in secret) + b"\n")
        child.stdin.flush()
        child.stdout.readline()
        found = search(child.pid, {"it": secret, "not there": os.urandom(32)})
        child.stdin.close()
    assert found["it"] >= 1
    assert found["not there"] == 0
