"""The pusher against a scripted relay over real sockets."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from hpc_worker import bodies, crypto
from hpc_worker.dial import dial
from hpc_worker.keyring import Keyring
from hpc_worker.producer import Control, Identity
from hpc_worker.push import Parked, Pusher, PushJob, PushStopped, PushTimeout
from hpc_worker.transcript import open_transcript
from hpc_worker.wire import Direction, FrameType, Head, Kind, parse_frame
from tests.fakes.mini_relay import MiniRelay

KEY = bytes(range(32))
ADMISSION = Keyring.parse("p1:" + "5a" * 32)


def make_job(relay: MiniRelay, **changes: Any) -> PushJob:
    salt_c, salt_p = os.urandom(32), os.urandom(32)
    keys = crypto.derive_stream(KEY, crypto.Scope("k1", os.urandom(16), 1), salt_c, salt_p)
    who = Identity(keys, salt_p, "p1", ADMISSION.keys["p1"], relay.name)
    given: dict[str, Any] = {"relay_url": relay.url, "identity": who, "key": KEY, "salt_c": salt_c, "deadline_s": 10.0}
    return PushJob(**{**given, **changes})


def read(relay: MiniRelay, job: PushJob) -> list[crypto.Opened]:
    """Open what arrived as the platform does: through HEAD."""
    assert relay.head is not None
    head = parse_frame(relay.head)
    assert isinstance(head, Head)
    keys = crypto.accept_head(Keyring("k1", {"k1": KEY}), job.identity.keys.scope, job.salt_c, head)
    opener = crypto.Opener(keys, Direction.P2C)
    return [opener.open(relay.frames[seq]) for seq in sorted(relay.frames)]


def text_of(opened: list[crypto.Opened]) -> str:
    return b"".join(o.body for o in opened if o.kind is Kind.TEXT).decode()


def ignore(_: Control) -> None:
    """Take no instruction."""


WORDS = [f"wörd-{n} " for n in range(300)]


async def push_words(pusher: Pusher, pause_s: float = 0.0) -> None:
    for word in WORDS:
        await pusher.send(Kind.TEXT, word)
        await asyncio.sleep(pause_s)


async def test_a_stream_arrives_whole_and_counted() -> None:
    async with MiniRelay(ADMISSION) as relay:
        job = make_job(relay)
        async with Pusher(job, ignore) as pusher:
            assert await pusher.won()
            await push_words(pusher)
            result = await pusher.finish(bodies.Fin("stop", usage=bodies.Usage(5, 7)))
        assert result.outcome == "delivered"
        assert result.transcript is None
        opened = read(relay, job)
        assert text_of(opened) == "".join(WORDS)
        fin = bodies.Fin.load(opened[-1].body)
        assert fin.finish == "stop"
        assert fin.usage == bodies.Usage(5, 7)
        data = [o for o in opened if o.type is FrameType.DATA]
        assert (fin.data_frames, fin.data_bytes) == (len(data), sum(len(o.body) for o in data))


async def test_the_first_token_leaves_at_once_and_the_rest_is_joined() -> None:
    async with MiniRelay(ADMISSION) as relay:
        job = make_job(relay)
        async with Pusher(job, ignore) as pusher:
            assert await pusher.won()
            started = time.monotonic()
            await pusher.send(Kind.TEXT, "first")
            while not relay.frames:
                await asyncio.sleep(0)
            assert time.monotonic() - started < 0.02
            for _ in range(10):
                await pusher.send(Kind.TEXT, "x")
            await asyncio.sleep(0.01)
            assert relay.stored == 1, "ten small pieces wait for 25 ms"
            await asyncio.sleep(0.06)
            assert relay.stored == 2
            await pusher.finish(bodies.Fin("stop"))
        assert [o.body for o in read(relay, job)][:2] == [b"first", b"x" * 10]


@pytest.mark.parametrize("cuts", [[1], [2, 4, 5, 3], [0, 0, 2]])
async def test_cuts_are_resumed_without_gap_or_repeat(cuts: list[int]) -> None:
    async with MiniRelay(ADMISSION, script=[{"cut_after": n} for n in cuts]) as relay:
        job = make_job(relay)
        async with Pusher(job, ignore) as pusher:
            await push_words(pusher, 0.002)
            result = await pusher.finish(bodies.Fin("stop"))
            assert pusher.connections == len(cuts) + 1
        assert result.outcome == "delivered"
        assert text_of(read(relay, job)) == "".join(WORDS)


async def test_a_restarted_relay_gets_head_again() -> None:
    script = [{"cut_after": 6}, {"forget": True, "cut_after": 7}, {"forget": True}]
    async with MiniRelay(ADMISSION, script=script) as relay:
        job = make_job(relay)
        async with Pusher(job, ignore) as pusher:
            await push_words(pusher, 0.002)
            assert (await pusher.finish(bodies.Fin("stop"))).outcome == "delivered"
        assert text_of(read(relay, job)) == "".join(WORDS)


async def test_the_reason_of_a_close_says_when_to_come_back() -> None:
    relay = MiniRelay(ADMISSION, script=[{"close": (4430, 0, "after_ms=400")}])
    async with relay, Pusher(make_job(relay), ignore) as pusher:
        started = time.monotonic()
        assert await pusher.won()
        assert time.monotonic() - started > 0.35
        assert (await pusher.finish(bodies.Fin("stop"))).outcome == "delivered"


async def test_no_channel_yet_is_retried_and_a_restart_notice_is_kept() -> None:
    script: list[dict[str, Any]] = [
        {"close": (4404, 0)},
        {"close": (4404, 0)},
        {"say": '{"t":"restarting","after_ms":400}', "cut_after": 2},
    ]
    async with MiniRelay(ADMISSION, script=script) as relay, Pusher(make_job(relay), ignore) as pusher:
        assert await pusher.won()
        assert len(relay.opens) == 3
        await push_words(pusher)
        started = time.monotonic()
        while len(relay.opens) < 4:
            await asyncio.sleep(0.01)
        assert time.monotonic() - started > 0.3
        assert (await pusher.finish(bodies.Fin("stop"))).outcome == "delivered"


@pytest.mark.parametrize(
    ("code", "outcome"), [(4409, "replaced"), (4410, "finished"), (4412, "stale_attempt"), (4402, "version")]
)
async def test_final_codes_end_it(code: int, outcome: str) -> None:
    async with MiniRelay(ADMISSION, script=[{"close": (code, 0)}] * 9) as relay:
        async with Pusher(make_job(relay), ignore) as pusher:
            assert not await pusher.won()
            assert pusher.outcome == outcome
        assert len(relay.opens) == 1


async def test_a_fenced_worker_is_told_to_stop_the_model() -> None:
    async with MiniRelay(ADMISSION, script=[{}]) as relay, Pusher(make_job(relay), ignore) as pusher:
        assert await pusher.won()
        await pusher.send(Kind.TEXT, "a")
        await relay.sockets[-1].close(4412)
        with pytest.raises(PushStopped, match="stale_attempt"):
            await push_words(pusher, 0.005)


async def test_a_wrong_admission_key_is_denied_and_the_answer_comes_back_sealed() -> None:
    async with MiniRelay(Keyring.parse("p1:" + "77" * 32)) as relay:
        job = make_job(relay)
        async with Pusher(job, ignore) as pusher:
            assert not await pusher.won()
            assert pusher.outcome == "denied"
            await push_words(pusher)
            result = await pusher.finish(bodies.Fin("stop"))
    assert text_in(job, result.transcript) == "".join(WORDS)


def text_in(job: PushJob, transcript: bytes | None) -> str:
    assert transcript is not None
    ring = Keyring("k1", {"k1": KEY})
    records = open_transcript(ring, job.identity.keys.scope, job.salt_c, transcript)
    assert records[-1].type is FrameType.FIN
    return b"".join(r.body for r in records if r.kind is Kind.TEXT).decode()


async def test_a_relay_that_is_down_costs_the_deadline_not_the_answer() -> None:
    async with MiniRelay(ADMISSION) as relay:
        job = make_job(relay, relay_url="ws://127.0.0.1:9/v1", deadline_s=1.0)
    async with Pusher(job, ignore) as pusher:
        await push_words(pusher)
        result = await pusher.finish(bodies.Fin("length"))
    assert result.outcome == "deadline"
    assert "refused" in pusher.last_error.lower() or "connect" in pusher.last_error.lower()
    assert text_in(job, result.transcript) == "".join(WORDS)


async def test_a_full_queue_holds_the_model_back() -> None:
    async with MiniRelay(ADMISSION, acking=False) as relay:
        job = make_job(relay, max_unacked=20_000)
        async with Pusher(job, ignore) as pusher:
            assert await pusher.won()
            task = asyncio.create_task(push_words_of(pusher, 100, "z" * 600))
            await asyncio.sleep(0.3)
            assert not task.done()
            held = relay.stored
            assert 20_000 / 700 - 2 < held < 20_000 / 600 + 2
            await asyncio.sleep(0.2)
            assert relay.stored == held, "not one more frame without an ack"
            relay.acking = True
            await relay.ack(relay.stored)
            await asyncio.wait_for(task, 5)
            assert (await pusher.finish(bodies.Fin("stop"))).outcome == "delivered"
        assert text_of(read(relay, job)) == "z" * 60_000


async def push_words_of(pusher: Pusher, count: int, word: str) -> None:
    for _ in range(count):
        await pusher.send(Kind.TEXT, word)


async def test_a_consumer_that_takes_nothing_ends_in_a_timeout_and_a_transcript() -> None:
    async with MiniRelay(ADMISSION, acking=False) as relay:
        job = make_job(relay, max_unacked=5_000, deadline_s=1.0)
        async with Pusher(job, ignore) as pusher:
            with pytest.raises(PushTimeout):
                await push_words_of(pusher, 100, "z" * 600)
            result = await pusher.finish(bodies.Fin("error", error="consumer_gone"))
    assert result.outcome == "deadline"
    assert set(text_in(job, result.transcript)) == {"z"}


async def test_cancel_reaches_the_worker_and_a_forged_one_does_not() -> None:
    got: list[Control] = []
    async with MiniRelay(ADMISSION) as relay:
        job = make_job(relay)
        async with Pusher(job, got.append) as pusher:
            assert await pusher.won()
            sealer = crypto.Sealer(job.identity.keys, Direction.C2P)
            good = sealer.seal(FrameType.CTRL, Kind.CANCEL, bodies.dump_cancel("user"))
            forged = good[:-1] + bytes((good[-1] ^ 1,))
            for frame in (forged, good, good):
                await relay.sockets[-1].send(frame)
            await asyncio.sleep(0.05)
            assert [c.kind for c in got] == [Kind.CANCEL]
            result = await pusher.finish(bodies.Fin("cancelled"))
        assert result.outcome == "delivered"


async def test_silence_is_filled_with_alive() -> None:
    async with MiniRelay(ADMISSION) as relay:
        job = make_job(relay, alive_every_s=0.05)
        async with Pusher(job, ignore) as pusher:
            assert await pusher.won()
            pusher.state("prefill")
            await asyncio.sleep(0.28)
            await pusher.send(Kind.TEXT, "done")
            await pusher.finish(bodies.Fin("stop"))
        opened = read(relay, job)
        alive = [o for o in opened if o.kind is Kind.ALIVE]
        assert 4 <= len(alive) <= 7
        assert bodies.Alive.load(alive[0].body).state == "prefill"
        assert opened[-2].body == b"done"


async def parked(relay: MiniRelay) -> Parked:
    socket = await dial(relay.url)
    challenge = await asyncio.wait_for(socket.recv(), 5)
    assert isinstance(challenge, str)
    return Parked(socket, challenge)


async def test_an_eager_parked_socket_sends_text_with_its_open() -> None:
    async with MiniRelay(ADMISSION) as relay:
        job = make_job(relay, eager=True)
        async with Pusher(job, ignore, parked=await parked(relay)) as pusher:
            await push_words(pusher)
            assert (await pusher.finish(bodies.Fin("stop"))).outcome == "delivered"
            assert pusher.connections == 1
        assert text_of(read(relay, job)) == "".join(WORDS)


async def test_an_eager_stream_survives_a_refused_first_open() -> None:
    async with MiniRelay(ADMISSION, script=[{"close": (4404, 0.05)}, {"cut_after": 2}]) as relay:
        job = make_job(relay, eager=True)
        async with Pusher(job, ignore) as pusher:
            await push_words(pusher, 0.001)
            assert (await pusher.finish(bodies.Fin("stop"))).outcome == "delivered"
        assert text_of(read(relay, job)) == "".join(WORDS)


@pytest.mark.parametrize(
    "say", ["not json", '{"t":"ack","n":99999}', '{"t":"ok","epoch":"00","have":1,"ack":1}', b"\x01junk"]
)
async def test_a_relay_that_talks_nonsense_is_dialled_anew(say: Any) -> None:
    async with MiniRelay(ADMISSION, script=[{"say": say}]) as relay:
        job = make_job(relay)
        async with Pusher(job, ignore) as pusher:
            await push_words(pusher, 0.001)
            assert (await pusher.finish(bodies.Fin("stop"))).outcome == "delivered"
            assert pusher.connections == 2
        assert text_of(read(relay, job)) == "".join(WORDS)


async def test_closing_in_the_middle_leaves_no_task_behind() -> None:
    before: Callable[[], int] = lambda: len(asyncio.all_tasks())  # noqa: E731
    async with MiniRelay(ADMISSION) as relay:
        tasks = before()
        async with Pusher(make_job(relay), ignore) as pusher:
            assert await pusher.won()
            await pusher.send(Kind.TEXT, "half")
        await asyncio.sleep(0.05)
        assert before() <= tasks
