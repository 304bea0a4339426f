"""Fixtures: the scripted upstream as a process, and its remote control. For `pytest_plugins` of tests/conftest.py."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class UpstreamControl:
    """Set scripts on the upstream and read what it saw. `url` has no path."""

    url: str
    http: httpx.Client

    @property
    def openai_url(self) -> str:
        return f"{self.url}/v1"

    def script(self, steps: list[dict[str, Any]], *, model: str | None = None, times: int | None = None) -> None:
        """Play `steps` for every request for `model`; without a model, for the next `times` (1) requests."""
        body: dict[str, Any] = {"steps": steps, "model": model}
        if times is not None:
            body["times"] = times
        self.http.post("/_script", json=body).raise_for_status()

    def log(self) -> list[dict[str, Any]]:
        """Return the requests so far, oldest first."""
        requests: list[dict[str, Any]] = self.http.get("/_log").json()["requests"]
        return requests

    def last(self) -> dict[str, Any]:
        """Return the newest request."""
        return self.log()[-1]

    def wait_for(self, what: str, *, timeout_s: float = 5.0) -> float:
        """Return the time.monotonic() of event `what` of the newest request; the clock is the machine's."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for event in self.last()["events"] if self.log() else ():
                if event["what"] == what:
                    return float(event["at"])
            time.sleep(0.01)
        raise AssertionError(f"the upstream saw no {what!r} within {timeout_s} s: {self.log()[-1:]}")

    def reset(self) -> None:
        self.http.post("/_reset").raise_for_status()


@pytest.fixture(scope="session")
def upstream_process() -> Iterator[UpstreamControl]:
    """Start the scripted upstream, once per test run."""
    command = [sys.executable, "-m", "tests.fakes.upstream", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = json.loads(process.stdout.readline())["port"]
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False) as http:
                yield UpstreamControl(f"http://127.0.0.1:{port}", http)
        finally:
            process.terminate()


@pytest.fixture
def upstream(upstream_process: UpstreamControl) -> Iterator[UpstreamControl]:
    """Return the scripted upstream without scripts and with an empty log."""
    upstream_process.reset()
    yield upstream_process
    upstream_process.reset()
