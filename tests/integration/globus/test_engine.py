"""The kit of deploy/endpoint as it is: its template, GlobusComputeEngine, worker processes; and its daemon stopped."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from routing.backends.hpc.control import JobMode, JobState
from routing.backends.hpc.globus import GlobusControl
from tests.fixtures_globus import make_control
from tests.fixtures_upstream import UpstreamControl
from tests.globus_parts import ENDPOINT_VENV
from tests.globus_processes import KIT, EndpointDaemon, GlobusService
from tests.integration.globus.campus import GLOBUS, Campus, job_for, mailbox_job, write_settings
from tests.integration.globus.test_control import ANSWER, attached, refused, result
from tests.integration.hpc_worker.test_worker import channel, make_offer

pytestmark = GLOBUS


@pytest.fixture
def kit(
    globus_folder: Path, globus_service: GlobusService, function_id: str, campus: Campus, upstream: UpstreamControl
) -> Iterator[EndpointDaemon]:
    folder = globus_folder / "kit"
    folder.mkdir()
    write_settings(folder / "worker.ini", campus.relay.url, upstream)
    daemon = EndpointDaemon(folder, globus_service, allowed=(function_id,))
    daemon.start()
    yield daemon
    daemon.stop()


async def test_the_kit_runs_a_worker_and_a_stopped_endpoint_says_so(
    kit: EndpointDaemon, campus: Campus, function_id: str
) -> None:
    with closing(make_control(kit.endpoint_id, function_id=function_id)) as control:
        await check(kit, campus, control)


async def check(kit: EndpointDaemon, campus: Campus, control: GlobusControl) -> None:
    for question in ("cold", "warm"):
        consumer, reading = await attached(campus)
        job = job_for(make_offer(consumer, question), JobMode.TASK)
        handle = await asyncio.to_thread(control.start, job)
        await reading
        assert consumer.text == f"{ANSWER}{question}"
        assert await result(handle) == {"outcome": "delivered", "transcript": None}
        assert handle.state() is JobState.ENDED
    await asyncio.to_thread(kit.stop)
    health = await asyncio.to_thread(control.health)
    assert not health.online
    assert "offline" in health.why
    assert "globus-compute-endpoint start" in health.todo
    with refused("The HPC endpoint is offline"):
        control.start(mailbox_job(channel(campus.relay.url, mailbox=True)))


LOAD = """
import sys
import jinja2
from globus_compute_endpoint.endpoint.config.utils import load_config_yaml
text = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(sys.stdin.read()).render()
engine = load_config_yaml(text).engine
print(type(engine.executor.provider).__name__)
print(engine.executor.provider.worker_init)
"""


def test_the_slurm_form_of_the_template_is_what_the_daemon_accepts(globus_folder: Path) -> None:
    """A template that does not load fails in silence: the service hears nothing and the task waits for ever."""
    text = (KIT / "user_config_template.yaml.j2").read_text()
    done = subprocess.run(
        [ENDPOINT_VENV / "bin" / "python", "-c", LOAD],
        input=text,
        capture_output=True,
        text=True,
        cwd=globus_folder,
        check=True,
    )
    provider, *init = done.stdout.splitlines()
    assert provider == "SlurmProvider"
    assert 'export PATH="/opt/stream/venv/bin:$PATH"' in init
    assert "/opt/stream/vllm.slurm &" in init
