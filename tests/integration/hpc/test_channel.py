"""What a job's channel makes of producers that are wrong: other keys, altered and missing frames."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from websockets.asyncio.client import ClientConnection

from hpc_worker import crypto, wire
from hpc_worker.bodies import Alive, Fin
from hpc_worker.keyring import Keyring
from hpc_worker.wire import Direction, FrameType, Kind
from relay.subscription import Ending, Timers
from routing.backends.hpc.channel import Item, JobChannel, Over, make_offer
from routing.backends.hpc.directory import Campus
from routing.backends.hpc.fins import ending_error
from routing.types import StateNote, TextDelta, ToolDelta
from stream_site.errors import StreamDamaged, UpstreamError
from tests.integration.relay.peers import CONSUMER, NAME, PRODUCER, RelayProcess, dial, open_producer

KEY = bytes(range(60, 92))


@pytest.fixture(scope="module")
def relay() -> Iterator[RelayProcess]:
    process = RelayProcess().start()
    yield process
    process.kill()


@pytest.fixture
def campus(relay: RelayProcess) -> Campus:
    return Campus(
        id=1,
        name="lab",
        label="Lab",
        control="process",
        model="small",
        relays={relay.url: NAME},
        content=Keyring("k1", {"k1": KEY}),
        producers=Keyring(PRODUCER[0], {PRODUCER[0]: PRODUCER[1]}),
        consumer=CONSUMER,
    )


class Producer:
    """A worker's end of one channel that seals what it is told to."""

    def __init__(self, socket: ClientConnection, keys: crypto.StreamKeys, salt_p: bytes) -> None:
        self.socket, self.keys, self.salt_p = socket, keys, salt_p
        self.sealer = crypto.Sealer(keys, Direction.P2C)

    async def head(self) -> None:
        head = wire.Head(self.keys.scope.kid, 1, self.salt_p, self.keys.commit)
        await self.socket.send(wire.build_head(head))

    async def send(self, frame_type: FrameType, kind: Kind, body: bytes, *, flip: bool = False) -> None:
        frame = bytearray(self.sealer.seal(frame_type, kind, body))
        frame[-1] ^= flip
        await self.socket.send(bytes(frame))

    async def text(self, text: str, *, flip: bool = False) -> None:
        await self.send(FrameType.DATA, Kind.TEXT, text.encode(), flip=flip)

    async def fin(self, fin: Fin) -> None:
        await self.send(FrameType.FIN, Kind.FIN, fin.dump())


@asynccontextmanager
async def job(
    campus: Campus, kid: str = "k1", key: bytes = KEY
) -> AsyncIterator[tuple[JobChannel, Producer, asyncio.Task[Ending]]]:
    """Open both ends of a new job; the producer seals with `key` under the name `kid`."""
    offer = make_offer(campus, b'{"messages":[]}', 60)
    channel = JobChannel(campus, offer, Timers(lost_s=5, unreachable_s=5))
    task = asyncio.create_task(channel.run())
    await asyncio.wait_for(channel.consumer.attached.wait(), 10)
    salt_p = os.urandom(32)
    keys = crypto.derive_stream(key, crypto.Scope(kid, offer.cid, 1), offer.salt_c, salt_p)
    async with dial(offer.relay) as socket:
        await open_producer(socket, offer.cid, salt_p)
        producer = Producer(socket, keys, salt_p)
        await producer.head()
        yield channel, producer, task
    task.cancel()
    await asyncio.wait({task})


async def items(channel: JobChannel) -> list[Item]:
    """Return everything up to the end."""
    found: list[Item] = []
    while not found or not isinstance(found[-1], (Fin, Over)):
        item = await channel.next(10)
        assert item is not None
        found.append(item)
    return found


def error_of(channel: JobChannel, last: Item, *, text_seen: bool) -> UpstreamError:
    assert isinstance(last, Over)
    return ending_error(last.ending, channel.seal.fault, text_seen=text_seen)


async def test_every_kind_of_frame_becomes_its_event(campus: Campus) -> None:
    async with job(campus) as (channel, producer, task):
        await producer.send(FrameType.ALIVE, Kind.ALIVE, Alive("loading").dump())
        call = {"index": 0, "id": "call-1", "name": "find", "arguments": '{"a":'}
        await producer.send(FrameType.DATA, Kind.TOOL, json.dumps(call).encode())
        await producer.text("ok")
        fin = Fin("tool", data_frames=2, data_bytes=len(json.dumps(call)) + 2)
        await producer.fin(fin)
        assert await items(channel) == [
            StateNote("loading"),
            ToolDelta(0, "call-1", "find", '{"a":'),
            TextDelta("ok"),
            fin,
        ]
        assert (await asyncio.wait_for(task, 10)).outcome == "complete"


async def test_an_altered_frame_damages_and_what_came_before_is_kept(campus: Campus) -> None:
    async with job(campus) as (channel, producer, _):
        await producer.text("good ")
        await producer.text("evil", flip=True)
        got = await items(channel)
        assert got[:-1] == [TextDelta("good ")]
        error = error_of(channel, got[-1], text_seen=True)
        assert isinstance(error, StreamDamaged)
        assert "altered" in error.happened
        assert "saved" in error.kept


@pytest.mark.parametrize(
    ("kid", "key", "words"), [("k1", bytes(range(32)), "another end-to-end key"), ("k9", KEY, "does not know")]
)
async def test_another_key_is_said_and_names_where_to_look(campus: Campus, kid: str, key: bytes, words: str) -> None:
    async with job(campus, kid, key) as (channel, producer, _):
        await producer.text("unreadable")
        (last,) = await items(channel)
        error = error_of(channel, last, text_seen=False)
        assert type(error) is UpstreamError
        assert words in error.happened
        assert "hpc_keys list" in error.todo


async def test_a_missing_end_is_noticed_by_the_count(campus: Campus) -> None:
    async with job(campus) as (channel, producer, _):
        await producer.text("one")
        await producer.fin(Fin("stop", data_frames=2, data_bytes=6))
        got = await items(channel)
        assert "missing" in error_of(channel, got[-1], text_seen=True).happened


async def test_two_jobs_share_neither_channel_nor_salt_nor_box(campus: Campus) -> None:
    one, two = (make_offer(campus, b"same", 60) for _ in range(2))
    assert one.cid != two.cid
    assert one.salt_c != two.salt_c
    assert one.prompt != two.prompt
    scope = crypto.Scope("k1", one.cid, 1)
    assert crypto.open_request(KEY, scope, one.salt_c, one.prompt) == b"same"
    with pytest.raises(crypto.CryptoError):
        crypto.open_request(KEY, replace(scope, cid=two.cid), one.salt_c, one.prompt)
