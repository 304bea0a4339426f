"""A campus of real processes: relay, key-value server, dispatcher and its workers; the scripted upstream is the model."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hpc_worker.keyring import Keyring
from routing.backends.hpc.backend import HpcBackend
from routing.backends.hpc.directory import Campus, parse_relays
from routing.backends.hpc.watch import HpcLimits
from routing.types import BackendEvent, DataPolicy, Message, ModelCall, ModelSpec, TextDelta, Tier
from stream_site.errors import StreamError
from tests.fixtures_upstream import UpstreamControl
from tests.site import Site, free_port, wait_until

MODEL = "demo-small"
SPEC = ModelSpec(tier=Tier.HPC, name=MODEL, label="Small", window=4096, max_output=1024)
QUICK = HpcLimits(worker_s=30, first_text_s=20, between_text_s=20, total_s=60, relay_s=10)


@dataclass
class CampusRig:
    """`keys` are the lines that `hpc_keys` printed: variable -> ring."""

    site: Site
    upstream: UpstreamControl
    relay_port: int = field(default_factory=free_port)
    keys: dict[str, str] = field(default_factory=dict)

    @property
    def relays(self) -> str:
        return f"relay.test=ws://127.0.0.1:{self.relay_port}/v1"

    def prepare(self, *people: str) -> None:
        """Make database, endpoint and keys; start key-value server, relay and dispatcher."""
        self.site.env |= {
            "RELAY_URLS": self.relays,
            "HPC_DEMO_MODEL_URL": self.upstream.openai_url,
            "HPC_DEMO_MODEL_KEY": "model-key-of-the-tests",
        }
        self.site.start_kv()
        self.site.prepare(*people)
        printed = self.site.manage("hpc_keys", "new", "lab", "--control", "process", "--model", MODEL)
        pairs = (line.partition("    #")[0].partition("=") for line in printed.splitlines() if "=" in line)
        self.keys = {name: ring for name, _, ring in pairs}
        self.start_relay()
        self.start_dispatcher()

    def start_relay(self) -> None:
        env = {name: self.keys[name] for name in ("RELAY_CONSUMER_KEYS", "RELAY_PRODUCER_KEYS")}
        argv = (sys.executable, "-m", "relay", "--port", str(self.relay_port))
        self.site.spawn("relay", *argv, RELAY_NAME="relay.test", **env)
        self.wait_for_port(self.relay_port)

    def start_dispatcher(self) -> None:
        self.site.spawn("campus", sys.executable, "manage.py", "hpc_dispatcher")
        wait_until(lambda: b"has the lease" in self.site.log_of("campus"), "the dispatcher's start", 40)

    def wait_for_port(self, port: int) -> None:
        def listens() -> bool:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 0.5).close()
                return True
            return False

        wait_until(listens, f"a listener on {port}")

    def restart_relay(self) -> None:
        self.site.kill("relay", signal.SIGKILL)
        time.sleep(0.3)
        self.start_relay()

    def workers(self) -> list[int]:
        """Return the process ids of the dispatcher's workers."""
        parent = str(self.site.processes["campus"].pid)
        done = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True)
        rows = (line.split() for line in done.stdout.splitlines())
        return [int(pid) for pid, ppid, stat in rows if ppid == parent and not stat.startswith("Z")]

    def campus(self) -> Campus:
        """Return the endpoint as the platform knows it."""
        consumer = Keyring.parse(self.keys["RELAY_CONSUMER_KEYS"])
        return Campus(
            id=1,
            name="lab",
            label="Lab",
            control="process",
            model=MODEL,
            relays=parse_relays(self.relays),
            content=Keyring.parse(self.keys["STREAM_E2E_KEYS"]),
            producers=Keyring.parse(self.keys["STREAM_PRODUCER_KEYS"]),
            consumer=(consumer.primary, consumer.keys[consumer.primary]),
        )

    def backend(self, limits: HpcLimits = QUICK, **changes: Any) -> HpcBackend:
        """Return a backend of this campus, with `changes` to its fields."""
        campus = replace(self.campus(), **changes)
        return HpcBackend(self.site.env["REDIS_URL"], limits, lambda model: campus, lambda kid: None)


def call(question: str = "Hello?", policy: DataPolicy = DataPolicy.CAMPUS_ONLY) -> ModelCall:
    return ModelCall(SPEC, [Message("user", question)], max_tokens=2000, data_policy=policy)


async def collect(stream: AsyncGenerator[BackendEvent, None]) -> list[BackendEvent]:
    return [event async for event in stream]


async def collect_until_error(stream: AsyncGenerator[BackendEvent, None]) -> tuple[list[BackendEvent], StreamError]:
    """Return what came before the error, and the error."""
    events: list[BackendEvent] = []
    try:
        async for event in stream:
            events.append(event)
    except StreamError as error:
        return events, error
    raise AssertionError(f"no error after {events[-3:]}")


def text_of(events: list[BackendEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def secrets_of(keys: dict[str, str]) -> list[str]:
    """Return every key in hex."""
    return [entry.partition(":")[2] for ring in keys.values() for entry in ring.split(",")]


def seen_of(pid: int) -> str:
    """Return what other processes of this account can read of a process: its arguments and its environment."""
    return "".join(Path(f"/proc/{pid}/{name}").read_bytes().decode(errors="replace") for name in ("cmdline", "environ"))


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
