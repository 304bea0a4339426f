"""The resident worker as a process, with a real relay and a scripted model server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hpc_worker import config, crypto, wire, worker
from hpc_worker.answer import JobRefused
from hpc_worker.bodies import Alive, Fin, Offer
from hpc_worker.keyring import Keyring
from hpc_worker.transcript import open_transcript
from hpc_worker.wire import FrameType, Kind
from tests.fakes import scripts
from tests.fixtures_upstream import ROOT, UpstreamControl
from tests.integration.hpc_worker.consumer import Consumer
from tests.integration.relay.peers import CONSUMER, NAME, PRODUCER, RelayProcess, dial, open_producer

KEY = bytes(range(50, 82))
RING = Keyring("k1", {"k1": KEY})
ANSWER = "This is a scripted answer from demo-small. You said: "


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[RelayProcess]:
    process = RelayProcess(log=tmp_path / "relay.log").start()
    yield process
    if process.process.poll() is None:
        process.kill()


def environ(relay_url: str, upstream: UpstreamControl, **changes: str) -> dict[str, str]:
    return {
        "STREAM_E2E_KEYS": f"k1:{KEY.hex()}",
        "STREAM_PRODUCER_KEYS": f"{PRODUCER[0]}:{PRODUCER[1].hex()}",
        "STREAM_RELAY_URLS_ALLOWED": f"{NAME}={relay_url}",
        "STREAM_MODEL_URL": upstream.openai_url,
        "STREAM_MODEL_NAME": "demo-small",
        "STREAM_DRAIN_S": "5",
        **changes,
    }


@dataclass
class Campus:
    """A worker process, its mailbox and the platform's side of it."""

    relay: RelayProcess
    mailbox: Consumer
    process: subprocess.Popen[str]

    async def ask(self, question: str, consumer: Consumer | None = None, **changes: Any) -> Consumer:
        """Offer one job; the consumer is attached first, as the platform does it."""
        consumer = consumer or channel(self.relay.url)
        task = asyncio.create_task(consumer.run(30))
        consumer.task = task  # type: ignore[attr-defined]
        await asyncio.wait_for(consumer.ready.wait(), 10)
        await self.offer(make_offer(consumer, question, **changes))
        return consumer

    async def offer(self, offer: Offer) -> None:
        for kind, body in offer.dump():
            await self.mailbox.control(kind, body)


def channel(url: str, *, mailbox: bool = False) -> Consumer:
    return Consumer(url, NAME, CONSUMER, RING, crypto.Scope("k1", os.urandom(16), 1), os.urandom(32), mailbox)


def make_offer(consumer: Consumer, question: str, **changes: Any) -> Offer:
    request = {"messages": [{"role": "user", "content": question}], "max_tokens": 2000}
    prompt = crypto.seal_request(KEY, consumer.scope, consumer.salt_c, json.dumps(request).encode())
    given: dict[str, Any] = {
        "cid": consumer.scope.cid,
        "attempt": 1,
        "salt_c": consumer.salt_c,
        "kid": "k1",
        "relay": consumer.url,
        "deadline_s": 30,
        "prompt": prompt,
    }
    return Offer(**{**given, **changes})


async def end(consumer: Consumer) -> Fin:
    fin: Fin = await consumer.task  # type: ignore[attr-defined]
    return fin


