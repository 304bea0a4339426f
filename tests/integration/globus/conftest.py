from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures_upstream import UpstreamControl
from tests.globus_processes import EndpointDaemon
from tests.integration.globus.campus import Campus, write_settings
from tests.integration.relay.peers import RelayProcess


@pytest.fixture(scope="session")
def campus(endpoint: EndpointDaemon, upstream_process: UpstreamControl, globus_folder: Path) -> Iterator[Campus]:
    """Start a relay and tell the endpoint's workers of it and of the model server."""
    relay = RelayProcess(log=globus_folder / "relay.log").start()
    settings = endpoint.folder / "worker.ini"
    write_settings(settings, relay.url, upstream_process)
    yield Campus(relay, settings)
    relay.kill()
