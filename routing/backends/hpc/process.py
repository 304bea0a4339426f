"""The demonstration's control plane: workers are processes of this machine. They end with the process that made them.

It stands where Globus Compute stands at a real campus; relay, worker, sealing and protocol are the real ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from threading import Lock
from typing import IO, Any

from routing.backends.hpc.control import ControlError, ControlHealth, JobMode, JobState, WorkerJob
from routing.backends.hpc.directory import Campus

STOP_S = 1.0  # what it was to answer is gone with its dispatcher


class ProcessJob:
    """One child process. Its keys went through a pipe: they are in no argument, no environment and no file."""

    def __init__(self, process: subprocess.Popen[bytes], out: IO[bytes]) -> None:
        self._process = process
        self._out = out  # a file: a pipe that nobody reads would stop a worker that returns much

    @property
    def id(self) -> str:
        return f"process {self._process.pid}"

    def state(self) -> JobState:
        code = self._process.poll()
        if code is None:
            return JobState.RUNNING
        return JobState.ENDED if code == 0 else JobState.FAILED

    def result(self, timeout_s: float) -> Any:
        """Return what the worker returned. Raises `ControlError`, or `TimeoutError` after `timeout_s`."""
        try:
            code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the worker still runs after {timeout_s:g} s") from None
        if code:
            raise ControlError(
                f"A worker of the demo campus ended by itself with exit code {code}.",
                todo="Try again, or pick another tier. The log of the dispatcher has what the worker said.",
            )
        self._out.seek(0)
        return json.loads(self._out.read() or b"null")

    def cancel(self) -> None:
        """Ask it to drain: it lets running answers end first."""
        if self._process.poll() is None:
            self._process.terminate()

    def end(self) -> None:
        """End it now, drained or not, and reap it."""
        self.cancel()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin:
            self._process.stdin.close()
        self._out.close()


class ProcessControl:
    """Start workers of `campus` as child processes, against the model server at `model_url`."""

    name = "demo processes"

    def __init__(self, campus: Campus, model_url: str, model_key: str) -> None:
        relays = ",".join(f"{name}={url}" for url, name in campus.relays.items())
        self._label = campus.label
        self._model_url = model_url
        self._environ = {
            "STREAM_E2E_KEYS": _ring(campus.content.primary, campus.content.keys),
            "STREAM_PRODUCER_KEYS": _ring(campus.producers.primary, campus.producers.keys),
            "STREAM_RELAY_URLS_ALLOWED": relays,
            "STREAM_MODEL_URL": model_url,
            "STREAM_MODEL_NAME": campus.model,
            "STREAM_MODEL_API_KEY": model_key,
            "STREAM_DRAIN_S": "5",
        }
        self._jobs: list[ProcessJob] = []
        self._lock = Lock()  # workers are started from several threads

    def start(self, job: WorkerJob) -> ProcessJob:
        """Start a worker. Raises `ControlError`."""
        health = self.health()
        if not health.online:
            raise ControlError(health.why, todo=health.todo)
        argv = [sys.executable, "-m", "routing.backends.hpc.process_child"]
        arguments = {**job.arguments, **({"batch": True} if job.mode is JobMode.BATCH else {})}
        order = {"mode": job.mode.value, "arguments": arguments, "environ": self._environ}
        out = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the job
        try:
            process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=out)  # noqa: S603 - our own module
            if process.stdin is not None:
                process.stdin.write(json.dumps(order).encode() + b"\n")
                process.stdin.flush()  # and it stays open: its end is what tells the child that we are gone
        except OSError as error:
            out.close()
            raise ControlError(f"A worker of the demo campus cannot be started: {error.strerror}.") from error
        made = ProcessJob(process, out)
        with self._lock:  # a job that is over keeps its result until nobody holds its handle
            self._jobs = [*(known for known in self._jobs if known.state() is JobState.RUNNING), made]
        return made

    def health(self) -> ControlHealth:
        if self._model_url:
            return ControlHealth(online=True)
        return ControlHealth(
            online=False,
            why=f"{self._label} has no model server.",
            todo="Set HPC_DEMO_MODEL_URL, or start everything with `make run`.",
        )

    def close(self) -> None:
        """End the workers: they are this process's own."""
        for job in self._jobs:
            job.cancel()
        for job in self._jobs:
            job.end()


def _ring(primary: str, keys: Mapping[str, bytes]) -> str:
    kids = [primary, *(kid for kid in keys if kid != primary)]
    return ",".join(f"{kid}:{keys[kid].hex()}" for kid in kids)