@asynccontextmanager
async def campus(relay: RelayProcess, env: dict[str, str], tmp_path: Path) -> AsyncIterator[Campus]:
    mailbox = channel(relay.url, mailbox=True)
    task = asyncio.create_task(mailbox.run(120))
    await asyncio.wait_for(mailbox.ready.wait(), 10)
    file = tmp_path / "mailbox.json"
    about = {"relay": relay.url, "kid": "k1", "cid": mailbox.scope.cid.hex(), "attempt": 1}
    file.write_text(json.dumps({**about, "salt_c": mailbox.salt_c.hex()}))
    with (tmp_path / "worker.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "hpc_worker", str(file)],
            env={"PATH": os.environ["PATH"], **env},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        await mailbox.until(1, 20)
        yield Campus(relay, mailbox, process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_many_questions_at_once_are_answered_whole(
    relay: RelayProcess, upstream: UpstreamControl, tmp_path: Path
) -> None:
    async with campus(relay, environ(relay.url, upstream), tmp_path) as here:
        alive = Alive.load(here.mailbox.opened[0].body)
        assert (alive.state, alive.capacity, alive.queue, alive.model) == ("ready", 16, 0, "demo-small")
        consumers = [await here.ask(f"question {number} ü") for number in range(20)]
        for number, consumer in enumerate(consumers):
            fin = await end(consumer)
            assert fin.finish == "stop"
            assert consumer.text == f"{ANSWER}question {number} ü"
            assert fin.usage is not None
            assert fin.usage.completion > 0
    sent = upstream.last()
    assert sent["body"]["stream"] is True
    assert sent["body"]["max_tokens"] == 2000


async def test_a_long_prompt_crosses_the_mailbox(
    relay: RelayProcess, upstream: UpstreamControl, tmp_path: Path
) -> None:
    question = "numbers " + " ".join(str(n) for n in range(30_000))
    async with campus(relay, environ(relay.url, upstream), tmp_path) as here:
        await end(await here.ask(question))
    assert upstream.last()["body"]["messages"][0]["content"] == question


async def test_a_cancel_closes_the_models_stream_within_a_second(
    relay: RelayProcess, upstream: UpstreamControl, tmp_path: Path
) -> None:
    upstream.script(scripts.numbered(100_000, 100))
    async with campus(relay, environ(relay.url, upstream), tmp_path) as here:
        consumer = await here.ask("count")
        await consumer.until(5)
        asked = time.monotonic()
        await consumer.cancel()
        fin = await end(consumer)
        took = await asyncio.to_thread(upstream.wait_for, "disconnected") - asked
    assert fin.finish == "cancelled"
    assert took < 1
    words = consumer.text.split()
    assert words[0] == "0"
    assert words == [str(n) for n in range(len(words))]


async def test_sigterm_lets_a_running_answer_end_and_takes_no_new_one(
    relay: RelayProcess, upstream: UpstreamControl, tmp_path: Path
) -> None:
    upstream.script(scripts.numbered(100, 50))
    async with campus(relay, environ(relay.url, upstream), tmp_path) as here:
        running = await here.ask("count")
        await running.until(3)
        before = len(here.mailbox.opened)
        here.process.send_signal(signal.SIGTERM)
        await here.mailbox.until(before + 1)
        assert Alive.load(here.mailbox.opened[-1].body).state == "draining"
        late = await here.ask("too late")
        assert (await end(late)).error == "draining"
        assert (await end(running)).finish == "stop"
        assert running.text == "".join(f"{n} " for n in range(100))
        assert await asyncio.to_thread(here.process.wait, 15) == 0
        assert here.process.stdout is not None
        assert here.process.stdout.read() == "ended: drained\n"
        await asyncio.sleep(0.2)
        assert here.mailbox.opened[-1].type is FrameType.FIN
    assert len(upstream.log()) == 1


async def test_an_answer_that_outlives_the_drain_is_ended_in_words(
    relay: RelayProcess, upstream: UpstreamControl, tmp_path: Path
) -> None:
    upstream.script(scripts.numbered(100_000, 20))
    env = environ(relay.url, upstream, STREAM_DRAIN_S="1", STREAM_WALLTIME_S="4")
    async with campus(relay, env, tmp_path) as here:
        running = await here.ask("count")
        fin = await end(running)
        assert (fin.finish, fin.error) == ("error", "draining")
        assert running.text.startswith("0 1 2")
        assert await asyncio.to_thread(here.process.wait, 15) == 0


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        (scripts.status(503), "busy"),
        (scripts.status(400), "refused"),
        (scripts.status(401), "credentials"),
        (scripts.html_page(), "html"),
        ([{"cut": True}], "unreachable"),
        ([*scripts.events(scripts.chunk({"content": "half"})), {"cut": True}], "broken"),
        ([*scripts.events(scripts.chunk({"content": "half"}))], "early"),
        ([*scripts.events(scripts.chunk({"content": "half"})), {"hang": True}], "timeout"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_a_model_that_fails_is_named_and_what_came_is_kept(
    relay: RelayProcess, upstream: UpstreamControl, tmp_path: Path, steps: scripts.Steps, error: str
) -> None:
    upstream.script(steps)
    async with campus(relay, environ(relay.url, upstream, STREAM_BETWEEN_BYTES_S="1"), tmp_path) as here:
        consumer = await here.ask("hello")
        fin = await end(consumer)
        assert (fin.finish, fin.error) == ("error", error)
        assert "hello" not in fin.detail
        assert consumer.text == ("half" if error in ("broken", "early", "timeout") else "")
        assert (await end(await here.ask("again"))).finish == "stop", "the worker goes on"


async def test_capacity_holds_the_rest_back_and_says_so(
    relay: RelayProcess, upstream: UpstreamControl, tmp_path: Path
) -> None:
    for _ in range(3):
        upstream.script(scripts.numbered(30, 30))
    async with campus(relay, environ(relay.url, upstream, STREAM_CAPACITY="1"), tmp_path) as here:
        consumers = [await here.ask(f"count {n}") for n in range(3)]
        await consumers[0].until(2)
        assert len(upstream.log()) == 1
        assert [bool(c.opened) for c in consumers] == [True, False, False]
        for consumer in consumers:
            assert (await end(consumer)).finish == "stop"
            assert consumer.text == "".join(f"{n} " for n in range(30))


async def test_offers_that_are_not_for_this_worker_reach_no_model(
    relay: RelayProcess, upstream: UpstreamControl, tmp_path: Path
) -> None:
    async with campus(relay, environ(relay.url, upstream), tmp_path) as here:
        consumer = channel(relay.url)
        for changes in ({"kid": "k2"}, {"relay": "wss://elsewhere.example.edu/v1"}, {"prompt": b"x" * 300}):
            await here.offer(make_offer(consumer, "no", **changes))
        await here.mailbox.control(Kind.OFFER, b"{}")
        await here.mailbox.control(Kind.OFFER_PART, b"junk")
        good = await here.ask("yes")
        await here.offer(make_offer(good, "yes"))  # the same job again
        assert (await end(good)).finish == "stop"
        await asyncio.sleep(0.3)
    assert [r["body"]["messages"][0]["content"] for r in upstream.log()] == ["yes"]


async def test_a_job_that_another_worker_had_is_won_before_the_model_is_asked(
    relay: RelayProcess, upstream: UpstreamControl, tmp_path: Path
) -> None:
    async with campus(relay, environ(relay.url, upstream), tmp_path) as here:
        consumer = channel(relay.url)
        waiting = asyncio.create_task(consumer.run(30))
        await asyncio.wait_for(consumer.ready.wait(), 10)
        salt = os.urandom(32)
        keys = crypto.derive_stream(KEY, consumer.scope, consumer.salt_c, salt)
        async with dial(relay.url) as lost:  # a worker that began and was killed
            await open_producer(lost, consumer.scope.cid, salt)
            await lost.send(wire.build_head(wire.Head("k1", 1, salt, keys.commit)))
        await here.offer(make_offer(consumer, "Whose is it?", again=True))
        # nobody had this one, whatever its offer says
        assert (await end(await here.ask("Mine?", again=True))).finish == "stop"
        asked = [request["body"]["messages"][0]["content"] for request in upstream.log()]
        assert asked == ["Mine?"]
        waiting.cancel()
        await asyncio.wait({waiting})


async def test_a_killed_relay_costs_neither_mailbox_nor_answer(
    relay: RelayProcess, upstream: UpstreamControl, tmp_path: Path
) -> None:
    upstream.script(scripts.numbered(400, 50))
    async with campus(relay, environ(relay.url, upstream), tmp_path) as here:
        running = await here.ask("count")
        await running.until(5)
        relay.kill()
        await asyncio.to_thread(relay.start)
        assert (await end(running)).finish == "stop"
        assert running.text == "".join(f"{n} " for n in range(400))
        async with asyncio.timeout(20):
            while here.mailbox.connections < 2:
                await asyncio.sleep(0.05)
        await here.mailbox.until(len(here.mailbox.opened) + 1, 20)
        assert (await end(await here.ask("after"))).finish == "stop"


@pytest.mark.parametrize("name", ["STREAM_E2E_KEYS", "STREAM_MODEL_URL"])
def test_a_worker_with_wrong_settings_does_not_start(upstream: UpstreamControl, tmp_path: Path, name: str) -> None:
    file = tmp_path / "mailbox.json"
    file.write_text("{}")
    env = environ("ws://127.0.0.1:9/v1", upstream, **{name: "wrong"})
    done = subprocess.run(
        [sys.executable, "-m", "hpc_worker", str(file)],
        env={"PATH": os.environ["PATH"], **env},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("The worker did not start and took no job.")
    assert name in done.stderr
    assert "Traceback" not in done.stderr


def test_sigterm_ends_a_worker_that_waits_for_its_mailbox(upstream: UpstreamControl, tmp_path: Path) -> None:
    url = "ws://127.0.0.1:9/v1"
    file = tmp_path / "mailbox.json"
    file.write_text(json.dumps({"relay": url, "kid": "k1", "cid": "00" * 16, "attempt": 1, "salt_c": "00" * 32}))
    with subprocess.Popen(
        [sys.executable, "-m", "hpc_worker", str(file)],
        env={"PATH": os.environ["PATH"], **environ(url, upstream)},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        time.sleep(3)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=10)
        assert (process.returncode, out) == (0, "ended: drained\n")


def as_task(offer: Offer, **more: Any) -> dict[str, Any]:
    plain = {"cid": offer.cid.hex(), "salt_c": offer.salt_c.hex(), "prompt": offer.prompt.hex()}
    return {"attempt": 1, "kid": "k1", "relay": offer.relay, "deadline_s": offer.deadline_s, **plain, **more}


async def test_one_task_answers_one_job(relay: RelayProcess, upstream: UpstreamControl) -> None:
    consumer = channel(relay.url)
    settings = config.read(environ(relay.url, upstream))
    task = asyncio.create_task(consumer.run(30))
    done = await asyncio.to_thread(worker.run_task, as_task(make_offer(consumer, "hi")), settings)
    assert done == {"outcome": "delivered", "transcript": None}
    assert (await task).finish == "stop"
    assert consumer.text == f"{ANSWER}hi"
    again = await asyncio.to_thread(worker.run_task, as_task(make_offer(consumer, "hi")), settings)
    assert again == {"outcome": "finished", "transcript": None}
    assert len(upstream.log()) == 1, "a task that runs again asks no model"


def test_a_batch_task_without_a_relay_returns_the_sealed_answer(
    upstream: UpstreamControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpc_worker.answer.BATCH_AFTER_S", 0.5)
    url = "ws://127.0.0.1:9/v1"
    consumer = channel(url)
    settings = config.read(environ(url, upstream))
    plain = worker.run_task(as_task(make_offer(consumer, "hi", deadline_s=1)), settings)
    assert plain == {"outcome": "unreachable", "transcript": None}
    assert upstream.log() == []
    done = worker.run_task(as_task(make_offer(consumer, "hi"), batch=True), settings)
    assert done["outcome"] == "deadline"
    records = open_transcript(RING, consumer.scope, consumer.salt_c, bytes.fromhex(done["transcript"]))
    assert b"".join(r.body for r in records if r.kind is Kind.TEXT).decode() == f"{ANSWER}hi"
    assert Fin.load(records[-1].body).finish == "stop"


def test_a_task_that_is_no_offer_is_refused(upstream: UpstreamControl) -> None:
    settings = config.read(environ("ws://127.0.0.1:9/v1", upstream))
    with pytest.raises(JobRefused, match="offer"):
        worker.run_task({"cid": "00"}, settings)
    with pytest.raises(JobRefused, match="mailbox"):
        worker.run({"cid": "00"}, settings)
