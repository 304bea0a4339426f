"""A worker's traceback becomes words for people, and nothing else of it is passed on."""

from __future__ import annotations

import pytest

from routing.backends.hpc.globus_words import Refused, of_traceback

HEAD = "Traceback (most recent call last):\n  File 'x', line 1\n"


@pytest.mark.parametrize(
    ("last", "happened", "todo"),
    [
        ("ModuleNotFoundError: No module named 'hpc_worker'", "not installed", "pip install"),
        ("hpc_worker.config.ConfigError: The worker did not start. A is not set.", "A is not set.", "environment file"),
        ("hpc_worker.answer.JobRefused: unknown_kid", "refused the job: unknown_kid.", "key ids"),
        ("globus_compute_sdk.errors.DeserializationError: bad marshal data", "differs too much", "same globus-compute"),
        ("parsl.executors.high_throughput.errors.WorkerLost: Task failure", "process died", "out of memory"),
    ],
)
def test_known_failures_name_the_next_step(last: str, happened: str, todo: str) -> None:
    error = of_traceback(HEAD + last)
    assert isinstance(error, Refused)
    assert not error.retryable
    assert happened in error.happened
    assert error.happened.endswith(".")
    assert not error.happened.endswith("..")
    assert todo in error.todo


def test_an_unknown_failure_gives_its_kind_and_keeps_its_data() -> None:
    error = of_traceback(f"{HEAD}ValueError: the prompt was: my secret")
    assert "ValueError" in error.happened
    assert "secret" not in f"{error.happened}{error.todo}{error.kept}"
    assert of_traceback("").happened == "The worker failed on the endpoint (no reason given)."


def test_a_refusal_has_the_workers_own_code() -> None:
    assert Refused("x").by_worker == ""
    refusal = of_traceback(f"{HEAD}hpc_worker.answer.JobRefused: unknown_kid")
    assert isinstance(refusal, Refused)
    assert refusal.by_worker == "unknown_kid"
