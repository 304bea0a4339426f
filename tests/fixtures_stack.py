"""The real development stack, started by its own command on a free port, for integration and browser tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stream_site.devstack.places import free_port
from tests.setting_names import ROOT, setting_names

START_LIMIT_S = 60


@dataclass
class Stack:
    """A running stack. `group` is the process group of its children."""

    process: subprocess.Popen[bytes]
    var_dir: Path
    port: int
    output: Path
    group: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def password(self) -> str:
        """The password of the user `demo`."""
        return (self.var_dir / "demo_password").read_text(encoding="ascii").strip()

    def text(self) -> str:
        """Return what the command has printed."""
        return self.output.read_text(encoding="utf-8")

    def members(self) -> dict[int, str]:
        """Return the stack's living child processes: their command lines by process id."""
        listing = subprocess.run(
            ["ps", "-A", "-ww", "-o", "pid=,pgid=,stat=,args="], capture_output=True, text=True, check=True
        )
        rows = (line.split(None, 3) for line in listing.stdout.splitlines())
        return {int(pid): args for pid, pgid, stat, args in rows if int(pgid) == self.group and stat[0] != "Z"}

    def child(self, words: str) -> int:
        """Return the process id of the child whose command line contains `words`."""
        return next(pid for pid, args in self.members().items() if words in args)

    def wait_until(self, text: str, limit_s: float = START_LIMIT_S) -> None:
        """Wait until the command has printed `text`."""
        deadline = time.monotonic() + limit_s
        while text not in self.text():
            assert self.process.poll() is None, f"the stack ended before {text!r}:\n{self.text()}"
            assert time.monotonic() < deadline, f"no {text!r} within {limit_s} s:\n{self.text()}"
            time.sleep(0.05)

    def stop(self) -> int:
        """Stop it as Ctrl-C does; return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(20)


def launch(var_dir: Path, port: int, **env: str) -> Stack:
    """Start `manage.py devstack`, without waiting for it and with nothing of the developer's settings."""
    var_dir.mkdir(parents=True, exist_ok=True)
    output = var_dir / f"devstack-{port}.out"
    clean = {name: value for name, value in os.environ.items() if name not in setting_names()}
    own = {
        "DJANGO_SETTINGS_MODULE": "stream_site.settings",
        "STREAM_VAR_DIR": str(var_dir),
        "OLLAMA_HOST": "127.0.0.1:9",
    }
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), "devstack", "--port", str(port)],
            env=clean | own | env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    return Stack(process, var_dir, port, output)


def start(var_dir: Path, **env: str) -> Stack:
    """Start a stack on a free port and wait until it is ready."""
    stack = launch(var_dir, free_port(), **env)
    stack.wait_until("Ready after")
    listing = subprocess.run(["ps", "-A", "-o", "ppid=,pgid="], capture_output=True, text=True, check=True)
    rows = (line.split() for line in listing.stdout.splitlines())
    stack.group = next(int(pgid) for ppid, pgid in rows if int(ppid) == stack.process.pid)
    return stack


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The whole stack with the embedded model, one for the whole run."""
    running = start(tmp_path_factory.mktemp("stack"))
    yield running
    running.stop()
