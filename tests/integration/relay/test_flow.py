"""Back pressure, hostile peers, limits, drain: a real relay process, with the fast path and without it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from hpc_worker import handshake as h
from hpc_worker import wire
from hpc_worker.keyring import sign
from tests.integration.relay.peers import (
    NAME,
    PRODUCER,
    ROOT,
    TOKEN,
    RelayProcess,
    challenge,
    data_frame,
    dial,
    head_frame,
    open_consumer,
    open_producer,
)
from tests.integration.relay.test_channel import closed_with

Start = Callable[..., RelayProcess]
UNHURRIED = {"frames_per_s": "1e9", "bytes_per_s": "1e12"}
pytestmark = pytest.mark.parametrize("start_relay", ["fast", "asgi"], indirect=True)


async def pair(relay: RelayProcess, consumer: ClientConnection, producer: ClientConnection) -> bytes:
    cid, salt = os.urandom(16), os.urandom(32)
    await open_consumer(consumer, cid)
    await open_producer(producer, cid, salt)
    await producer.send(head_frame(salt))
    return cid


async def push(producer: ClientConnection, frames: int, size: int) -> int:
    """Send until the relay holds us back for half a second; return how many left."""
    for seq in range(1, frames + 1):
        try:
            await asyncio.wait_for(producer.send(data_frame(seq, size)), 0.5)
        except TimeoutError:
            return seq
    return frames


async def test_a_consumer_that_reads_nothing_costs_its_ring_and_the_producer_lives(start_relay: Start) -> None:
    relay = start_relay(**UNHURRIED, stalled_consumer_s="4")
    size, total = 16_000, 200 * 2**20 // 16_000
    async with dial(relay.url) as consumer, dial(relay.url) as producer:
        cid = await pair(relay, consumer, producer)
        await asyncio.sleep(0.3)
        consumer.transport.pause_reading()
        before = relay.rss_mb()
        sent = await push(producer, total, size)
        assert sent < 0.15 * total, "the producer was not held back"
        await asyncio.sleep(1.5)
        assert relay.rss_mb() - before < 12
        await asyncio.sleep(4)
        assert 'ended_total{outcome="slow_consumer"} 1' in relay.get("/metrics", TOKEN)[1]
        assert producer.state.name == "OPEN"
        async with dial(relay.url) as again:
            await open_consumer(again, cid)
            assert await asyncio.wait_for(again.recv(), 5)
            assert [await asyncio.wait_for(again.recv(), 5) for _ in range(20)] == [
                data_frame(n, size) for n in range(1, 21)
            ]
        assert relay.rss_mb() - before < 14


async def test_a_held_back_stream_arrives_complete_when_the_consumer_reads_again(start_relay: Start) -> None:
    relay, total = start_relay(**UNHURRIED, ring_frames="50"), 3000
    async with dial(relay.url) as consumer, dial(relay.url) as producer:
        await pair(relay, consumer, producer)

        async def produce() -> None:
            for seq in range(1, total + 1):
                await producer.send(data_frame(seq, 1024))

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            await asyncio.sleep(0.5)
            assert isinstance(await asyncio.wait_for(consumer.recv(), 5), bytes)
            for seq in range(1, total + 1):
                assert await asyncio.wait_for(consumer.recv(), 10) == data_frame(seq, 1024)
                if not seq % 20:
                    await consumer.send(h.build_text(h.Ack(seq)))


async def test_the_rate_is_held_by_delay_and_nothing_is_lost(start_relay: Start) -> None:
    relay = start_relay(frames_per_s="100")
    async with dial(relay.url) as consumer, dial(relay.url) as producer:
        await pair(relay, consumer, producer)
        began = asyncio.get_running_loop().time()
        for seq in range(1, 201):
            await producer.send(data_frame(seq))
        await consumer.recv()
        for seq in range(1, 201):
            assert await asyncio.wait_for(consumer.recv(), 5) == data_frame(seq)
        assert 0.9 < asyncio.get_running_loop().time() - began < 4


async def test_a_browser_is_refused_before_the_upgrade(start_relay: Start) -> None:
    relay = start_relay()
    with pytest.raises(InvalidStatus) as refused:
        async with dial(relay.url, origin="https://evil.example"):
            pass
    assert refused.value.response.status_code == 403
    with pytest.raises(InvalidStatus):
        async with dial(relay.url.replace("/v1", "/v2")):
            pass


HOSTILE: list[tuple[str | bytes, int]] = [
    ("rubbish", wire.Close.MALFORMED),
    ('{"t":"open","v":2}', wire.Close.VERSION),
    ('{"t":"ack","n":1}', wire.Close.MALFORMED),
    ("[" * 2000, wire.Close.MALFORMED),
    ("x" * 4000, wire.Close.FRAME_SIZE),
    (b"\x02\x00\x00\x00\x01" + bytes(48), wire.Close.MALFORMED),
    (b"", wire.Close.MALFORMED),
    (b"x" * 200_000, 1009),
]


async def test_hostile_first_messages_are_closed_with_their_code(start_relay: Start) -> None:
    relay = start_relay(failed_opens_per_minute="1000")
    for message, code in HOSTILE:
        async with dial(relay.url) as ws:
            await challenge(ws)
            await ws.send(message)
            assert await closed_with(ws) == code, message[:20]
    rng = random.Random(7)
    for _ in range(40):
        async with dial(relay.url) as ws:
            await ws.send(rng.randbytes(rng.randrange(300)))
            assert await closed_with(ws) in (wire.Close.MALFORMED, wire.Close.FRAME_SIZE)
    assert relay.get("/healthz") == (200, "up\n")


async def test_frames_that_are_out_of_place_close_the_producer_with_their_code(start_relay: Start) -> None:
    relay = start_relay()
    cases = [
        ([data_frame(2)], wire.Close.GAP),
        ([data_frame(1, kind=wire.FrameType.CTRL)], wire.Close.MALFORMED),
        ([head_frame(b"other" + bytes(27))], wire.Close.MALFORMED),
        ([data_frame(1, kind=wire.FrameType.FIN), data_frame(2)], wire.Close.MALFORMED),
        ([data_frame(1)[:-1]], wire.Close.MALFORMED),
        ([data_frame(1) + bytes(16_640)], wire.Close.FRAME_SIZE),
        ([h.build_text(h.Ack(1))], wire.Close.MALFORMED),
    ]
    for messages, code in cases:
        async with dial(relay.url) as consumer, dial(relay.url) as producer:
            await pair(relay, consumer, producer)
            for message in messages:
                await producer.send(message)
            assert await closed_with(producer) == code


async def test_bytes_that_are_no_websocket_and_half_frames_do_no_harm(start_relay: Start) -> None:
    relay = start_relay()
    upgrade = (
        b"GET /v1 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    mask = bytes(4)
    for tail in (
        b"\x82\x05hello",
        b"\xf2\x80" + mask,
        b"\x82\xff" + bytes(8),
        b"\x82",
        b"\x80\x80" + mask,
        b"\x02\x81",
    ):
        for early in (True, False):
            reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
            writer.write(upgrade + (tail if early else b""))
            if not early:
                await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 5)
                writer.write(tail)
            await writer.drain()
            await asyncio.sleep(0.02)
            writer.close()
    async with dial(relay.url) as consumer, dial(relay.url) as producer:
        await pair(relay, consumer, producer)
        await producer.send([data_frame(1)[:20], data_frame(1)[20:]])  # one message in two WebSocket fragments
        await asyncio.wait_for(await producer.ping(), 5)
        assert isinstance(await asyncio.wait_for(consumer.recv(), 5), bytes)
        assert await asyncio.wait_for(consumer.recv(), 5) == data_frame(1)


async def test_a_sixth_failure_of_an_address_is_a_limit(start_relay: Start) -> None:
    relay = start_relay()
    codes = []
    for _ in range(6):
        async with dial(relay.url) as ws:
            with contextlib.suppress(ConnectionClosed):
                await ws.send("rubbish")
            codes.append(await closed_with(ws))
    assert codes == [wire.Close.MALFORMED] * 5 + [wire.Close.LIMIT]


async def test_unauthenticated_connections_are_limited_and_time_out(start_relay: Start) -> None:
    relay = start_relay(unauthenticated_per_address="2", open_timeout_s="0.5")
    async with dial(relay.url) as first, dial(relay.url) as second, dial(relay.url) as third:
        assert await closed_with(third) == wire.Close.LIMIT
        assert await closed_with(first) == wire.Close.TIMEOUT
        assert await closed_with(second) == wire.Close.TIMEOUT


async def test_a_parked_socket_opens_with_head_and_data_at_once(start_relay: Start) -> None:
    relay, cid, salt = start_relay(), os.urandom(16), os.urandom(32)
    async with dial(relay.url) as consumer, dial(relay.url) as parked:
        nonce = (await challenge(parked)).nonce
        await parked.send(h.build_text(sign(PRODUCER[1], nonce, NAME, h.Park(PRODUCER[0]))))
        nonce = (await challenge(parked)).nonce
        await open_consumer(consumer, cid)
        opening = sign(PRODUCER[1], nonce, NAME, h.ProducerOpen(PRODUCER[0], cid, 1, salt[:16]))
        for message in (h.build_text(opening), head_frame(salt), data_frame(1)):
            await parked.send(message)
        got = [await asyncio.wait_for(consumer.recv(), 5) for _ in range(2)]
        assert got == [head_frame(salt), data_frame(1)]


async def test_takeover_closes_the_older_consumer(start_relay: Start) -> None:
    relay, cid = start_relay(), os.urandom(16)
    async with dial(relay.url) as old, dial(relay.url) as new:
        await open_consumer(old, cid)
        await open_consumer(new, cid)
        assert await closed_with(old) == wire.Close.REPLACED


async def test_drain_tells_when_to_come_back_and_the_port_is_free_at_once(start_relay: Start) -> None:
    relay = start_relay(drain_s="1", restart_after_ms="700")
    async with dial(relay.url) as consumer, dial(relay.url) as producer, dial(relay.url) as idle:
        await pair(relay, consumer, producer)
        await challenge(idle)
        relay.process.send_signal(signal.SIGTERM)
        assert h.parse_text(await asyncio.wait_for(idle.recv(decode=True), 5)) == h.Restarting(700)
        assert await closed_with(idle) == wire.Close.RESTARTING
        await producer.send(data_frame(1))
        await asyncio.wait_for(consumer.recv(), 5)
        while not isinstance(message := await asyncio.wait_for(consumer.recv(), 5), bytes):
            assert h.parse_text(message) == h.Restarting(700)
        assert message == data_frame(1)
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", relay.port), 1)
        assert await closed_with(producer) == wire.Close.RESTARTING
        assert producer.close_reason == "after_ms=700"
    assert relay.process.wait(10) in (0, -signal.SIGTERM)


async def test_numbers_need_the_token_and_health_does_not(start_relay: Start) -> None:
    relay = start_relay()
    assert relay.get("/healthz") == (200, "up\n")
    assert relay.get("/metrics")[0] == 401
    assert relay.get("/metrics", "wrong")[0] == 401
    assert "relay_channels 0" in relay.get("/metrics", TOKEN)[1]
    assert relay.get("/nothing")[0] == 404


async def test_the_log_has_one_line_a_connection_without_ids(start_relay: Start) -> None:
    relay = start_relay()
    async with dial(relay.url) as consumer, dial(relay.url) as producer:
        cid = await pair(relay, consumer, producer)
    await asyncio.sleep(0.3)
    lines = [line for line in relay.log.read_text().splitlines() if "event=end" in line]
    assert len(lines) == 2
    assert all("outcome=left" in line and "net=127.0.0.0/24" in line for line in lines)
    assert cid.hex() not in relay.log.read_text()


async def test_a_relay_with_a_content_key_does_not_start(start_relay: Start) -> None:
    env = {"PATH": os.environ["PATH"], "STREAM_E2E_KEYS": "k1:" + "33" * 32}
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "relay"],
        env=env,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert run.returncode == 2
    assert "must not be able to read" in run.stderr
    assert "33" * 32 not in run.stderr
