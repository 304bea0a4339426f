"""Jobs with a task of their own: streamed when no resident worker may run, whole when the relay cannot be reached."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

import pytest

from routing.backends.hpc.backend import HpcBackend
from routing.types import BackendEvent, Finish, StateNote, TextDelta, Trace
from stream_site.errors import StreamBroken, UpstreamError
from tests.fakes import scripts
from tests.integration.hpc.rig import QUICK, CampusRig, call, collect, kill, text_of
from tests.integration.hpc.test_backend import WORDS, numbered, slowly
from tests.site import wait_until

Make = Callable[..., HpcBackend]


@pytest.fixture(scope="module")
def endpoints(rig_process: CampusRig) -> Iterator[CampusRig]:
    """Add an endpoint without resident workers and one without a way to the relay, while everything runs."""
    rig_process.add_endpoints(solo={"max_workers": 0}, batch={"batch_only": 1})
    yield rig_process
    for name in ("solo", "batch"):
        rig_process.change(name, enabled=0)


@pytest.fixture
def relay_back(rig: CampusRig) -> Iterator[None]:
    """Start the relay again after a test that ended it."""
    yield
    if "relay" not in rig.site.processes:
        rig.start_relay()


def way_of(events: list[BackendEvent]) -> dict[str, object]:
    (way,) = [event for event in events if isinstance(event, Trace)]
    return dict(way.facts)


async def test_without_resident_workers_a_task_streams_the_answer(
    endpoints: CampusRig, rig: CampusRig, make: Make
) -> None:
    rig.upstream.script(scripts.openai(*WORDS))
    events = await collect(make(name="solo").stream(call()))
    assert text_of(events) == "".join(WORDS)
    assert events[-1] == Finish("stop")
    way = way_of(events)
    assert (way["endpoint"], way["mode"], way["merged"]) == ("solo", "task", False)
    assert str(way["job"]).startswith("process ")
    assert way["relay_bytes"]
    assert len(rig.upstream.log()) == 1


async def test_two_questions_get_two_tasks_at_once(endpoints: CampusRig, rig: CampusRig, make: Make) -> None:
    rig.upstream.script(slowly(40), times=2)
    backend = make(name="solo")
    answers = await asyncio.gather(*(collect(backend.stream(call())) for _ in range(2)))
    assert [text_of(events) for events in answers] == [numbered(40)] * 2
    assert len({way_of(events)["job"] for events in answers}) == 2


async def test_leaving_a_task_ends_it(endpoints: CampusRig, rig: CampusRig, make: Make) -> None:
    rig.upstream.script(slowly(2000))
    stream = make(name="solo").stream(call())
    async for event in stream:
        if isinstance(event, TextDelta):
            break
    before = set(rig.workers())
    left = time.monotonic()
    await stream.aclose()
    assert await asyncio.to_thread(rig.upstream.wait_for, "disconnected") - left < 1.0
    await asyncio.to_thread(wait_until, lambda: len(set(rig.workers()) & before) < len(before), "the task's end", 10)


async def test_a_killed_task_is_said_long_before_the_time_limit(
    endpoints: CampusRig, rig: CampusRig, make: Make
) -> None:
    rig.upstream.script(slowly(2000))
    resident = set(rig.workers())
    events: list[BackendEvent] = []
    killed = 0.0

    async def read() -> None:
        nonlocal killed
        async for event in make(replace(QUICK, between_text_s=60), name="solo").stream(call()):
            events.append(event)
            if isinstance(event, TextDelta) and not killed:
                killed = time.monotonic()
                for pid in set(rig.workers()) - resident:
                    kill(pid)

    with pytest.raises(StreamBroken, match="exit code -9"):
        await read()
    assert time.monotonic() - killed < 25
    assert text_of(events) == numbered(2000)[: len(text_of(events))] != ""


async def cut(
    rig: CampusRig, stream: AsyncIterator[BackendEvent], when: Callable[[BackendEvent], bool]
) -> list[BackendEvent]:
    """Collect a stream; end the relay for good when `when` holds for the first time."""
    events = []
    async for event in stream:
        events.append(event)
        if "relay" in rig.site.processes and when(event):
            await asyncio.to_thread(rig.stop_relay)
    return events


def is_queued(event: BackendEvent) -> bool:
    return isinstance(event, StateNote) and event.state != "submitted"


async def test_a_batch_that_has_no_relay_from_the_start_answers_too(
    endpoints: CampusRig, rig: CampusRig, make: Make, relay_back: None
) -> None:
    rig.upstream.script(scripts.openai("whole"))
    await asyncio.to_thread(rig.stop_relay)
    assert text_of(await collect(make(name="batch", batch_only=True).stream(call()))) == "whole"


async def test_a_batch_answers_whole_where_no_relay_is_reached(
    endpoints: CampusRig, rig: CampusRig, make: Make, relay_back: None
) -> None:
    rig.upstream.script(scripts.openai(*WORDS))
    stream = make(name="batch").stream(call())
    events = await cut(rig, stream, is_queued)
    assert text_of(events) == "".join(WORDS)
    assert events[-1] == Finish("stop")
    way = way_of(events)
    assert (way["mode"], way["merged"], way["relay_frames"]) == ("batch", True, 0)
    assert len(rig.upstream.log()) == 1


@pytest.mark.parametrize("name", ["batch", "solo", "lab"])
async def test_an_answer_cut_in_the_middle_is_completed_without_a_word_twice(
    endpoints: CampusRig, rig: CampusRig, make: Make, relay_back: None, name: str
) -> None:
    """`lab` has a resident worker: it gives up, and returns what no relay took when it ends."""
    rig.upstream.script(slowly(150))
    backend = make(replace(QUICK, between_text_s=30), name=name, batch_only=name == "batch")
    events = await cut(rig, backend.stream(call()), lambda event: isinstance(event, TextDelta) and "20" in event.text)
    assert text_of(events) == numbered(150)
    assert events[-1] == Finish("stop")
    assert way_of(events)["merged"]
    assert len(rig.upstream.log()) == 1


async def test_a_task_that_meets_no_relay_asks_no_model(
    endpoints: CampusRig, rig: CampusRig, make: Make, relay_back: None
) -> None:
    rig.upstream.script(scripts.openai("never"))
    stream = make(replace(QUICK, worker_s=4), name="solo").stream(call())
    with pytest.raises(UpstreamError):
        await cut(rig, stream, is_queued)
    assert rig.upstream.log() == []
