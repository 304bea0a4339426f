"""The one command that starts everything: real processes, real signals."""

from __future__ import annotations

import os
import re
import signal
import socket
import sqlite3
import stat
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from stream_site.devstack.places import free_port
from tests.fixtures_stack import Stack, launch, start
from tests.site import Page, Site, wait_until

# saves the models' loading time
NO_MODEL = {"LOCAL_BASE_URL": "http://127.0.0.1:9/v1", "LOCAL_MODEL": "none", "DEMO_CAMPUS": "0"}


def test_serves_the_site_with_all_its_processes(stack: Stack) -> None:
    assert httpx.get(f"{stack.url}/healthz").json() == {"status": "up"}
    lines = " ".join(stack.members().values())
    for part in ("guard.py", "valkey-server", "routing.embedded.model_server", "uvicorn", "worker", "beat"):
        assert part in lines


def test_serves_static_files_itself(stack: Stack) -> None:
    page = httpx.get(f"{stack.url}/login").text
    sheet = re.search(r'href="(/static/v[0-9a-f]+/chat/stream\.css)"', page)
    assert sheet, page
    answer = httpx.get(stack.url + sheet[1])
    assert answer.status_code == 200
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"] == "text/css"
    again = httpx.get(answer.url, headers={"If-Modified-Since": answer.headers["last-modified"]})
    assert again.status_code == 304


def test_prints_the_demo_account_and_keeps_its_password_private(stack: Stack) -> None:
    assert f"user demo, password {stack.password}" in stack.text()
    assert len(stack.password) >= 12
    assert stat.S_IMODE((stack.var_dir / "demo_password").stat().st_mode) == 0o600


def test_only_the_owner_reaches_the_key_value_server(stack: Stack) -> None:
    assert stat.S_IMODE(stack.var_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE((stack.var_dir / "kv").stat().st_mode) == 0o700


def test_the_demo_campus_answers_through_the_relay_of_the_web_process(stack: Stack) -> None:
    wait_until(lambda: any("process_child" in line for line in stack.members().values()), "the worker's start", 60)
    site = Site(stack.var_dir, {}, port=stack.port)
    http = site.sign_in("demo", stack.password)
    with Page(site, http) as page:
        turn = page.ask("Say hello.", tier="hpc", campus_only=True)
        assert page.until_done(turn, 90)["outcome"] == "complete"
        states = [event["state"] for event in page.events[turn] if event["kind"] == "state"]
    http.close()
    assert states[0] == "submitted"
    row = site.turn(turn)
    assert row["answer"]
    assert (row["tier"], row["model"]) == ("hpc", "smollm2-135m-instruct")
    for name in ("consumer_keys", "producer_keys"):
        assert stat.S_IMODE((stack.var_dir / "relay" / name).stat().st_mode) == 0o600


def test_says_that_the_folder_is_in_use(stack: Stack) -> None:
    second = launch(stack.var_dir, free_port())
    assert second.process.wait(20) == 1
    assert f"STREAM already runs from {stack.var_dir} (process {stack.process.pid}, {stack.url})" in second.text()
    assert "Nothing was started" in second.text()


def test_says_that_the_port_is_taken(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        refused = launch(tmp_path, port)
        assert refused.process.wait(20) == 1
    assert f"Port {port} on 127.0.0.1 is taken by another program. Nothing was started." in refused.text()
    assert "make run PORT=" in refused.text()
    assert not (tmp_path / "log").exists()


@pytest.fixture
def folder(stack: Stack, tmp_path: Path) -> Path:
    """A VAR_DIR with a migrated database: what a second start finds."""
    source = sqlite3.connect(stack.var_dir / "stream.sqlite3")
    copy = sqlite3.connect(tmp_path / "stream.sqlite3")
    with closing(source), closing(copy):
        source.backup(copy)
    return tmp_path


def test_a_child_that_dies_stops_everything_in_words(folder: Path) -> None:
    stack = start(folder, **NO_MODEL)
    os.kill(stack.child("stream_site.celery beat"), signal.SIGKILL)
    assert stack.process.wait(15) == 1
    assert "beat was ended by the signal SIGKILL. Its last lines" in stack.text()
    assert "Everything else was stopped." in stack.text()
    assert not stack.members()


def test_nothing_outlives_a_killed_supervisor_and_the_folder_is_free_again(folder: Path) -> None:
    killed = start(folder, **NO_MODEL)
    killed.process.kill()
    killed.process.wait(5)
    again = start(folder, **NO_MODEL)  # waits for the lock, which the guard of the first holds to the end
    assert not killed.members()
    began = time.monotonic()
    assert again.stop() == 0
    assert time.monotonic() - began < 10
    assert "Stopped. No process is left." in again.text()
    assert not again.members()
