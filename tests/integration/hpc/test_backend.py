"""The campus backend against a real relay, a real dispatcher and real workers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import redis

from hpc_worker.bodies import Fin
from relay.subscription import Timers
from routing.backends.hpc import watch as watch_module
from routing.backends.hpc.backend import HpcBackend, request_of
from routing.backends.hpc.channel import JobChannel, make_offer
from routing.backends.hpc.desk import Desk, Status, key, unix_now
from routing.types import Finish, ReasoningDelta, StateNote, TextDelta, UsageReport
from stream_site.errors import StreamBroken, UpstreamBusy, UpstreamError, UpstreamTimeout
from tests.fakes import scripts
from tests.fakes.formats import chunk
from tests.integration.hpc.rig import (
    QUICK,
    CampusRig,
    call,
    collect,
    collect_until_error,
    kill,
    secrets_of,
    seen_of,
    text_of,
)

Make = Callable[..., HpcBackend]
WORDS = ("你好 🌍 é\n", "\n", "    ", "if x:\r\n", "\t\t", "end  ")


def slowly(count: int, every_s: float = 0.02) -> scripts.Steps:
    """Return an answer of `count` numbered words, one at a time."""
    steps = scripts.events(chunk({"role": "assistant"}))
    for n in range(count):
        steps += [*scripts.events(chunk({"content": f"{n} "})), {"sleep": every_s}]
    return [*steps, *scripts.openai_end()]


def numbered(count: int) -> str:
    return "".join(f"{n} " for n in range(count))


async def test_text_is_exact_then_usage_then_the_finish(rig: CampusRig, backend: HpcBackend) -> None:
    rig.upstream.script(scripts.openai(*WORDS))
    events = await collect(backend.stream(call()))
    assert text_of(events) == "".join(WORDS)
    assert [type(event) for event in events[-2:]] == [UsageReport, Finish]
    assert events[-1] == Finish("stop")
    assert isinstance(events[-2], UsageReport)
    assert (events[-2].usage.prompt, events[-2].usage.completion) == (7, 3)
    states = [event.state for event in events if isinstance(event, StateNote)]
    assert states[0] == "submitted"
    assert "queued" in states
    assert rig.upstream.last()["body"]["messages"] == [{"role": "user", "content": "Hello?"}]


async def test_thinking_is_kept_apart(rig: CampusRig, backend: HpcBackend) -> None:
    rig.upstream.script(scripts.vllm_reasoning(["hm ", "so"], ["yes"], "reasoning"))
    events = await collect(backend.stream(call()))
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "hm so"
    assert text_of(events) == "yes"


async def test_leaving_closes_the_models_stream_within_a_second(rig: CampusRig, backend: HpcBackend) -> None:
    rig.upstream.script(slowly(2000))
    stream = backend.stream(call())
    async for event in stream:
        if isinstance(event, TextDelta) and event.text.startswith("3"):
            break
    left = time.monotonic()
    await stream.aclose()
    assert time.monotonic() - left < 0.2
    closed = await asyncio.to_thread(rig.upstream.wait_for, "disconnected")
    assert closed - left < 1.0


async def test_a_killed_worker_is_an_interruption_and_another_takes_its_place(rig: CampusRig, make: Make) -> None:
    rig.upstream.script(slowly(2000))
    backend = make(replace(QUICK, between_text_s=3))
    events = []
    error: Exception | None = None
    try:
        async for event in backend.stream(call()):
            events.append(event)
            if isinstance(event, TextDelta) and len(events) == 20:
                for pid in rig.workers():
                    kill(pid)
    except StreamBroken as broken:
        error = broken
    assert error is not None
    assert text_of(events) == numbered(2000)[: len(text_of(events))] != ""
    rig.upstream.reset()
    rig.upstream.script(scripts.openai("again"))
    assert text_of(await collect(backend.stream(call()))) == "again"


async def test_a_relay_that_restarts_costs_nothing(rig: CampusRig, backend: HpcBackend) -> None:
    rig.upstream.script(slowly(150))
    events = []
    async for event in backend.stream(call()):
        events.append(event)
        if len(events) == 20:
            await asyncio.to_thread(rig.restart_relay)
    assert text_of(events) == numbered(150)
    assert events[-1] == Finish("stop")


async def test_a_duplicate_offer_is_answered_once(rig: CampusRig, desk: Desk) -> None:
    rig.upstream.script(slowly(30))
    campus = rig.campus()
    offer = make_offer(campus, request_of(call()), 60)
    channel = JobChannel(campus, offer, Timers())
    task = asyncio.create_task(channel.run())
    await asyncio.wait_for(channel.consumer.attached.wait(), 10)
    for _ in range(3):
        await desk.submit("lab", offer, unix_now() + 30)
    text = ""
    while not isinstance(item := await channel.next(20), Fin):
        assert item is not None
        text += item.text if isinstance(item, TextDelta) else ""
    await desk.submit("lab", offer, unix_now() + 30)
    await asyncio.wait_for(task, 10)
    assert text == numbered(30)
    await asyncio.sleep(0.5)
    assert len(rig.upstream.log()) == 1
    await desk.say("lab", "done", offer.cid)


async def test_the_models_refusal_is_said_in_words(rig: CampusRig, backend: HpcBackend) -> None:
    rig.upstream.script([{"status": 503, "headers": {}, "body": "full"}])
    _, error = await collect_until_error(backend.stream(call()))
    assert isinstance(error, UpstreamBusy)
    assert "HTTP 503" in error.happened


async def test_neither_prompt_nor_key_is_anywhere_on_the_way(rig: CampusRig, make: Make) -> None:
    question = call("The canary sings at dawn.")
    stream = make(name="unattended").stream(question)
    assert [(await anext(stream)), (await anext(stream)).state] == [StateNote("submitted"), "submitted"]  # type: ignore[union-attr]
    with redis.Redis.from_url(rig.site.env["REDIS_URL"], decode_responses=True) as kv:
        (offer,) = kv.lrange(key("unattended", "inbox"), 0, -1)  # type: ignore[misc]
    await stream.aclose()
    assert json.loads(offer)["t"] == "offer"
    await collect(make().stream(question))
    dispatcher, workers = rig.site.processes["campus"].pid, rig.workers()
    assert workers
    texts = [offer, *map(seen_of, [dispatcher, *workers])]
    texts += [rig.site.log_of(name).decode() for name in ("campus", "relay")]
    for word in ("canary", b"canary".hex(), *secrets_of(rig.keys)):
        assert not any(word in text for text in texts)


async def test_no_dispatcher_is_said_soon(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_module, "DISPATCHER_WAIT_S", 1.0)
    backend = make(name="nowhere")
    began = time.monotonic()
    events, error = await collect_until_error(backend.stream(call()))
    assert time.monotonic() - began < 4
    assert type(error) is UpstreamError
    assert "dispatcher is not running" in error.happened
    assert StateNote("submitted", "waiting for the campus dispatcher") in events


async def test_no_worker_is_said_with_the_reason_at_the_deadline(make: Make, desk: Desk) -> None:
    backend = make(replace(QUICK, worker_s=1.5), name="asleep")
    await desk.publish("asleep", Status(why="The cluster is being serviced."))
    events, error = await collect_until_error(backend.stream(call()))
    assert isinstance(error, UpstreamTimeout)
    assert "within 1.5 s. The cluster is being serviced." in error.happened
    assert StateNote("queued", "The cluster is being serviced.") in events


async def test_a_relay_that_is_away_is_said(make: Make) -> None:
    backend = make(replace(QUICK, relay_s=2), relays={"ws://127.0.0.1:9/v1": "relay.test"})
    _, error = await collect_until_error(backend.stream(call()))
    assert "relay" in error.happened
