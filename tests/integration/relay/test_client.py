"""The consumer client against a real relay: stored once, in order, byte-exact, through losses on every side."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, WebSocketException

from hpc_worker import handshake as h
from hpc_worker import wire
from hpc_worker.crypto import Opener, Scope, Sealer, accept_head, derive_stream
from hpc_worker.keyring import Keyring
from relay.client import Consumer, consume
from relay.subscription import Ending, Handlers, Outcome, Subscription, Timers
from tests.integration.relay.peers import (
    CONSUMER,
    NAME,
    RelayProcess,
    dial,
    open_consumer,
    open_producer,
)

Start = Callable[..., RelayProcess]
KEY = bytes(range(64, 96))
RING = Keyring.parse(f"k1:{KEY.hex()}")
SALT_C = b"c" * 32
QUICK = Timers(quiet_s=0.5, lost_s=3.0, first_frame_s=5.0, cancel_s=0.4, backoff_s=0.2)


@dataclass
class Worker:
    """An honest producer: seals, keeps what is not acknowledged, reconnects until FIN is."""

    url: str
    cid: bytes
    texts: list[bytes]
    gap_s: float = 0.0
    attempt: int = 1
    salt: bytes = field(default_factory=lambda: os.urandom(32))
    acked: int = 0
    dials: int = 0
    control: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        keys = derive_stream(KEY, Scope("k1", self.cid, self.attempt), SALT_C, self.salt)
        sealer = Sealer(keys, wire.Direction.P2C)
        self.head = wire.build_head(wire.Head("k1", self.attempt, self.salt, keys.commit))
        self.frames = [sealer.seal(wire.FrameType.DATA, wire.Kind.TEXT, text) for text in self.texts]
        self.frames.append(sealer.seal(wire.FrameType.FIN, wire.Kind.FIN, b'{"finish":"stop"}'))

    async def run(self) -> None:
        while self.acked < len(self.frames):
            self.dials += 1
            with contextlib.suppress(OSError, WebSocketException, TimeoutError, AssertionError):
                async with dial(self.url) as ws:
                    try:
                        await self._serve(ws)
                    finally:
                        if ws.close_code == wire.Close.FINISHED:
                            self.acked = len(self.frames)
            await asyncio.sleep(0.05)

    async def _serve(self, ws: ClientConnection) -> None:
        ok = await open_producer(ws, self.cid, self.salt, self.attempt)
        async with asyncio.TaskGroup() as group:
            listener = group.create_task(self._listen(ws))
            if ok.have < 0:
                await ws.send(self.head)
            for seq in range((ok.ack if ok.have < 0 else ok.have) + 1, len(self.frames) + 1):
                try:
                    await ws.send(self.frames[seq - 1])
                except ConnectionClosed:
                    break
                await asyncio.sleep(self.gap_s)
            await listener

    async def _listen(self, ws: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            async for message in ws:
                if isinstance(message, bytes):
                    self.control.append(message)
                elif isinstance(ack := h.parse_text(message), h.Ack):
                    self.acked = max(self.acked, ack.n)


@dataclass
class Store:
    """What the platform keeps. `open` verifies with the real keys."""

    cid: bytes
    texts: list[bytes] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    delay_s: float = 0.0
    opener: Opener | None = None

    def open(self, frame: bytes) -> tuple[int, bytes]:
        parsed = wire.parse_frame(frame)
        if isinstance(parsed, wire.Head):
            scope = Scope(parsed.kid, self.cid, parsed.attempt)
            self.opener = Opener(accept_head(RING, scope, SALT_C, parsed), wire.Direction.P2C)
            return 0, b""
        assert self.opener is not None
        opened = self.opener.open(frame)
        return opened.seq, opened.body

    async def store(self, items: Sequence[tuple[int, bytes]]) -> None:
        await asyncio.sleep(self.delay_s)
        self.batches.append(len(items))
        self.seqs.extend(seq for seq, _ in items)
        self.texts.extend(body for _, body in items)

    def handlers(self) -> Handlers[tuple[int, bytes]]:
        return Handlers(self.open, self.store)


def subscription(url: str, cid: bytes, **more: object) -> Subscription:
    return Subscription(url, CONSUMER[0], CONSUMER[1], cid, name=NAME, **more)  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def working(worker: Worker) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(worker.run())
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def words(count: int) -> list[bytes]:
    return [f"word {n} ".encode() * (1 + n % 5) for n in range(count)]


async def test_a_stream_is_stored_and_acknowledged_in_batches(start_relay: Start) -> None:
    relay, cid = start_relay(), os.urandom(16)
    worker, store = Worker(relay.url, cid, words(200)), Store(cid)
    async with working(worker) as task:
        ending = await asyncio.wait_for(consume(subscription(relay.url, cid), store.handlers(), QUICK), 20)
        await asyncio.wait_for(task, 5)
    assert ending == Ending(Outcome.COMPLETE, 201)
    assert store.texts[:-1] == worker.texts
    assert store.seqs == list(range(1, 202))
    assert relay.get("/metrics", "metrics-token")[1].count("relay_channels 0\n") == 1


async def test_a_consumer_process_that_dies_goes_on_from_what_it_stored(start_relay: Start) -> None:
    relay, cid = start_relay(), os.urandom(16)
    worker, store = Worker(relay.url, cid, words(120), gap_s=0.02), Store(cid)
    async with working(worker):
        for _ in range(5):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.15):
                    await consume(subscription(relay.url, cid, last=len(store.seqs)), store.handlers(), QUICK)
        last = len(store.seqs)
        ending = await asyncio.wait_for(consume(subscription(relay.url, cid, last=last), store.handlers(), QUICK), 20)
    assert ending.outcome is Outcome.COMPLETE
    assert store.seqs == list(range(1, 122))
    assert store.texts[:-1] == worker.texts


async def test_an_acknowledgement_that_was_lost_is_repeated_so_that_a_full_ring_moves_on(start_relay: Start) -> None:
    relay, cid = start_relay(ring_frames="4"), os.urandom(16)
    worker, store = Worker(relay.url, cid, words(20)), Store(cid)
    async with working(worker):
        async with dial(relay.url) as first:
            await open_consumer(first, cid)
            for _ in range(5):  # HEAD and all that fits; the ring stays full when this consumer is gone
                frame = await asyncio.wait_for(first.recv(decode=False), 5)
                if (item := store.open(frame))[0]:
                    await store.store([item])
        assert store.seqs == [1, 2, 3, 4]
        ending = await asyncio.wait_for(consume(subscription(relay.url, cid, last=4), store.handlers(), QUICK), 20)
    assert ending == Ending(Outcome.COMPLETE, 21)
    assert store.seqs == list(range(1, 22))


async def test_relay_killed_mid_stream_again_and_again_stays_byte_exact(start_relay: Start) -> None:
    relay, cid = start_relay(), os.urandom(16)
    worker, store = Worker(relay.url, cid, words(150), gap_s=0.01), Store(cid)
    timers = Timers(quiet_s=2, lost_s=15, first_frame_s=15, backoff_s=0.2)
    async with working(worker):
        consumer = asyncio.create_task(consume(subscription(relay.url, cid), store.handlers(), timers))
        for _ in range(3):
            await asyncio.sleep(random.uniform(0.3, 0.6))
            relay.kill()
            await asyncio.to_thread(relay.start)
        ending = await asyncio.wait_for(consumer, 30)
    assert ending.outcome is Outcome.COMPLETE
    assert store.seqs == list(range(1, 152))
    assert store.texts[:-1] == worker.texts
    assert worker.dials >= 2


async def test_relay_that_stays_away_is_interrupted_with_the_text_kept(start_relay: Start) -> None:
    relay, cid = start_relay(), os.urandom(16)
    worker, store = Worker(relay.url, cid, words(500), gap_s=0.02), Store(cid)
    async with working(worker):
        consumer = asyncio.create_task(consume(subscription(relay.url, cid), store.handlers(), QUICK))
        await asyncio.sleep(0.8)
        relay.kill()
        ending = await asyncio.wait_for(consumer, 15)
    assert ending.outcome is Outcome.INTERRUPTED
    assert ending.last == len(store.seqs) > 5
    assert store.texts == worker.texts[: len(store.seqs)]


async def test_no_relay_and_no_producer_are_failed(start_relay: Start) -> None:
    relay, cid = start_relay(), os.urandom(16)
    timers = Timers(first_frame_s=0.6, quiet_s=0.2, unreachable_s=0.5, backoff_s=0.1)
    nothing = await consume(subscription(relay.url, cid), Store(cid).handlers(), timers)
    assert (nothing.outcome, nothing.last) == (Outcome.FAILED, 0)
    denied = await consume(Subscription(relay.url, "c9", bytes(32), cid, name=NAME), Store(cid).handlers(), timers)
    assert (denied.outcome, denied.code) == (Outcome.FAILED, wire.Close.DENIED)
    relay.kill()
    away = await consume(subscription(relay.url, cid), Store(cid).handlers(), timers)
    assert (away.outcome, "let us in" in away.reason) == (Outcome.FAILED, True)


@pytest.mark.parametrize("what", ["bit", "key", "swap"])
async def test_forged_frames_wrong_keys_and_swapped_frames_are_damaged(start_relay: Start, what: str) -> None:
    relay, cid = start_relay(), os.urandom(16)
    worker, store = Worker(relay.url, cid, words(40)), Store(cid)
    if what == "bit":
        worker.frames[20] = worker.frames[20][:-1] + bytes([worker.frames[20][-1] ^ 1])
    elif what == "swap":
        worker.frames[20] = worker.frames[20][:5] + worker.frames[21][5:]
    else:
        worker.head = worker.head[:-1] + bytes([worker.head[-1] ^ 1])
    async with working(worker):
        ending = await asyncio.wait_for(consume(subscription(relay.url, cid), store.handlers(), QUICK), 20)
    assert ending.outcome is Outcome.DAMAGED
    assert store.texts == ([] if what == "key" else worker.texts[:20])
    assert ending.last == len(store.texts)


async def test_cancel_reaches_the_producer_and_ends_as_cancelled(start_relay: Start) -> None:
    relay, cid = start_relay(), os.urandom(16)
    worker, store = Worker(relay.url, cid, words(1000), gap_s=0.01), Store(cid)
    keys = derive_stream(KEY, Scope("k1", cid, 1), SALT_C, worker.salt)
    cancel = Sealer(keys, wire.Direction.C2P).seal(wire.FrameType.CTRL, wire.Kind.CANCEL, b"{}")
    async with working(worker):
        consumer = Consumer(subscription(relay.url, cid), store.handlers(), QUICK)
        run = asyncio.create_task(consumer.run())
        await asyncio.sleep(0.5)
        await consumer.cancel(cancel)
        ending = await asyncio.wait_for(run, 10)
    assert ending.outcome is Outcome.CANCELLED
    assert worker.control == [cancel]
    assert ending.last == len(store.seqs) > 0


async def test_a_slow_store_holds_the_stream_back_and_loses_nothing(start_relay: Start) -> None:
    relay, cid = start_relay(frames_per_s="1e9", bytes_per_s="1e12", ring_frames="64"), os.urandom(16)
    worker, store = Worker(relay.url, cid, words(1500)), Store(cid, delay_s=0.02)
    async with working(worker):
        ending = await asyncio.wait_for(consume(subscription(relay.url, cid), store.handlers(), QUICK), 40)
    assert ending.outcome is Outcome.COMPLETE
    assert store.texts[:-1] == worker.texts


async def test_an_error_of_the_store_is_not_swallowed_and_nothing_is_acknowledged(start_relay: Start) -> None:
    relay, cid = start_relay(), os.urandom(16)
    worker, store = Worker(relay.url, cid, words(10)), Store(cid)

    async def broken(items: Sequence[tuple[int, bytes]]) -> None:
        raise RuntimeError("disk full")

    async with working(worker):
        with pytest.raises(RuntimeError, match="disk full"):
            await asyncio.wait_for(consume(subscription(relay.url, cid), Handlers(store.open, broken), QUICK), 10)
        assert worker.acked == 0
        ending = await asyncio.wait_for(consume(subscription(relay.url, cid), store.handlers(), QUICK), 10)
    assert (ending.outcome, ending.last) == (Outcome.COMPLETE, 11)


async def test_a_newer_attempt_interrupts_the_consumer_of_the_older(start_relay: Start) -> None:
    relay, cid = start_relay(), os.urandom(16)
    old, new = Worker(relay.url, cid, words(400), gap_s=0.02), Worker(relay.url, cid, words(30), attempt=2)
    first, second = Store(cid), Store(cid)
    async with working(old):
        older = asyncio.create_task(consume(subscription(relay.url, cid), first.handlers(), QUICK))
        await asyncio.sleep(0.5)
        async with working(new):
            assert (await asyncio.wait_for(older, 10)).outcome is Outcome.INTERRUPTED
            newer = consume(subscription(relay.url, cid, attempt=2), second.handlers(), QUICK)
            assert (await asyncio.wait_for(newer, 10)).outcome is Outcome.COMPLETE
    assert first.texts == old.texts[: len(first.texts)]
    assert second.texts[:-1] == new.texts


async def test_fin_that_the_relay_never_heard_of_still_ends_the_producer(start_relay: Start) -> None:
    relay, cid = start_relay(), os.urandom(16)
    worker, store = Worker(relay.url, cid, words(5)), Store(cid)
    async with dial(relay.url) as ws:
        await open_consumer(ws, cid)
        async with working(worker) as task:
            ending = await consume(subscription(relay.url, cid, last=6, fin=True), store.handlers(), QUICK)
            assert ending == Ending(Outcome.COMPLETE, 6)
            await asyncio.wait_for(task, 5)
    assert worker.acked == 6
