"""Parked sockets: held ready, handed out once, replaced when taken or lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from hpc_worker import bodies, crypto
from hpc_worker.keyring import Keyring
from hpc_worker.parking import MAX_PARKED, Lot
from hpc_worker.producer import Control, Identity
from hpc_worker.push import Pusher, PushJob
from hpc_worker.wire import Kind
from tests.fakes.mini_relay import MiniRelay

KEY = bytes(range(32))
ADMISSION = Keyring.parse("p1:" + "5a" * 32)
P1 = ("p1", ADMISSION.keys["p1"])


async def until(condition: Callable[[], bool], timeout_s: float = 5) -> None:
    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), timeout_s)


def ignore(_: Control) -> None:
    """Take no instruction."""


async def test_a_taken_socket_carries_an_answer_and_is_replaced() -> None:
    async with MiniRelay(ADMISSION) as relay:
        lot = Lot(relay.url, relay.name, P1, 3)
        lot.fill()
        await until(lambda: lot.free == 3)
        assert relay.parks == 3
        parked = await lot.take()
        assert parked is not None
        assert lot.free == 2
        salt_c, salt_p = os.urandom(32), os.urandom(32)
        keys = crypto.derive_stream(KEY, crypto.Scope("k1", os.urandom(16), 1), salt_c, salt_p)
        who = Identity(keys, salt_p, *P1, relay.name)
        async with Pusher(PushJob(relay.url, who, KEY, salt_c, 10, eager=True), ignore, parked=parked) as pusher:
            await pusher.send(Kind.TEXT, "hello")
            assert (await pusher.finish(bodies.Fin("stop"))).outcome == "delivered"
            assert pusher.connections == 1
        await until(lambda: lot.free == 3)
        assert relay.parks == 4
        await lot.close()


async def test_a_lost_socket_is_replaced() -> None:
    async with MiniRelay(ADMISSION) as relay:
        lot = Lot(relay.url, relay.name, P1, 2)
        lot.fill()
        await until(lambda: lot.free == 2)
        for socket in relay.sockets:
            socket.transport.abort()
        await until(lambda: relay.parks == 4 and lot.free == 2)
        await lot.close()


async def test_an_empty_lot_hands_out_nothing_and_closing_leaves_nothing() -> None:
    async with MiniRelay(ADMISSION) as relay:
        before = len(asyncio.all_tasks())
        lot = Lot(relay.url, relay.name, P1, 0)
        lot.fill()
        assert await lot.take() is None
        lot = Lot(relay.url, relay.name, P1, 2)
        lot.fill()
        assert await lot.take() is None, "none is ready yet"
        await until(lambda: lot.free == 2)
        await lot.close()
        assert lot.free == 0
        assert await lot.take() is None
        await asyncio.sleep(0.1)
        assert len(asyncio.all_tasks()) <= before


async def test_a_denied_lot_keeps_trying_slowly() -> None:
    async with MiniRelay(Keyring.parse("p1:" + "77" * 32)) as relay:
        lot = Lot(relay.url, relay.name, P1, 1)
        lot.fill()
        await asyncio.sleep(1.0)
        assert lot.free == 0
        assert 2 <= len(relay.sockets) <= 8
        await lot.close()


def test_a_lot_is_never_larger_than_the_protocol_allows() -> None:
    assert Lot("ws://127.0.0.1:9/v1", "r", P1, 500)._size == MAX_PARKED
