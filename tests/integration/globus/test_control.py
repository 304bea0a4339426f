"""The control plane with the real SDK, a real broker and the real endpoint daemon; what Globus hosts is a stand-in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from hpc_worker.bodies import Alive
from hpc_worker.transcript import open_transcript
from hpc_worker.wire import Kind
from routing.backends.hpc.control import ControlError, JobHandle, JobMode, JobState
from routing.backends.hpc.globus import Deadlines, GlobusControl
from tests.fixtures_upstream import UpstreamControl
from tests.globus_processes import EndpointDaemon, GlobusService
from tests.integration.globus.campus import GLOBUS, Campus, job_for, mailbox_job
from tests.integration.hpc_worker.consumer import Consumer
from tests.integration.hpc_worker.test_worker import KEY, channel, make_offer

pytestmark = GLOBUS
Make = Callable[..., GlobusControl]
ANSWER = "This is a scripted answer from demo-small. You said: "


async def attached(campus: Campus, *, mailbox: bool = False) -> tuple[Consumer, asyncio.Task[object]]:
    """Return a consumer of a new channel that the relay has let in, and its reading."""
    consumer = channel(campus.relay.url, mailbox=mailbox)
    reading: asyncio.Task[object] = asyncio.create_task(consumer.run(60))
    await asyncio.wait_for(consumer.ready.wait(), 10)
    return consumer, reading


async def result(handle: JobHandle, timeout_s: float = 30) -> object:
    return await asyncio.to_thread(handle.result, timeout_s)


@contextmanager
def refused(words: str) -> Iterator[None]:
    """Expect an error for people: `words` say what happened or what to do."""
    with pytest.raises(ControlError) as caught:
        yield
    assert words in f"{caught.value.happened} {caught.value.todo}"
    assert caught.value.happened.endswith(".")
    assert caught.value.todo.endswith(".")


def test_the_endpoint_is_online_and_lists_our_function(globus_control: Make) -> None:
    control = globus_control()
    assert control.health().online
    assert control.allowed()


async def test_a_task_answers_over_the_relay_and_returns_its_outcome(
    globus_control: Make, campus: Campus, upstream: UpstreamControl
) -> None:
    consumer, reading = await attached(campus)
    job = job_for(make_offer(consumer, "hello over Globus"), JobMode.TASK)
    handle = await asyncio.to_thread(globus_control().start, job)
    await reading
    assert consumer.text == f"{ANSWER}hello over Globus"
    assert await result(handle) == {"outcome": "delivered", "transcript": None}
    assert handle.state() is JobState.ENDED


async def test_a_resident_worker_comes_to_its_mailbox_and_answers(
    globus_control: Make, campus: Campus, upstream: UpstreamControl
) -> None:
    mailbox, serving = await attached(campus, mailbox=True)
    handle = await asyncio.to_thread(globus_control().start, mailbox_job(mailbox))
    await mailbox.until(1, 20)
    assert Alive.load(mailbox.opened[0].body).state == "ready"
    consumer, reading = await attached(campus)
    for kind, body in make_offer(consumer, "to the resident").dump():
        await mailbox.control(kind, body)
    await reading
    assert consumer.text == f"{ANSWER}to the resident"
    with pytest.raises(TimeoutError):
        handle.result(0.1)
    handle.cancel()
    assert handle.state() is JobState.ENDED
    with refused("given up"):
        handle.result(1)
    await mailbox.control(Kind.CANCEL, b"{}")
    serving.cancel()


async def test_a_batch_returns_the_sealed_answer_where_no_relay_can_be_reached(
    globus_control: Make, campus: Campus, upstream: UpstreamControl
) -> None:
    consumer = channel(campus.relay.url)
    offer = make_offer(consumer, "no relay")
    campus.relay.kill()
    try:
        handle = await asyncio.to_thread(globus_control().start, job_for(offer, JobMode.BATCH))
        found = await result(handle, 60)
    finally:
        campus.relay.start()
    assert isinstance(found, dict)
    opened = open_transcript({"k1": KEY}, consumer.scope, consumer.salt_c, bytes.fromhex(found["transcript"]))
    assert b"".join(item.body for item in opened if item.kind is Kind.TEXT).decode() == f"{ANSWER}no relay"


async def test_a_job_accepted_twice_because_a_reply_was_lost_is_answered_once(
    globus_control: Make, globus_service: GlobusService, campus: Campus, upstream: UpstreamControl
) -> None:
    globus_service.fault("/submit", drop="after")
    consumer, reading = await attached(campus)
    job = job_for(make_offer(consumer, "twice"), JobMode.TASK)
    handle = await asyncio.to_thread(globus_control().start, job)
    await reading
    found = await result(handle)
    assert globus_service.submits() == [200, 200]
    assert isinstance(found, dict)
    assert found["outcome"] in ("delivered", "finished", "replaced", "taken", "busy")
    assert consumer.text == f"{ANSWER}twice"
    assert len(upstream.log()) == 1


def test_a_batch_is_not_sent_again_when_the_reply_was_lost(
    globus_control: Make, globus_service: GlobusService, campus: Campus
) -> None:
    globus_service.fault("/submit", drop="after")
    offer = make_offer(channel(campus.relay.url), "at most once")
    with refused("their reply was lost"):
        globus_control().start(job_for(offer, JobMode.BATCH))
    assert globus_service.submits() == [200]


def test_a_job_without_an_end_is_ended_by_us(globus_control: Make, campus: Campus) -> None:
    control = globus_control(deadlines=Deadlines(job_s={JobMode.RESIDENT: 2.5}))
    handle = control.start(mailbox_job(channel(campus.relay.url, mailbox=True)))
    assert handle.state() in (JobState.SUBMITTED, JobState.QUEUED, JobState.RUNNING)
    with refused("no end within 2.5 s"):
        handle.result(60)
    assert handle.state() is JobState.FAILED


def test_a_worker_without_readable_settings_says_which(globus_control: Make, campus: Campus) -> None:
    campus.settings.chmod(0o644)
    try:
        handle = globus_control().start(mailbox_job(channel(campus.relay.url, mailbox=True)))
        with refused("run chmod 600 on it"):
            handle.result(30)
    finally:
        campus.settings.chmod(0o600)


def test_keys_that_differ_are_named(globus_control: Make, campus: Campus) -> None:
    job = mailbox_job(channel(campus.relay.url, mailbox=True))
    other = {**job.arguments, "kid": "k9"}
    handle = globus_control().start(type(job)(job.mode, other))
    with refused("Compare the relays and key ids"):
        handle.result(30)
    assert handle.state() is JobState.FAILED


def test_a_function_that_the_endpoint_does_not_list(endpoint: EndpointDaemon, globus_service: GlobusService) -> None:
    from tests.fixtures_globus import make_control

    job = mailbox_job(channel("ws://127.0.0.1:9/v1", mailbox=True))
    with closing(make_control(endpoint.endpoint_id)) as control:
        with refused("`allowed_functions`"):
            control.start(job)
        assert not control.allowed()
    assert globus_service.submits() == [403]
