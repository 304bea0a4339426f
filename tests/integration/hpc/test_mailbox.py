"""A dispatcher that comes back takes the mailbox of a living worker over, with sequences that nobody used."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from channels.db import database_sync_to_async

from hpc_worker.bodies import Fin
from relay.subscription import Timers
from routing.backends.hpc.channel import JobChannel, make_offer
from routing.backends.hpc.directory import Campus, campus_of
from routing.backends.hpc.mailbox import EPOCH_BITS, MailboxLine, mailbox_close, mailbox_open, mailboxes_take_over
from routing.hpc_keys import keys_ensure
from routing.hpc_models import HpcEndpoint, HpcKey, HpcMailbox, Purpose
from routing.hpc_secrets import seal_secret
from routing.types import TextDelta
from tests.fakes import scripts
from tests.fixtures_upstream import ROOT, UpstreamControl
from tests.integration.relay.peers import CONSUMER, NAME, PRODUCER, RelayProcess

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def relay() -> Iterator[RelayProcess]:
    process = RelayProcess().start()
    yield process
    process.kill()


@pytest.fixture
def campus(relay: RelayProcess, transactional_db: None) -> Campus:
    """Return an endpoint whose admission keys are those of the relay."""
    endpoint = HpcEndpoint.objects.create(
        name="lab", label="Lab", control="globus", model="m", relays=f"{NAME}={relay.url}"
    )
    keys_ensure(endpoint=endpoint)
    for purpose, (kid, secret) in ((Purpose.CONSUMER, CONSUMER), (Purpose.PRODUCER, PRODUCER)):
        HpcKey.objects.filter(purpose=purpose).update(kid=kid, secret=seal_secret(secret))
    return campus_of(endpoint)


def start_worker(campus: Campus, line: MailboxLine, upstream: UpstreamControl, folder: Path) -> subprocess.Popen[bytes]:
    """Start a worker as a cluster would: in nobody's process group, with its keys in its environment."""
    file = folder / "mailbox.json"
    file.write_text(json.dumps(line.arguments))
    content = ",".join(f"{kid}:{key.hex()}" for kid, key in campus.content.keys.items())
    env = {
        "PATH": os.environ["PATH"],
        "STREAM_E2E_KEYS": content,
        "STREAM_PRODUCER_KEYS": f"{PRODUCER[0]}:{PRODUCER[1].hex()}",
        "STREAM_RELAY_URLS_ALLOWED": ",".join(f"{name}={url}" for url, name in campus.relays.items()),
        "STREAM_MODEL_URL": upstream.openai_url,
        "STREAM_MODEL_NAME": "m",
    }
    return subprocess.Popen([sys.executable, "-m", "hpc_worker", str(file)], env=env, cwd=ROOT)


async def until_ready(line: MailboxLine) -> None:
    async with asyncio.timeout(25):
        while not line.is_ready:
            await asyncio.sleep(0.02)


async def ask(campus: Campus, line: MailboxLine) -> str:
    offer = make_offer(campus, b'{"messages":[{"role":"user","content":"?"}]}', 60)
    channel = JobChannel(campus, offer, Timers())
    task = asyncio.create_task(channel.run())
    await asyncio.wait_for(channel.consumer.attached.wait(), 10)
    await line.send(offer)
    text = ""
    while not isinstance(item := await channel.next(20), Fin):
        assert item is not None
        text += item.text if isinstance(item, TextDelta) else ""
    await asyncio.wait_for(task, 10)
    line.forget(offer.cid)
    return text


async def test_a_successor_goes_on_with_the_worker_that_is_there(
    campus: Campus, upstream: UpstreamControl, tmp_path: Path
) -> None:
    upstream.script(scripts.openai("first"))
    record = await database_sync_to_async(mailbox_open)(campus)
    async with asyncio.TaskGroup() as group:
        line = MailboxLine(campus, record)
        line.start(group)
        assert await line.attached(10)
        worker = start_worker(campus, line, upstream, tmp_path)
        try:
            await until_ready(line)
            assert await ask(campus, line) == "first"
            line.stop()  # as when a dispatcher is killed: its record stays open

            (taken,) = await database_sync_to_async(mailboxes_take_over)(campus)
            assert (taken.pk, taken.epoch) == (record.pk, 2)
            assert taken.last_seq >= 1
            successor = MailboxLine(campus, taken)
            successor.start(group)
            upstream.script(scripts.openai("second"))
            await until_ready(successor)
            assert successor.next_sequence > 2 << EPOCH_BITS
            assert await ask(campus, successor) == "second"
            assert worker.poll() is None
            successor.stop()
        finally:
            worker.kill()
            worker.wait(10)
    used = await database_sync_to_async(lambda: HpcKey.objects.get(purpose=Purpose.E2E).last_used)()
    assert used is not None


def test_every_dispatcher_has_an_epoch_of_its_own(campus: Campus) -> None:
    record = mailbox_open(campus)
    taken = [mailboxes_take_over(campus)[0] for _ in range(3)]
    assert [each.epoch for each in taken] == [2, 3, 4]
    for late in (record, taken[0]):
        mailbox_close(late)
    assert HpcMailbox.objects.get().closed is None, "who lost it closes nothing"
    mailbox_close(taken[2])
    assert mailboxes_take_over(campus) == []


def test_a_mailbox_of_a_withdrawn_key_or_without_epochs_is_given_up(campus: Campus) -> None:
    old, worn = mailbox_open(campus), mailbox_open(campus)
    HpcMailbox.objects.filter(pk=old.pk).update(kid="e-gone")
    HpcMailbox.objects.filter(pk=worn.pk).update(epoch=4094)
    assert mailboxes_take_over(campus) == []
    assert HpcMailbox.objects.filter(closed=None).count() == 0


async def test_the_place_of_a_job_whose_asker_was_killed_becomes_free(
    campus: Campus, upstream: UpstreamControl, tmp_path: Path
) -> None:
    async with asyncio.TaskGroup() as group:
        line = MailboxLine(campus, await database_sync_to_async(mailbox_open)(campus))
        line.start(group)
        assert await line.attached(10)
        worker = start_worker(campus, line, upstream, tmp_path)
        try:
            await until_ready(line)
            abandoned, asked = (make_offer(campus, b"{}", seconds) for seconds in (1, 60))
            for offer in (abandoned, asked):
                await line.send(offer)
            line.forget_old()
            assert set(line.jobs) == {abandoned.cid, asked.cid}
            await asyncio.sleep(1.3)
            line.forget_old()
            assert set(line.jobs) == {asked.cid}
            line.stop()
        finally:
            worker.kill()
            worker.wait(10)
