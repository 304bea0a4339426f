"""A whole site with a campus, made of processes that may be killed at any time and are started again."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import httpx

from tests.fixtures_upstream import ROOT, UpstreamControl
from tests.integration.hpc.rig import CampusRig
from tests.site import Site

SWEEP = "import time; from chat.tasks import sweep_turns\nwhile True:\n    sweep_turns(); time.sleep(0.5)"
ENV = {
    "RUNNER_MODE": "separate",
    "RUNNER_LEASE_S": "2",
    "RUNNER_POLL_S": "0.5",
    "BETWEEN_BYTES_TIMEOUT_S": "4",
    "STREAM_CAPACITY": "64",
}
RUNNERS = ("runner-1", "runner-2")


@dataclass
class MortalSite(Site):
    """Remember the session of every process ever started, to find what is left of it."""

    sessions: set[int] = field(default_factory=set)

    def spawn(self, name: str, *argv: str, **env: str) -> subprocess.Popen[bytes]:
        process = super().spawn(name, *argv, **env)
        self.sessions.add(process.pid)
        return process

    def alive(self) -> list[int]:
        """Return the processes of those sessions that still run."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[3]) in self.sessions and fields[0] != "Z":
                    found.append(int(stat.parent.name))
        return found


@contextmanager
def upstream() -> Iterator[UpstreamControl]:
    """Run the scripted model server as a process."""
    command = [sys.executable, "-m", "tests.fakes.upstream", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = json.loads(process.stdout.readline())["port"] if process.stdout else 0
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20, trust_env=False) as http:
                yield UpstreamControl(f"http://127.0.0.1:{port}", http)
        finally:
            process.terminate()


@contextmanager
def stage(folder: Path, model: UpstreamControl) -> Iterator[CampusRig]:
    """Start key-value server, web, two runners, a sweeper, relay and dispatcher, which starts workers."""
    site = MortalSite(folder, dict(ENV))
    rig = CampusRig(site, model)
    try:
        rig.prepare("alice")
        site.spawn("sweeper", sys.executable, "manage.py", "shell", "--no-imports", "-c", SWEEP)
        with ThreadPoolExecutor() as pool:
            starting = [pool.submit(site.start_web), *(pool.submit(site.start_runner, name) for name in RUNNERS)]
        for start in starting:
            start.result()
        yield rig
    finally:
        for name in ("relay", "web"):  # they would drain for seconds
            if name in site.processes:
                site.kill(name)
        site.stop()


class Killer(threading.Thread):
    """Kill a relay, runner or worker by its process id at random moments until told to end. Runs as a thread."""

    def __init__(self, rig: CampusRig, rng: Random, every_s: tuple[float, float]) -> None:
        super().__init__(name="killer")
        self._rig, self._rng, self._every_s = rig, rng, every_s
        self._over = threading.Event()
        self._starting: dict[str, threading.Thread] = {}
        self.kills: Counter[str] = Counter()
        self.errors: list[str] = []

    def end(self) -> None:
        """Kill no more, and wait until what was killed runs again."""
        self._over.set()
        self.join(60)
        for thread in self._starting.values():
            thread.join(60)

    def run(self) -> None:
        while not self._over.wait(self._rng.uniform(*self._every_s)):
            what = self._rng.choice(("relay", "worker", *RUNNERS))
            if what == "worker":
                self._kill_worker()
            elif not self._is_starting(what):
                self._kill(what)

    def _is_starting(self, name: str) -> bool:
        thread = self._starting.get(name)
        return thread is not None and thread.is_alive()

    def _kill_worker(self) -> None:
        workers = self._rig.workers()
        if workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._rng.choice(workers), signal.SIGKILL)
                self.kills["worker"] += 1

    def _kill(self, name: str) -> None:
        self._rig.site.kill(name, signal.SIGKILL)
        self.kills[name.partition("-")[0]] += 1
        self._starting[name] = threading.Thread(target=self._start, args=(name,), name=f"starting {name}")
        self._starting[name].start()

    def _start(self, name: str) -> None:
        try:
            if name == "relay":
                time.sleep(self._rng.uniform(0, 0.5))
                self._rig.start_relay()
            else:
                self._rig.site.start_runner(name)
        except (AssertionError, OSError) as error:
            self.errors.append(f"{name} did not start again: {error}")
