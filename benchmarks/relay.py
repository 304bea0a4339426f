"""Measure this relay beside streamrelay 0.3.1, interleaved, on loopback.

    python -m benchmarks.relay --peer-python /path/to/venv/bin/python [--quick] [--json FILE]

The peer's environment holds `streamrelay==0.3.1 uvloop`. Its clients are imitated as they connect: with deflate.
Figures, each a median over the repetitions:

* `cpu_ratio_saturated_50`        relay CPU a message, ours / peer's: 50 channels, 64 sealed messages in flight each
* `cpu_ratio_saturated_50_plain`  the same with `RELAY_FAST_PATH=0`: an ASGI event for each message
* `p99_ratio_paced_N`             one-way p99, ours / peer's: N channels, 27 messages/s on each; also `p50_ratio_paced_N`
* `rss_mb_per_1000_idle`          resident memory of our relay for 1,000 channels with both sides connected
* `crypto_ratio`                  CPU to seal and open one token, ours / peer's

All relays run at once on one core, and the load on the others; each in turn is under load. CPU is the process's own,
from schedstat. Quote ratios, not absolute times.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.common import parser, report
from benchmarks.relay_clients import Ours, Peer, Sealed, Side
from benchmarks.relay_load import Pacer, close, saturate
from hpc_worker.crypto import Opener, Scope, Sealer, derive_stream
from hpc_worker.wire import Direction, FrameType, Kind

NAME = "relay.bench"
CONSUMER = ("c1", bytes(range(32)))
PRODUCER = ("p-1", bytes(range(1, 33)))
SECRET = "bench-secret"  # noqa: S105
SATURATED = 50
PACED = (1, 50, 200, 500)
TOKENS_PER_S = 27.0
TOKEN = " tokens"  # noqa: S105
# The load is far above what one address and one key may do in service.
LIMITS = {
    "FRAMES_PER_S": "1e9",
    "BYTES_PER_S": "1e12",
    "UNAUTHENTICATED": "5000",
    "UNAUTHENTICATED_PER_ADDRESS": "5000",
    "CHANNELS_PER_KID": "5000",
    "WAITING_PER_KID": "5000",
}
# Answers each line on its input with CPU microseconds to seal and open one token.
PEER_CRYPTO = """
import json, sys, time
from streamrelay.crypto import decrypt_message, encrypt_message, generate_key
key, text, n = generate_key(), json.dumps({"type": "token", "content": sys.argv[1]}), int(sys.argv[2])
for _ in sys.stdin:
    began = time.process_time()
    for _ in range(n): decrypt_message(key, encrypt_message(key, text))
    print((time.process_time() - began) / n * 1e6, flush=True)
"""
PEER_SEALED = """
import json, sys
from streamrelay.crypto import encrypt_message, generate_key
print(encrypt_message(generate_key(), json.dumps({"type": "token", "content": sys.argv[1]})))
"""


@dataclass(frozen=True)
class Process:
    """A relay under test."""

    child: subprocess.Popen[bytes]
    port: int

    def cpu(self) -> float:
        """Return seconds of CPU of all its threads (schedstat, nanoseconds)."""
        tasks = Path(f"/proc/{self.child.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9

    def rss_mb(self) -> float:
        """Return its resident memory."""
        status = Path(f"/proc/{self.child.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024


@contextlib.contextmanager
def running(command: list[str], env: dict[str, str]) -> Iterator[Process]:
    """Run a relay on the first core, its port appended to `command`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    full = ["taskset", "-c", "0", *command, str(port)]
    child = subprocess.Popen(full, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 0.5).close()
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        time.sleep(0.5)
        yield Process(child, port)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait(10)


@contextlib.contextmanager
def our_relay(fast: bool = True) -> Iterator[tuple[Process, Side]]:
    """Run `python -m relay`."""
    env = {
        "PATH": os.environ["PATH"],
        "RELAY_NAME": NAME,
        "RELAY_CONSUMER_KEYS": f"{CONSUMER[0]}:{CONSUMER[1].hex()}",
        "RELAY_PRODUCER_KEYS": f"{PRODUCER[0]}:{PRODUCER[1].hex()}",
        "RELAY_FAST_PATH": "1" if fast else "0",
        **{f"RELAY_LIMIT_{name}": value for name, value in LIMITS.items()},
    }
    with running([sys.executable, "-m", "relay", "--port"], env) as process:
        yield process, Ours(process.port, NAME, CONSUMER, PRODUCER)


@contextlib.contextmanager
def peer_relay(python: str) -> Iterator[tuple[Process, Side]]:
    """Run `streamrelay serve`, which installs uvloop itself when it is there."""
    sealed = Sealed(subprocess.check_output([python, "-c", PEER_SEALED, TOKEN]).strip())
    serve = [str(Path(python).parent / "streamrelay"), "serve", "--host", "127.0.0.1", "--secret", SECRET]
    with running([*serve, "--log-level", "WARNING", "--port"], {"PATH": os.environ["PATH"]}) as process:
        yield process, Peer(process.port, SECRET, sealed)


