"""Measure what a task of its own costs: each question is submitted through Globus Compute, with its real software.

    python -m benchmarks.hpc_task [--quick] [--json figures.json]

The unmodified SDK, RabbitMQ and endpoint daemon, on loopback; what Globus hosts is a stand-in. Needs RabbitMQ and
`make endpoint-venv`. The model is a scripted server with 200 ms of prefill, asked directly and by a task in turn.

* `task_added_ms_p50`   first text by a task minus first text from the server, medians

The engine is warm, as when a block of the cluster is up: waiting for a node is the cluster's own affair.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import django
import pytest

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()  # what follows imports models

from benchmarks.common import parser, report  # noqa: E402
from benchmarks.hpc import PREFILL_S, arrivals, upstream  # noqa: E402
from hpc_worker import loop  # noqa: E402
from hpc_worker.bodies import Fin  # noqa: E402
from hpc_worker.keyring import Keyring  # noqa: E402
from relay.subscription import Timers  # noqa: E402
from routing.backends.config import BackendConfig  # noqa: E402
from routing.backends.hpc.backend import request_of  # noqa: E402
from routing.backends.hpc.channel import JobChannel, make_offer  # noqa: E402
from routing.backends.hpc.control import ControlPlane, JobMode, WorkerJob  # noqa: E402
from routing.backends.hpc.directory import Campus  # noqa: E402
from routing.backends.hpc.tasks import task_arguments  # noqa: E402
from routing.backends.openai_compat import OpenAICompatBackend  # noqa: E402
from routing.types import TextDelta, Tier  # noqa: E402
from tests.fakes import scripts  # noqa: E402
from tests.fixtures_globus import make_control  # noqa: E402
from tests.fixtures_upstream import ROOT, UpstreamControl  # noqa: E402
from tests.globus_parts import missing_parts  # noqa: E402
from tests.globus_processes import THREADS, EndpointDaemon, GlobusService, ended, leftovers, rabbitmq, service  # noqa: E402
from tests.integration.globus.campus import write_settings  # noqa: E402
from tests.integration.hpc.rig import call  # noqa: E402
from tests.integration.hpc_worker.test_worker import KEY  # noqa: E402
from tests.integration.relay.peers import CONSUMER, NAME, PRODUCER, RelayProcess  # noqa: E402

BETWEEN_S = 0.6  # the service takes so many submissions a second and no more
NO_CONTROL = "00000000-0000-0000-0000-000000000000"


class OwnWorker(EndpointDaemon):
    """Run the worker of this checkout, whatever was installed beside the daemon before."""

    def write(self) -> None:
        super().write()
        source = self.folder / "source"
        source.mkdir()
        (source / "hpc_worker").symlink_to(ROOT / "hpc_worker")
        with (self.home / "user_environment.yaml").open("a") as out:
            out.write(f"PYTHONPATH: {source}\n")


@dataclass
class Place:
    campus: Campus
    control: ControlPlane
    model: UpstreamControl


async def first_by_task(place: Place) -> float:
    """Return the seconds from the question to its first text, by a task of its own."""
    began = time.perf_counter()
    offer = make_offer(place.campus, request_of(call()), 60)
    channel = JobChannel(place.campus, offer, Timers())
    reading = asyncio.create_task(channel.run())
    async with asyncio.timeout(60):
        await channel.consumer.attached.wait()
        await asyncio.to_thread(place.control.start, WorkerJob(JobMode.TASK, task_arguments(offer)))
        first = 0.0
        while not isinstance(item := await channel.next(30), Fin):
            if isinstance(item, TextDelta) and not first:
                first = time.perf_counter() - began
        await reading
    return first


async def measure(place: Place, rounds: int) -> dict[str, float]:
    direct = OpenAICompatBackend(BackendConfig(tier=Tier.HPC, base_url=place.model.openai_url, api_key="none"))
    place.model.script(scripts.numbered(3, 1000, prefill_s=PREFILL_S), model=call().model.name)
    task, straight = [], []
    try:
        for number in range(rounds + 2):
            through, alone = await first_by_task(place), (await arrivals(direct))[0]
            if number >= 2:  # the first ones start the engine's workers
                task.append(through)
                straight.append(alone)
            await asyncio.sleep(BETWEEN_S)
    finally:
        await direct.close()
    return {"task_added_ms_p50": (statistics.median(task) - statistics.median(straight)) * 1000}


def lead_to(stand_in: GlobusService, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Lead the SDK of this process to the stand-in."""
    for name in ("no_proxy", "GLOBUS_SDK_ENVIRONMENT"):
        patch.delenv(name, raising=False)
    proxy = f"http://127.0.0.1:{stand_in.port}"
    found = {"NO_PROXY": "127.0.0.1", "HTTP_PROXY": proxy, "http_proxy": proxy, "HOME": str(folder)}
    for name, value in {**found, "GLOBUS_SDK_SERVICE_URL_AUTH": f"{proxy}/"}.items():
        patch.setenv(name, value)


@contextmanager
def place(folder: Path) -> Iterator[Place]:
    """Start everything; a short folder name, as sockets lie in it."""
    with ExitStack() as stack:
        model = stack.enter_context(upstream())
        stack.callback(lambda: [os.kill(pid, 9) for pid in leftovers(folder)])
        amqp = stack.enter_context(rabbitmq(folder / "rabbitmq"))
        stand_in = stack.enter_context(service(folder, amqp))
        lead_to(stand_in, folder, stack.enter_context(pytest.MonkeyPatch.context()))
        maker = make_control(NO_CONTROL)
        stack.callback(maker.close)
        function = maker.function_id()
        (folder / "e").mkdir()
        daemon = OwnWorker(folder / "e", stand_in, THREADS, (function,))
        daemon.start()
        stack.callback(lambda: daemon.process and ended(daemon.process))
        relay = RelayProcess().start()
        stack.callback(relay.kill)
        write_settings(folder / "e" / "worker.ini", relay.url, model)
        control = make_control(daemon.endpoint_id, function_id=function)
        stack.callback(control.close)
        campus = Campus(
            id=1,
            name="lab",
            label="Lab",
            control="globus",
            model=call().model.name,
            relays={relay.url: NAME},
            content=Keyring("k1", {"k1": KEY}),
            producers=Keyring(PRODUCER[0], {PRODUCER[0]: PRODUCER[1]}),
            consumer=CONSUMER,
        )
        yield Place(campus, control, model)


def main() -> None:
    """Start a cluster's endpoint, measure, print."""
    options = parser(__doc__).parse_args()
    if missing := missing_parts():
        raise SystemExit(missing)
    with tempfile.TemporaryDirectory(prefix="gb-", ignore_cleanup_errors=True) as name, place(Path(name)) as here:
        figures = loop.run(measure(here, 12 if options.quick else 60))
    report("campus tier, a task for each question", figures, {"task_added_ms_p50": "ms"}, options.json)


if __name__ == "__main__":
    main()
