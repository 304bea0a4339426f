"""A relay process and small honest peers, built from the wire codec and the `websockets` library alone."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect

from hpc_worker import handshake as h
from hpc_worker import wire
from hpc_worker.keyring import sign

NAME = "relay.test"
CONSUMER = ("c1", bytes(range(32)))
PRODUCER = ("p-1", bytes(range(1, 33)))
TOKEN = "metrics-token"
ROOT = Path(__file__).resolve().parents[3]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class RelayProcess:
    """`python -m relay` on a port that stays the same over restarts."""

    limits: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    log: Path = Path(os.devnull)
    fast: bool = True
    name: str = NAME
    command: list[str] = field(default_factory=lambda: ["-m", "relay"])

    def start(self) -> RelayProcess:
        env = {
            "PATH": os.environ["PATH"],
            "RELAY_NAME": self.name,
            "RELAY_CONSUMER_KEYS": f"{CONSUMER[0]}:{CONSUMER[1].hex()}",
            "RELAY_PRODUCER_KEYS": f"{PRODUCER[0]}:{PRODUCER[1].hex()}",
            "RELAY_METRICS_TOKEN": TOKEN,
            "RELAY_FAST_PATH": "1" if self.fast else "0",
            **{f"RELAY_LIMIT_{name.upper()}": value for name, value in self.limits.items()},
        }
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, *self.command, "--port", str(self.port)], env=env, cwd=ROOT, stdout=out, stderr=out
            )
        end = time.monotonic() + 15
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 0.5).close()
                return self
            time.sleep(0.02)
        raise RuntimeError("the relay did not start")

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/v1"

    def get(self, path: str, token: str = "") -> tuple[int, str]:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def wait_for_channels(self, count: int) -> None:
        end = time.monotonic() + 15
        while f"relay_channels {count}\n" not in self.get("/metrics", TOKEN)[1]:
            if time.monotonic() > end:
                raise RuntimeError(f"no {count} channels")
            time.sleep(0.02)

    def rss_mb(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        raise RuntimeError("the relay is gone")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


def data_frame(seq: int, size: int = 32, kind: wire.FrameType = wire.FrameType.DATA) -> bytes:
    """A frame of the right outer shape. The relay cannot tell it from a sealed one."""
    body = seq.to_bytes(4, "big") * ((size + wire.TAG_BYTES) // 4)
    return wire.header(kind, seq) + body


def head_frame(salt: bytes, attempt: int = 1) -> bytes:
    return wire.build_head(wire.Head("k1", attempt, salt, bytes(32)))


@contextlib.asynccontextmanager
async def dial(url: str, **options: object) -> AsyncIterator[ClientConnection]:
    # A peer that is held back could not close in good order; none of the tests needs it to.
    async with connect(url, compression=None, ping_interval=None, open_timeout=5, close_timeout=0.2, **options) as ws:  # type: ignore[arg-type]
        try:
            yield ws
        finally:
            ws.transport.abort()


async def challenge(ws: ClientConnection) -> h.Challenge:
    message = h.parse_text(await asyncio.wait_for(ws.recv(decode=True), 5))
    assert isinstance(message, h.Challenge)
    return message


async def open_consumer(
    ws: ClientConnection, cid: bytes, last: int = 0, fin: bool = False, **more: object
) -> h.ConsumerOk:
    nonce = (await challenge(ws)).nonce
    message = h.ConsumerOpen(CONSUMER[0], cid, last, fin, **more)  # type: ignore[arg-type]
    await ws.send(h.build_text(sign(CONSUMER[1], nonce, NAME, message)))
    ok = h.parse_text(await asyncio.wait_for(ws.recv(decode=True), 5))
    assert isinstance(ok, h.ConsumerOk)
    return ok


async def open_producer(ws: ClientConnection, cid: bytes, salt: bytes, attempt: int = 1) -> h.ProducerOk:
    nonce = (await challenge(ws)).nonce
    message = h.ProducerOpen(PRODUCER[0], cid, attempt, salt[:16])
    await ws.send(h.build_text(sign(PRODUCER[1], nonce, NAME, message)))
    ok = h.parse_text(await asyncio.wait_for(ws.recv(decode=True), 5))
    assert isinstance(ok, h.ProducerOk)
    return ok
