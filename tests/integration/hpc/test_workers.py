"""Resident workers and their dispatchers come and go: no job is lost, none is generated twice, no node is kept."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest
import redis

from hpc_worker.keyring import Keyring
from routing.backends.hpc.backend import HpcBackend
from routing.backends.hpc.desk import key
from routing.types import StateNote
from stream_site.errors import UpstreamError
from tests.fakes import scripts
from tests.integration.hpc.rig import CampusRig, call, collect, collect_until_error, text_of
from tests.integration.hpc.test_backend import numbered, slowly
from tests.site import wait_until

Make = Callable[..., HpcBackend]


@pytest.fixture(scope="module")
def brief(rig_process: CampusRig) -> Iterator[CampusRig]:
    """Add an endpoint whose one worker ends after a second without a question."""
    rig_process.add_endpoints(brief={"idle_s": 1, "max_workers": 1})
    yield rig_process
    rig_process.change("brief", enabled=0)


def lists_of(rig: CampusRig, name: str) -> tuple[int, int]:
    """Return how many messages wait for the dispatcher, and how many it took and has not dealt with."""
    with redis.Redis.from_url(rig.site.env["REDIS_URL"]) as kv:
        return int(kv.llen(key(name, "inbox"))), int(kv.llen(key(name, "taken")))  # type: ignore[arg-type]


def said(rig: CampusRig, words: str) -> int:
    return rig.site.log_of("campus").count(words.encode())


async def test_an_idle_worker_is_told_to_end_and_the_next_question_starts_another(
    brief: CampusRig, rig: CampusRig, make: Make
) -> None:
    before = set(rig.workers())
    for question in ("one", "two"):
        rig.upstream.script(scripts.openai(question))
        assert text_of(await collect(make(name="brief").stream(call()))) == question
        (worker,) = set(rig.workers()) - before
        await asyncio.to_thread(wait_until, lambda pid=worker: pid not in rig.workers(), "the worker's end", 15)
    assert said(rig, "brief: a worker was idle for 1 s and is told to end") >= 2
    assert said(rig, "the dispatcher ends this worker") >= 2


async def test_no_more_than_max_workers_are_started(brief: CampusRig, rig: CampusRig, make: Make) -> None:
    before = set(rig.workers())
    rig.upstream.script(slowly(60), times=20)
    backend = make(name="brief")
    asked = [asyncio.create_task(collect(backend.stream(call()))) for _ in range(20)]  # a worker has 16 places
    most = 0
    while not all(task.done() for task in asked):
        most = max(most, len(set(rig.workers()) - before))
        await asyncio.sleep(0.1)
    assert [text_of(task.result()) for task in asked] == [numbered(60)] * 20
    assert most == 1
    assert len(rig.upstream.log()) == 20


async def test_a_refused_offer_is_said_at_once_and_says_why(rig: CampusRig, make: Make) -> None:
    strange = make(content=Keyring("e-ffffffff", {"e-ffffffff": bytes(range(32))}))
    rig.upstream.script(scripts.openai("warm"))
    assert text_of(await collect(make().stream(call()))) == "warm"
    began = time.monotonic()
    _, error = await collect_until_error(strange.stream(call()))
    assert time.monotonic() - began < 3
    assert "does not have this site's end-to-end key" in error.happened
    assert "hpc_keys list" in error.todo


async def test_maintenance_ends_workers_and_is_said_until_when(brief: CampusRig, rig: CampusRig, make: Make) -> None:
    rig.change("brief", pause_until="2099-01-02 03:04:00")  # type: ignore[arg-type]
    backend = make(name="brief")
    try:
        await asyncio.to_thread(wait_until, lambda: said(rig, "brief: changed"), "the change", 10)
        _, error = await collect_until_error(backend.stream(call()))
        assert "being serviced until 2099-01-02 03:04 UTC" in error.happened
    finally:
        rig.change("brief", pause_until=None)  # type: ignore[arg-type]
    rig.upstream.script(scripts.openai("open again"))
    await asyncio.to_thread(wait_until, lambda: said(rig, "brief: changed") == 2, "the change back", 10)
    assert text_of(await collect(backend.stream(call()))) == "open again"


async def test_a_dispatcher_killed_with_offers_in_hand_loses_none(brief: CampusRig, rig: CampusRig, make: Make) -> None:
    """Its worker was still starting; the successor offers again what was taken, and each is generated once."""
    await asyncio.to_thread(wait_until, lambda: not said_ready(rig, "brief"), "the worker's end", 15)
    rig.upstream.script(slowly(20), times=3)
    backend = make(name="brief")
    asked = [asyncio.create_task(collect(backend.stream(call()))) for _ in range(3)]

    def in_hand() -> bool:
        return lists_of(rig, "brief") == (0, 3)

    await asyncio.to_thread(wait_until, in_hand, "the offers' taking", 10)
    await asyncio.to_thread(rig.site.kill, "campus", signal.SIGKILL)
    assert lists_of(rig, "brief") == (0, 3)
    await asyncio.to_thread(rig.start_dispatcher)
    answers = await asyncio.gather(*asked)
    assert [text_of(events) for events in answers] == [numbered(20)] * 3
    assert len(rig.upstream.log()) == 3
    await asyncio.to_thread(wait_until, lambda: lists_of(rig, "brief") == (0, 0), "an empty list", 10)


def said_ready(rig: CampusRig, name: str) -> int:
    """Return how many workers of an endpoint its dispatcher calls ready."""
    import json

    with redis.Redis.from_url(rig.site.env["REDIS_URL"]) as kv:
        status = kv.get(key(name, "status"))
    return int(json.loads(status)["ready"]) if status else 0  # type: ignore[arg-type]


async def test_a_dispatcher_that_stands_still_hands_over_to_the_next(rig: CampusRig, make: Make) -> None:
    rig.upstream.script(scripts.openai("first"))
    assert text_of(await collect(make().stream(call()))) == "first"
    first = rig.site.processes.pop("campus")
    os.kill(first.pid, signal.SIGSTOP)
    try:
        await asyncio.to_thread(rig.start_dispatcher)  # returns when it has the lease, after ten seconds
        os.kill(first.pid, signal.SIGCONT)
        lost = "lab: the lease was lost; waiting for another"
        await asyncio.to_thread(wait_until, lambda: said(rig, lost), "the first one's letting go", 15)
        rig.upstream.script(scripts.openai("second"))
        assert text_of(await collect(make().stream(call()))) == "second"
        assert len(rig.upstream.log()) == 2
    finally:
        os.kill(first.pid, signal.SIGCONT)
        first.terminate()
        await asyncio.to_thread(first.wait, 20)


async def test_an_endpoint_that_is_switched_off_ends_its_workers(rig: CampusRig, make: Make, brief: CampusRig) -> None:
    rig.upstream.script(scripts.openai("last"))
    assert text_of(await collect(make(name="brief").stream(call()))) == "last"
    rig.change("brief", enabled=0)
    await asyncio.to_thread(wait_until, lambda: said(rig, "brief: switched off"), "the switching off", 15)
    events, error = await collect_until_error(make(name="brief").stream(call()))
    assert isinstance(error, UpstreamError)
    assert events[0] == StateNote("submitted")
