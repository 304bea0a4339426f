"""A campus of real processes: relay, key-value server, dispatcher and its workers; the scripted upstream is the model."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
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
from routing.backends.hpc.fleet import LOOK_EVERY_S
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
    others: dict[str, dict[str, str]] = field(default_factory=dict)
    started: bool = False
    control: tuple[str, ...] = ("--control", "process")

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
        self.keys = self.new_endpoint("lab", MODEL)
        self.start_relay()
        self.start_dispatcher()

    def new_endpoint(self, name: str, model: str) -> dict[str, str]:
        """Make an endpoint; return its keys as `hpc_keys` prints them."""
        printed = self.site.manage("hpc_keys", "new", name, *self.control, "--model", model)
        pairs = (line.partition("    #")[0].partition("=") for line in printed.splitlines() if "=" in line)
        return {name: ring for name, _, ring in pairs}

    def change(self, name: str, **fields: int) -> None:
        """Change fields of an endpoint, as its admin page does."""
        with contextlib.closing(sqlite3.connect(self.site.var / "stream.sqlite3", timeout=10)) as db, db:
            sets = ", ".join(f"{field} = ?" for field in fields)
            db.execute(f"UPDATE routing_hpcendpoint SET {sets} WHERE name = ?", (*fields.values(), name))

    def add_endpoints(self, **fields: dict[str, int]) -> None:
        """Make endpoints beside `lab` while everything runs; the relay learns their keys, as relays do, by a restart."""
        for name, changes in fields.items():
            self.others[name] = self.new_endpoint(name, f"model-of-{name}")
            self.change(name, **changes)
        changed = time.monotonic()
        self.restart_relay()
        seen_s = changed + LOOK_EVERY_S + 0.5 - time.monotonic()
        time.sleep(max(0.0, seen_s))  # a dispatcher may have seen one half made
        for name in fields:
            said = f"{name}: this dispatcher has the lease".encode()
            wait_until(lambda said=said: said in self.site.log_of("campus"), f"a dispatcher for {name}", 20)

    def start_relay(self) -> None:
        rings = [self.keys, *self.others.values()]
        names = ("RELAY_CONSUMER_KEYS", "RELAY_PRODUCER_KEYS")
        env = {name: ",".join(keys[name] for keys in rings) for name in names}
        argv = (sys.executable, "-m", "relay", "--port", str(self.relay_port))
        self.site.spawn("relay", *argv, RELAY_NAME="relay.test", **env)
        self.wait_for_port(self.relay_port)

    def start_dispatcher(self) -> None:
        before = self.site.log_of("campus").count(b"lab: this dispatcher has the lease") if self.started else 0
        self.started = True
        self.site.spawn("campus", sys.executable, "manage.py", "hpc_dispatcher", STREAM_AWAY_S="6")
        leases = b"lab: this dispatcher has the lease"
        wait_until(lambda: self.site.log_of("campus").count(leases) > before, "the dispatcher's start", 40)

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

    def stop_relay(self) -> None:
        self.site.kill("relay", signal.SIGKILL)

    def workers(self) -> list[int]:
        """Return the process ids of the dispatcher's workers."""
        parent = str(self.site.processes["campus"].pid)
        done = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True)
        rows = (line.split() for line in done.stdout.splitlines())
        return [int(pid) for pid, ppid, stat in rows if ppid == parent and not stat.startswith("Z")]

    def campus(self, name: str = "lab") -> Campus:
        """Return an endpoint as the platform knows it."""
        keys = self.others.get(name, self.keys)
        consumer = Keyring.parse(keys["RELAY_CONSUMER_KEYS"])
        return Campus(
            id=1,
            name=name,
            label="Lab",
            control="process",
            model=MODEL,
            relays=parse_relays(self.relays),
            content=Keyring.parse(keys["STREAM_E2E_KEYS"]),
            producers=Keyring.parse(keys["STREAM_PRODUCER_KEYS"]),
            consumer=(consumer.primary, consumer.keys[consumer.primary]),
        )

    def backend(self, limits: HpcLimits = QUICK, **changes: Any) -> HpcBackend:
        """Return a backend of this campus, with `changes` to its fields."""
        campus = replace(self.campus(changes.get("name", "lab")), **changes)
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
