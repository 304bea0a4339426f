"""Measure what the campus tier adds to its own model server: relay, sealing, worker and dispatcher, all real processes.

    python -m benchmarks.hpc [--quick] [--json figures.json]

The model is a scripted server on loopback: 200 ms of prefill, then 307 tokens at 26.9 a second, as vLLM writes them. It is
asked directly and through the campus in turn, the long answers at the same time. Figures:

* `resident_added_ms_p50`        first text through a resident worker minus first text from the server, medians
* `batch_over_streamed`          whole answer / first text, both through the campus: a node that cannot reach the relay
                                 returns the whole answer, so nothing of it can be shown sooner
* `throughput_ratio`             tokens a second from the question to the last text: campus / direct
* `intertoken_added_ms_p99_64`   p99 of the gap between texts, 64 answers at once: campus minus direct

Everything shares the machine's processors with the model server and this client, so the figures are upper bounds.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import django
import httpx

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()  # what follows imports models

from benchmarks.common import parser, report  # noqa: E402
from hpc_worker import loop  # noqa: E402
from routing.backends.base import Backend  # noqa: E402
from routing.backends.config import BackendConfig  # noqa: E402
from routing.backends.hpc.watch import HpcLimits  # noqa: E402
from routing.backends.openai_compat import OpenAICompatBackend  # noqa: E402
from routing.types import TextDelta, Tier  # noqa: E402
from tests.fakes import scripts  # noqa: E402
from tests.fixtures_upstream import ROOT, UpstreamControl  # noqa: E402
from tests.integration.hpc.rig import CampusRig, call  # noqa: E402
from tests.site import Site  # noqa: E402

STREAMS = 64
PREFILL_S, TOKENS, RATE = 0.2, 307, 26.9
LIMITS = HpcLimits(worker_s=60, first_text_s=60, between_text_s=60, total_s=300)
RELAY_LIMITS = {"RELAY_LIMIT_FRAMES_PER_S": "1e6", "RELAY_LIMIT_BYTES_PER_S": "1e9"}


async def arrivals(backend: Backend) -> list[float]:
    """Return the seconds from the question to each text of one answer."""
    began = time.perf_counter()
    return [time.perf_counter() - began async for event in backend.stream(call()) if isinstance(event, TextDelta)]


async def first_texts(backends: tuple[Backend, Backend], rounds: int) -> tuple[float, float]:
    """Return the median first text of each backend, asked in turn."""
    found: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for times, backend in zip(found, backends, strict=True):
            times.append((await arrivals(backend))[0])
    return statistics.median(found[0]), statistics.median(found[1])


async def whole_answers(backends: tuple[Backend, Backend], rounds: int) -> tuple[float, float, float]:
    """Return, of whole answers: the campus's tokens a second, the server's, and the campus's end / first text; medians."""
    campus, direct, batch = [], [], []
    for _ in range(rounds):
        through, straight = await asyncio.gather(*(arrivals(backend) for backend in backends))
        campus.append(TOKENS / through[-1])
        direct.append(TOKENS / straight[-1])
        batch.append(through[-1] / through[0])
    return statistics.median(campus), statistics.median(direct), statistics.median(batch)


async def gap_p99(backend: Backend) -> float:
    """Return the p99 of the gaps between texts of `STREAMS` answers at once."""
    answers = await asyncio.gather(*(arrivals(backend) for _ in range(STREAMS)))
    gaps = sorted(b - a for times in answers for a, b in itertools.pairwise(times))
    return gaps[int(len(gaps) * 0.99)]


@contextmanager
def upstream() -> Iterator[UpstreamControl]:
    """Run the scripted model server."""
    command = [sys.executable, "-m", "tests.fakes.upstream", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            port = json.loads(process.stdout.readline())["port"] if process.stdout else 0
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False) as http:
                yield UpstreamControl(f"http://127.0.0.1:{port}", http)
        finally:
            process.terminate()


async def measure(rig: CampusRig, *, quick: bool) -> dict[str, float]:
    campus = rig.backend(LIMITS)
    direct = OpenAICompatBackend(BackendConfig(tier=Tier.HPC, base_url=rig.upstream.openai_url, api_key="none"))
    both = (campus, direct)
    model = call().model.name
    try:
        rig.upstream.script(scripts.numbered(3, 1000, prefill_s=PREFILL_S), model=model)
        await first_texts(both, 5)  # starts the worker and every connection
        through, straight = await first_texts(both, 15 if quick else 200)
        rig.upstream.script(scripts.numbered(TOKENS, RATE, prefill_s=PREFILL_S), model=model)
        streamed, served, batch = await whole_answers(both, 1 if quick else 3)
        if quick:
            rig.upstream.script(scripts.numbered(60, RATE, prefill_s=PREFILL_S), model=model)
        gap_straight, gap_through = await gap_p99(direct), await gap_p99(campus)
    finally:
        await campus.close()
        await direct.close()
    return {
        "resident_added_ms_p50": (through - straight) * 1000,
        "batch_over_streamed": batch,
        "throughput_ratio": streamed / served,
        "intertoken_added_ms_p99_64": (gap_through - gap_straight) * 1000,
    }


def main() -> None:
    """Start a campus, measure, print."""
    options = parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory(prefix="stream-bench-") as folder, upstream() as model:
        site = Site(Path(folder), {"STREAM_CAPACITY": str(STREAMS), "STREAM_PARKED": "32", **RELAY_LIMITS})
        rig = CampusRig(site, model)
        try:
            rig.prepare()
            figures = loop.run(measure(rig, quick=options.quick))
        finally:
            if "relay" in site.processes:
                site.kill("relay")
            site.stop()
    notes = {
        "resident_added_ms_p50": "ms",
        "batch_over_streamed": "times: whole answer / first text",
        "throughput_ratio": f"campus / direct, {TOKENS} tokens at {RATE} tokens/s",
        "intertoken_added_ms_p99_64": f"ms, {STREAMS} answers at {RATE} tokens/s",
    }
    report("campus tier", figures, notes, options.json)


if __name__ == "__main__":
    main()
