"""A hostile relay against the platform's and the worker's own code, in memory: how many wrong bytes get through?

    python -m tests.faults.hostile [--streams 1000000] [--seed 1] [--processes N] [--no-authentication]

Every stream is random text sealed by the worker's producer and read by the platform's `JobChannel`; between them stands
`tests.faults.attacks`. Of every hundred, 90 are answers, 7 are sealed offers to a worker, 3 are transcripts returned
by a task. `--no-authentication` opens frames without checking their tags: then wrong bytes must be found.
Ends with 1 when anything was wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from random import Random
from unittest import mock

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from hpc_worker import crypto, wire
from tests.faults.answers import play_answer
from tests.faults.memory import SkippingLoop
from tests.faults.others import play_offers, play_transcript
from tests.faults.streams import new_offer, seal_answer

BATCH = 2_000
KEPT_FAULTS = 20


@dataclass
class Tally:
    """`wrong_bytes`: bytes handed on that nobody sealed there. `faults`: every broken promise, as words with its seed."""

    streams: int = 0
    bytes: int = 0
    wrong_bytes: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    moves: Counter[str] = field(default_factory=Counter)
    broken: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.streams += other.streams
        self.bytes += other.bytes
        self.wrong_bytes += other.wrong_bytes
        self.endings += other.endings
        self.moves += other.moves
        self.broken += other.broken
        self.faults = (self.faults + other.faults)[:KEPT_FAULTS]


def run(first: int, count: int, seed: int) -> Tally:
    """Play the streams numbered `first` to `first + count`; each has a seed of its own."""
    tally = Tally()
    loop = SkippingLoop()
    other = seal_answer(Random(f"{seed}/other"), new_offer(Random(f"{seed}/offer"))).frames
    try:
        for number in range(first, first + count):
            rng = Random(f"{seed}/{number}")
            dice = number % 100
            play = play_answer if dice < 90 else play_offers if dice < 97 else play_transcript
            seen = play(rng, loop, other)
            other = seen.frames
            tally.streams += 1
            tally.bytes += seen.bytes
            tally.wrong_bytes += seen.wrong_bytes
            tally.endings[seen.ending] += 1
            tally.moves += seen.moves
            tally.broken += bool(seen.faults)
            tally.faults += [f"stream {number}: {fault}" for fault in seen.faults]
            del tally.faults[KEPT_FAULTS:]
    finally:
        loop.close()
    return tally


class UnverifiedOpener(crypto.Opener):
    """Open frames without looking at their tags: what the harness must be able to tell from the real one."""

    __slots__ = ("_key", "_start")

    def __init__(self, keys: crypto.StreamKeys, direction: wire.Direction) -> None:
        super().__init__(keys, direction)
        self._key, iv = keys.of(direction)
        self._start = int.from_bytes(iv, "big")
        self._decrypt = self._unverified  # type: ignore[assignment]

    def _unverified(self, nonce: bytes, box: bytes, aad: bytes) -> bytes:
        # GCM is counter mode from block 2 on, and a tag
        counter = modes.CTR(nonce + b"\0\0\0\2")
        return Cipher(algorithms.AES(self._key), counter).decryptor().update(box[: -wire.TAG_BYTES])


@contextmanager
def without_authentication() -> Iterator[None]:
    """Let the platform believe every frame."""
    with mock.patch("routing.backends.hpc.unseal.Opener", UnverifiedOpener):
        yield


def _batch(first: int, count: int, seed: int, authentic: bool) -> Tally:
    if authentic:
        return run(first, count, seed)
    with without_authentication():
        return run(first, count, seed)


def run_parallel(streams: int, seed: int, processes: int, *, authentic: bool = True) -> Tally:
    """Play `streams` streams on several processors."""
    total = Tally()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        firsts = range(0, streams, BATCH)
        parts = [pool.submit(_batch, at, min(BATCH, streams - at), seed, authentic) for at in firsts]
        for part in parts:
            total.add(part.result())
    return total


def report(tally: Tally, seconds: float) -> str:
    lines = [
        f"{tally.streams:,} streams, {tally.bytes:,} bytes handed on, in {seconds:.0f} s",
        "endings: " + ", ".join(f"{name} {count:,}" for name, count in tally.endings.most_common()),
        "moves: " + ", ".join(f"{name} {count:,}" for name, count in tally.moves.most_common()),
        f"wrong bytes: {tally.wrong_bytes:,}; streams with any broken promise: {tally.broken:,}",
    ]
    return "\n".join([*lines, *tally.faults])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-authentication", action="store_true", help="open frames without checking their tags")
    options = parser.parse_args()
    began = time.perf_counter()
    tally = run_parallel(options.streams, options.seed, options.processes, authentic=not options.no_authentication)
    print(report(tally, time.perf_counter() - began))
    return 1 if tally.broken or tally.wrong_bytes else 0


if __name__ == "__main__":
    sys.exit(main())
