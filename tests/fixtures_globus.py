"""Fixtures: the whole chain of Globus Compute on this machine, once per run of the tests marked `globus`.

Those run in a pytest of their own (`python -m tests` does it): the SDK is led to the stand-in by variables of the
environment, and its import leaves a thread.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.chromium import in_ci
from tests.globus_parts import missing_parts

if TYPE_CHECKING:
    from routing.backends.hpc.globus import GlobusControl
    from tests.globus_processes import EndpointDaemon, GlobusService


@pytest.fixture(scope="session")
def globus_folder() -> Iterator[Path]:
    """Return a folder for the run, with a short path: sockets lie in it. Skip or fail where parts are missing."""
    missing = missing_parts()
    if missing and in_ci():
        pytest.fail(missing)
    if missing:
        pytest.skip(missing)
    from tests.globus_processes import leftovers

    with tempfile.TemporaryDirectory(prefix="gc-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        yield folder
        for number in (signal.SIGTERM, signal.SIGKILL):
            for pid in leftovers(folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            time.sleep(0.5 if leftovers(folder) else 0)


@pytest.fixture(scope="session")
def globus_service_process(globus_folder: Path) -> Iterator[GlobusService]:
    """Start RabbitMQ and the stand-in, and lead the SDK of this process there."""
    from tests.globus_processes import rabbitmq, service

    with (
        rabbitmq(globus_folder / "rabbitmq") as amqp,
        service(globus_folder, amqp) as control,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name in ("no_proxy", "GLOBUS_SDK_ENVIRONMENT"):
            patch.delenv(name, raising=False)
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("HTTP_PROXY", f"http://127.0.0.1:{control.port}")
        patch.setenv("http_proxy", f"http://127.0.0.1:{control.port}")
        patch.setenv("GLOBUS_SDK_SERVICE_URL_AUTH", f"http://127.0.0.1:{control.port}/")
        patch.setenv("HOME", str(globus_folder))
        yield control


@pytest.fixture
def globus_service(globus_service_process: GlobusService) -> Iterator[GlobusService]:
    """Return the stand-in without faults and with an empty list of requests."""
    globus_service_process.reset()
    yield globus_service_process
    globus_service_process.reset()


@pytest.fixture(scope="session")
def function_id(globus_service_process: GlobusService) -> str:
    """Register the worker's function, as `manage.py hpc_check` does before an endpoint is configured."""
    control = make_control("00000000-0000-0000-0000-000000000000")
    return control.function_id()


@pytest.fixture(scope="session")
def endpoint(globus_folder: Path, globus_service_process: GlobusService, function_id: str) -> Iterator[EndpointDaemon]:
    """Start the real daemon with a small engine, threads, that runs our one function."""
    from tests.globus_processes import THREADS, EndpointDaemon

    folder = globus_folder / "threads"
    folder.mkdir()
    daemon = EndpointDaemon(folder, globus_service_process, THREADS, (function_id,))
    daemon.start()
    yield daemon
    daemon.kill()


@pytest.fixture
def globus_control(
    endpoint: EndpointDaemon, globus_service: GlobusService, function_id: str
) -> Iterator[Callable[..., GlobusControl]]:
    """Make control planes for the endpoint; they are closed afterwards."""
    made: list[GlobusControl] = []

    def make(**options: Any) -> GlobusControl:
        control = make_control(endpoint.endpoint_id, function_id=function_id, **options)
        made.append(control)
        return control

    yield make
    for control in made:
        control.close()


def make_control(endpoint_id: str, *, identity: Any = None, **options: Any) -> GlobusControl:
    """Return a control plane whose service is the stand-in."""
    from routing.backends.hpc.globus import GlobusControl
    from routing.backends.hpc.globus_executor import Destination
    from routing.backends.hpc.globus_identity import ServiceIdentity
    from tests.globus_processes import CLIENT, SECRET

    who = identity or ServiceIdentity(CLIENT, SECRET, environment="local")
    return GlobusControl(who, Destination(endpoint_id), **options)