def crypto_us(count: int) -> float:
    """Return CPU microseconds to seal and open one token."""
    keys = derive_stream(bytes(range(32)), Scope("k1", bytes(16), 1), bytes(32), bytes(32))
    sealer, opener, body = Sealer(keys, Direction.P2C), Opener(keys, Direction.P2C), TOKEN.encode()
    began = time.process_time()
    for _ in range(count):
        opener.open(sealer.seal(FrameType.DATA, Kind.TEXT, body))
    return (time.process_time() - began) / count * 1e6


def crypto_pairs(peer_python: str, rounds: int) -> Iterator[tuple[float, float]]:
    """Yield CPU microseconds a token, ours and the peer's, in turn."""
    count = 3000
    command = [peer_python, "-c", PEER_CRYPTO, TOKEN, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdin is not None
        assert peer.stdout is not None
        for _ in range(rounds):
            mine = crypto_us(count)
            peer.stdin.write("\n")
            peer.stdin.flush()
            yield mine, float(peer.stdout.readline())


async def idle_mb(process: Process, side: Side, count: int) -> float:
    """Return the megabytes that `count` idle channels cost, scaled to 1,000."""
    warm = [await side.pair(i, None) for i in range(50)]
    await asyncio.sleep(0.5)
    before = process.rss_mb()
    pairs = [await side.pair(i, None) for i in range(count)]
    await asyncio.sleep(0.5)
    cost = (process.rss_mb() - before) / count * 1000
    await close([*warm, *pairs])
    return cost


class Measurement:
    """Values by name, one for each repetition."""

    def __init__(self, peer_python: str, rounds: int, seconds: float) -> None:
        self._peer_python, self._rounds, self._seconds = peer_python, rounds, seconds
        self._values: dict[str, list[float]] = {}

    def note(self, prefix: str, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._values.setdefault(f"{prefix}_{name}", []).append(value)

    def relays(self) -> None:
        """Measure both loads, one relay after the other in short turns: what else the machine does meets all of them."""
        with our_relay() as fast, our_relay(fast=False) as plain, peer_relay(self._peer_python) as peer:
            for _ in range(self._rounds):
                for who, (process, side) in (("fast", fast), ("plain", plain), ("peer", peer)):
                    self.note(who, uvloop.run(saturate(side, SATURATED, self._seconds / 2, process.cpu)))
            for _ in range(max(1, self._rounds - 2)):
                for channels in PACED:
                    for who, (process, side) in (("fast", fast), ("peer", peer)):
                        found = uvloop.run(Pacer(side, channels, TOKENS_PER_S, process.cpu).run(self._seconds))
                        self.note(f"{who}_{channels}", found)

    def crypto(self) -> None:
        """Measure what a token costs both ends."""
        for ours, theirs in crypto_pairs(self._peer_python, 5 * self._rounds):
            self.note("fast", {"crypto_us": ours})
            self.note("peer", {"crypto_us": theirs})

    def idle(self, count: int) -> None:
        """Measure what idle channels cost."""
        with our_relay() as (process, side):
            self.note("fast", {"idle_mb": uvloop.run(idle_mb(process, side, count))})

    def raw(self) -> dict[str, float]:
        """Return the medians."""
        return {name: round(statistics.median(values), 4) for name, values in self._values.items()}


def figures(raw: Mapping[str, float]) -> dict[str, float]:
    """Return what is published."""
    paced = {f"{q}_ratio_paced_{n}": raw[f"fast_{n}_{q}"] / raw[f"peer_{n}_{q}"] for q in ("p50", "p99") for n in PACED}
    found = {
        "cpu_ratio_saturated_50": raw["fast_cpu_us"] / raw["peer_cpu_us"],
        "cpu_ratio_saturated_50_plain": raw["plain_cpu_us"] / raw["peer_cpu_us"],
        **paced,
        "rss_mb_per_1000_idle": raw["fast_idle_mb"],
        "crypto_ratio": raw["fast_crypto_us"] / raw["peer_crypto_us"],
    }
    return {name: round(value, 3) for name, value in found.items()}


def main() -> None:
    """Parse the command line, measure, print."""
    arguments = parser(__doc__)
    arguments.add_argument("--peer-python", required=True)
    options = arguments.parse_args()
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, set(range(1, os.cpu_count() or 2)))
    rounds, seconds, idle = (3, 1.2, 200) if options.quick else (5, 4.0, 1000)
    measurement = Measurement(options.peer_python, rounds, seconds)
    measurement.idle(idle)
    measurement.crypto()
    measurement.relays()
    raw = measurement.raw()
    print(json.dumps(raw, indent=1))
    report("relay", figures(raw), {}, options.json)


if __name__ == "__main__":
    main()
