"""One campus for all tests of this folder, on the scripted upstream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from routing.backends.hpc.backend import HpcBackend
from routing.backends.hpc.desk import Desk
from tests.fixtures_upstream import UpstreamControl
from tests.integration.hpc.rig import CampusRig
from tests.site import Site


@pytest.fixture(scope="package")
def rig_process(upstream_process: UpstreamControl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CampusRig]:
    site = Site(tmp_path_factory.mktemp("campus"), {})
    rig = CampusRig(site, upstream_process)
    try:
        rig.prepare("alice")
        yield rig
    finally:
        if "relay" in site.processes:
            site.kill("relay")  # it would drain for ten seconds
        site.stop()


@pytest.fixture
def rig(rig_process: CampusRig, upstream: UpstreamControl) -> CampusRig:
    """Return the running campus; the upstream has no scripts and an empty log."""
    return rig_process


@pytest.fixture
async def make(rig: CampusRig) -> AsyncIterator[Callable[..., HpcBackend]]:
    """Make backends that are closed after the test."""
    made: list[HpcBackend] = []

    def new(*args: Any, **changes: Any) -> HpcBackend:
        made.append(rig.backend(*args, **changes))
        return made[-1]

    yield new
    for backend in made:
        await backend.close()


@pytest.fixture
def backend(make: Callable[..., HpcBackend]) -> HpcBackend:
    return make()


@pytest.fixture
async def desk(rig: CampusRig) -> AsyncIterator[Desk]:
    made = Desk(rig.site.env["REDIS_URL"])
    yield made
    await made.close()
