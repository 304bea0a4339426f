from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.relay.peers import RelayProcess


@pytest.fixture(params=["fast"])
def start_relay(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., RelayProcess]]:
    """Start real relay processes; `start_relay(frames_per_s="1e9")` sets limits."""
    running: list[RelayProcess] = []

    def start(**limits: str) -> RelayProcess:
        relay = RelayProcess(limits, log=tmp_path / f"relay{len(running)}.log", fast=request.param == "fast").start()
        running.append(relay)
        return relay

    yield start
    for relay in running:
        if relay.process.poll() is None:
            relay.kill()
