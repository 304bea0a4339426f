"""Measure this relay beside streamrelay 0.3.1, interleaved, on loopback.

    python -m benchmarks.relay --peer-python /path/to/venv/bin/python [--quick] [--out figures.json]

The peer's environment holds `streamrelay==0.3.1 uvloop`. Figures, each a median over the repetitions:

* `cpu_ratio_saturated_50`   relay CPU a message, ours / peer's; 50 channels, 64 sealed messages in flight each
* `p99_ratio_paced_200`, `p99_ratio_paced_500`   one-way p99, ours / peer's: 50 channels, 4 and 10 messages/s each
* `rss_mb_per_1000_idle`     resident memory of our relay for 1,000 channels with both sides connected
* `crypto_ratio`             CPU to seal and open one token, ours / peer's

Relay and load run on different cores. CPU is the process's own, from schedstat. Quote ratios, not absolute times.
"""

from __future__ import annotations

import argparse
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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.relay_load import Ours, Peer, Side, pace, saturate
from hpc_worker.crypto import Opener, Scope, Sealer, derive_stream
from hpc_worker.wire import Direction, FrameType, Kind

NAME = "relay.bench"
CONSUMER = ("c1", bytes(range(32)))
PRODUCER = ("p-1", bytes(range(1, 33)))
SECRET = "bench-secret"  # noqa: S105
CHANNELS = 50
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
PEER_CRYPTO = """
import json, sys, time
from streamrelay.crypto import decrypt_message, encrypt_message, generate_key
key, text, n = generate_key(), json.dumps({"type": "token", "content": sys.argv[1]}), int(sys.argv[2])
began = time.process_time()
for _ in range(n): decrypt_message(key, encrypt_message(key, text))
print((time.process_time() - began) / n * 1e6)
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
def our_relay() -> Iterator[tuple[Process, Side]]:
    """Run `python -m relay`."""
    env = {
        "PATH": os.environ["PATH"],
        "RELAY_NAME": NAME,
        "RELAY_CONSUMER_KEYS": f"{CONSUMER[0]}:{CONSUMER[1].hex()}",
        "RELAY_PRODUCER_KEYS": f"{PRODUCER[0]}:{PRODUCER[1].hex()}",
        **{f"RELAY_LIMIT_{name}": value for name, value in LIMITS.items()},
    }
    with running([sys.executable, "-m", "relay", "--port"], env) as process:
        yield process, Ours(process.port, NAME, CONSUMER, PRODUCER)


@contextlib.contextmanager
def peer_relay(python: str) -> Iterator[tuple[Process, Side]]:
    """Run `streamrelay serve`, which installs uvloop itself when it is there."""
    sealed = subprocess.check_output([python, "-c", PEER_SEALED, TOKEN]).strip()
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


async def idle_mb(process: Process, side: Side, count: int) -> float:
    """Return the megabytes that `count` idle channels cost, scaled to 1,000."""
    warm = [await side.pair(i, None) for i in range(50)]
    await asyncio.sleep(1)
    before = process.rss_mb()
    pairs = [await side.pair(i, None) for i in range(count)]
    await asyncio.sleep(1)
    cost = (process.rss_mb() - before) / count * 1000
    for producer, consumer in (*warm, *pairs):
        producer.transport.abort()
        consumer.transport.abort()
    return cost


def compare(peer_python: str, repeats: int, seconds: float, idle: int) -> dict[str, object]:
    """Run everything and return the figures with the raw medians behind them."""
    raw: dict[str, list[float]] = {}

    def note(key: str, value: float) -> None:
        raw.setdefault(key, []).append(value)

    for _ in range(repeats):
        for who, start in (("ours", our_relay), ("peer", lambda: peer_relay(peer_python))):
            with start() as (process, side):
                load = uvloop.run(saturate(side, CHANNELS, seconds, process.cpu))
                note(f"{who}_cpu_us", load["cpu_us"])
                note(f"{who}_messages_per_s", load["messages_per_s"])
            for total in (200, 500):
                with start() as (process, side):
                    paced = uvloop.run(pace(side, CHANNELS, total // CHANNELS, seconds))
                    note(f"{who}_p99_ms_{total}", paced["p99"])
                    note(f"{who}_lost_{total}", paced["lost"])
        note("ours_crypto_us", crypto_us(20_000))
        note("peer_crypto_us", float(subprocess.check_output([peer_python, "-c", PEER_CRYPTO, TOKEN, "20000"])))
    with our_relay() as (process, side):
        note("rss_mb_per_1000_idle", uvloop.run(idle_mb(process, side, idle)))
    middle = {key: statistics.median(values) for key, values in raw.items()}
    return {
        "cpu_ratio_saturated_50": round(middle["ours_cpu_us"] / middle["peer_cpu_us"], 3),
        "p99_ratio_paced_200": round(middle["ours_p99_ms_200"] / middle["peer_p99_ms_200"], 3),
        "p99_ratio_paced_500": round(middle["ours_p99_ms_500"] / middle["peer_p99_ms_500"], 3),
        "rss_mb_per_1000_idle": round(middle["rss_mb_per_1000_idle"], 1),
        "crypto_ratio": round(middle["ours_crypto_us"] / middle["peer_crypto_us"], 3),
        "raw": {key: round(value, 3) for key, value in middle.items()},
    }


def main() -> None:
    """Parse the command line, measure, print JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", required=True)
    parser.add_argument("--quick", action="store_true", help="one repetition of short runs")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, set(range(1, os.cpu_count() or 2)))
    repeats, seconds, idle = (1, 2.0, 500) if options.quick else (3, 4.0, 1000)
    figures = compare(options.peer_python, repeats, seconds, idle)
    text = json.dumps(figures, indent=2)
    print(text)
    if options.out is not None:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
