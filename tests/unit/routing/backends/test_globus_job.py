"""Only known, unreadable things leave: every other argument is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_worker.bodies import load_offer
from hpc_worker.worker import Mailbox
from routing.backends.hpc.control import ControlError, JobMode, WorkerJob
from routing.backends.hpc.globus_job import FUNCTION_NAME, FUNCTION_SOURCE, MAX_ARGUMENTS_BYTES, TASKS_PER_REQUEST, pack
from routing.backends.hpc.tasks import task_arguments

MAILBOX = {"relay": "wss://relay.example.edu/v1", "kid": "k1", "cid": "ab" * 16, "attempt": 1, "salt_c": "cd" * 32}
OFFER = {**MAILBOX, "deadline_s": 60, "prompt": "00ff"}


def test_a_mailbox_and_an_offer_arrive_as_the_worker_reads_them() -> None:
    resident = pack(WorkerJob(JobMode.RESIDENT, MAILBOX))
    assert resident == {"mode": "resident", "arguments": MAILBOX}
    assert Mailbox.load(resident["arguments"]).kid == "k1"
    task = pack(WorkerJob(JobMode.TASK, OFFER))
    assert task == {"mode": "task", "arguments": OFFER}
    assert load_offer(task["arguments"]).prompt == b"\x00\xff"
    assert pack(WorkerJob(JobMode.BATCH, OFFER)) == {"mode": "task", "arguments": {**OFFER, "batch": True}}


def test_an_offer_that_is_placed_again_may_become_a_task() -> None:
    offer = replace(load_offer(OFFER), again=True)
    assert pack(WorkerJob(JobMode.TASK, task_arguments(offer)))["arguments"] == OFFER


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt", "What is my diagnosis?"),
        ("prompt", ""),
        ("prompt", b"00"),
        ("key", "00" * 32),
        ("token", "abc"),
        ("kid", f"k1:{'00' * 32}"),
        ("kid", "two words"),
        ("cid", "AB"),
        ("cid", "abc"),
        ("attempt", "1"),
        ("attempt", True),
        ("attempt", -1),
        ("batch", 1),
        ("relay", "wss://user:secret@relay.example.edu/v1"),
        ("relay", "wss://relay.example.edu/v1?token=secret"),
        ("relay", "wss://relay.example.edu/v1#secret"),
        ("relay", "https://relay.example.edu/v1"),
        ("relay", "wss://[broken/v1"),
        ("relay", {"url": "wss://relay.example.edu/v1"}),
    ],
)
def test_what_could_be_readable_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ControlError, match="not handed to Globus Compute") as caught:
        pack(WorkerJob(JobMode.TASK, {**OFFER, name: value}))
    assert "secret" not in caught.value.happened


def test_an_offer_is_no_mailbox_and_a_mailbox_is_no_offer() -> None:
    with pytest.raises(ControlError, match="“deadline_s” is not one of"):
        pack(WorkerJob(JobMode.RESIDENT, OFFER))
    with pytest.raises(ControlError, match="deadline_s, prompt is missing"):
        pack(WorkerJob(JobMode.TASK, MAILBOX))


def test_the_largest_jobs_of_one_request_fit_the_service() -> None:
    room = MAX_ARGUMENTS_BYTES - len(json.dumps(OFFER))
    largest = {**OFFER, "prompt": "ab" * (room // 2)}
    packed = pack(WorkerJob(JobMode.TASK, largest))
    assert TASKS_PER_REQUEST * len(json.dumps(json.dumps(packed))) < 10_000_000
    with pytest.raises(ControlError, match="bytes of arguments"):
        pack(WorkerJob(JobMode.TASK, {**OFFER, "prompt": "ab" * room}))


@given(st.dictionaries(st.text(max_size=12), st.text() | st.integers() | st.none() | st.floats() | st.booleans()))
def test_no_unknown_argument_ever_leaves(extra: dict[str, Any]) -> None:
    try:
        packed = pack(WorkerJob(JobMode.TASK, {**OFFER, **extra}))
    except ControlError:
        return
    assert set(packed["arguments"]) <= set(OFFER) | {"batch"}


def test_the_function_calls_the_worker_that_the_mode_names(monkeypatch: pytest.MonkeyPatch) -> None:
    from hpc_worker import worker

    monkeypatch.setattr(worker, "run", lambda arguments: ("run", arguments))
    monkeypatch.setattr(worker, "run_task", lambda arguments: ("run_task", arguments))
    found: dict[str, Any] = {}
    exec(FUNCTION_SOURCE, found)
    assert found[FUNCTION_NAME]({"mode": "resident", "arguments": 1}) == ("run", 1)
    assert found[FUNCTION_NAME]({"mode": "task", "arguments": 2}) == ("run_task", 2)
