"""The whole way: a page asks, the dispatcher starts a worker through the real Globus software, the answer comes back.

Resident, task and batch; cancel; a lost reply; a worker that is killed; the endpoint stopped; and in a real browser.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.conftest import FLAGS
from tests.fakes import scripts
from tests.fixtures_upstream import UpstreamControl
from tests.globus_processes import CLIENT, SECRET, THREADS, EndpointDaemon, GlobusService
from tests.integration.globus.campus import GLOBUS
from tests.integration.hpc.rig import MODEL, CampusRig
from tests.integration.hpc.test_backend import WORDS, numbered, slowly
from tests.site import PASSWORD, Page, Site, wait_until

pytestmark = GLOBUS


@pytest.fixture(scope="module")
def daemon(globus_folder: Path, globus_service_process: GlobusService, function_id: str) -> Iterator[EndpointDaemon]:
    folder = globus_folder / "site"
    folder.mkdir()
    daemon = EndpointDaemon(folder, globus_service_process, THREADS, (function_id,))
    daemon.start()
    yield daemon
    daemon.kill()


@pytest.fixture(scope="module")
def rig_process(
    daemon: EndpointDaemon, upstream_process: UpstreamControl, globus_folder: Path, function_id: str
) -> Iterator[CampusRig]:
    env = {
        "GLOBUS_COMPUTE_CLIENT_ID": CLIENT,
        "GLOBUS_COMPUTE_CLIENT_SECRET": SECRET,
        "GLOBUS_COMPUTE_FUNCTION_ID": function_id,
        "GLOBUS_COMPUTE_AMQP_PORT": "0",
        "GLOBUS_SDK_ENVIRONMENT": "local",
        "BETWEEN_BYTES_TIMEOUT_S": "6",
    }
    site = Site(globus_folder / "var", env)
    rig = CampusRig(site, upstream_process, control=("--globus-endpoint", daemon.endpoint_id))
    try:
        rig.prepare("alice")
        write_worker_ini(daemon.folder / "worker.ini", rig)
        site.start_web()
        yield rig
    finally:
        if "relay" in site.processes:
            site.kill("relay")
        site.stop()


def write_worker_ini(path: Path, rig: CampusRig) -> None:
    """Write the worker's settings as an administrator does, from what `hpc_keys` printed."""
    path.touch(mode=0o600)
    lines = {
        "stream_e2e_keys": rig.keys["STREAM_E2E_KEYS"],
        "stream_producer_keys": rig.keys["STREAM_PRODUCER_KEYS"],
        "stream_relay_urls_allowed": rig.relays,
        "stream_model_url": rig.upstream.openai_url,
        "stream_model_name": MODEL,
        "stream_away_s": "6",
        "stream_drain_s": "5",
    }
    path.write_text("[worker]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items()))


@pytest.fixture(scope="module")
def alice(rig_process: CampusRig) -> Iterator[httpx.Client]:
    http = rig_process.site.sign_in("alice")
    yield http
    http.close()


@pytest.fixture
def rig(rig_process: CampusRig, upstream: UpstreamControl, globus_service: GlobusService) -> CampusRig:
    return rig_process


def said(rig: CampusRig, words: str) -> int:
    return rig.site.log_of("campus").count(words.encode())


def switch(rig: CampusRig, **fields: int) -> None:
    """Change the endpoint and wait until its dispatcher knows."""
    (row,) = rig.site.rows("SELECT * FROM routing_hpcendpoint WHERE name = 'lab'")
    if all(row[name] == value for name, value in fields.items()):
        return
    before = said(rig, "lab: this dispatcher has the lease")
    rig.change("lab", **fields)
    wait_until(lambda: said(rig, "lab: this dispatcher has the lease") > before, "the change", 20)
    time.sleep(5.5)  # the web process looks an endpoint up at most every five seconds


def answered(rig: CampusRig, http: httpx.Client, question: str = "Who answers?") -> tuple[str, dict[str, object]]:
    """Ask the campus on a page; return the turn's id and its row."""
    with Page(rig.site, http) as page:
        turn = page.ask(question, tier="hpc")
        page.until_done(turn, 90)
        return turn, rig.site.turn(turn)


def test_a_resident_worker_answers_page_after_page(
    rig: CampusRig, alice: httpx.Client, globus_service: GlobusService
) -> None:
    for words in (WORDS, ("again",)):
        rig.upstream.script(scripts.openai(*words))
        turn, row = answered(rig, alice)
        assert (row["answer"], row["outcome"], row["tier"]) == ("".join(words), "complete", "hpc")
    assert globus_service.submits() == [200], "one worker, started once"
    trace = rig.site.manage("explain_turn", turn)
    assert re.search(r"endpoint lab, mode resident, job [0-9a-f-]{36}, relay relay.test, relay frames \d+", trace)


def test_leaving_cancels_at_the_worker(rig: CampusRig, alice: httpx.Client) -> None:
    rig.upstream.script(slowly(2000))
    with Page(rig.site, alice) as page:
        turn = page.ask("Count.", tier="hpc")
        page.until_text(turn, 10)
        stopped = time.monotonic()
        page.send(t="turn.stop", turn=turn)
        assert page.until_done(turn)["outcome"] == "cancelled"
    assert rig.upstream.wait_for("disconnected") - stopped < 1.0


def test_a_browser_shows_the_tokens(rig: CampusRig, alice: httpx.Client, chromium_path: str) -> None:
    rig.upstream.script(slowly(60, every_s=0.05))
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium_path, args=FLAGS) as browser,
    ):
        page = browser.new_page()
        page.set_default_timeout(30_000)
        page.goto(f"{rig.site.url}/login")
        page.fill("input[name=username]", "alice")
        page.fill("input[name=password]", PASSWORD)
        page.keyboard.press("Enter")
        page.wait_for_url(f"{rig.site.url}/")  # loaded: its scripts run
        page.fill("#ask", "Count to sixty.")
        page.keyboard.press("Enter")
        answer = page.locator("article.answer .prose").last
        expect(answer).to_contain_text("3 4 5", timeout=60_000)
        seen = answer.inner_text()
        assert "59" not in seen, "tokens are shown as they come"
        expect(page.locator(".receipt").last).to_be_visible(timeout=30_000)
        assert answer.inner_text().split() == numbered(60).split()
        expect(page.locator("article.answer .byline").last).to_contain_text("Campus")


def test_an_idle_worker_ends_and_its_place_is_free(rig: CampusRig, alice: httpx.Client) -> None:
    """The task at Globus, which nobody can cancel, comes to its end: no node is kept."""
    switch(rig, idle_s=1)
    wait_until(lambda: said(rig, "lab: a worker was idle for 1 s and is told to end"), "the telling", 30)
    wait_until(lambda: not worker_tasks(rig), "the task's end", 30)
    rig.upstream.script(scripts.openai("fresh"))
    assert answered(rig, alice)[1]["answer"] == "fresh"
    wait_until(lambda: not worker_tasks(rig), "the end of the second", 30)
    switch(rig, idle_s=600)


def worker_tasks(rig: CampusRig) -> int:
    """Return how many mailboxes are open."""
    return int(rig.site.rows("SELECT COUNT(*) AS n FROM routing_hpcmailbox WHERE closed IS NULL")[0]["n"])


def test_without_resident_workers_each_question_is_a_task_even_when_a_reply_is_lost(
    rig: CampusRig, alice: httpx.Client, globus_service: GlobusService
) -> None:
    switch(rig, max_workers=0)
    rig.upstream.script(scripts.openai(*WORDS), times=2)
    turn, row = answered(rig, alice)
    assert row["answer"] == "".join(WORDS)
    assert "mode task" in rig.site.manage("explain_turn", turn)
    globus_service.reset()
    rig.upstream.reset()
    globus_service.fault("/submit", drop="after")
    rig.upstream.script(scripts.openai("once"))
    _, row = answered(rig, alice)
    assert (row["answer"], row["outcome"]) == ("once", "complete")
    wait_until(lambda: globus_service.submits() == [200, 200], "the second execution", 10)
    time.sleep(3)
    assert len(rig.upstream.log()) == 1, "and the model was asked once"


def test_a_batch_comes_back_through_globus_when_there_is_no_relay(rig: CampusRig, alice: httpx.Client) -> None:
    switch(rig, batch_only=1)
    rig.stop_relay()
    try:
        rig.upstream.script(scripts.openai(*WORDS))
        turn, row = answered(rig, alice)
    finally:
        rig.start_relay()
    assert (row["answer"], row["outcome"]) == ("".join(WORDS), "complete")
    trace = rig.site.manage("explain_turn", turn)
    assert "mode batch" in trace
    assert "relay frames 0, relay bytes 0, merged True" in trace


def test_a_task_cut_off_from_the_relay_returns_the_rest(rig: CampusRig, alice: httpx.Client) -> None:
    switch(rig, batch_only=0, max_workers=0)
    rig.upstream.script(slowly(150))
    with Page(rig.site, alice) as page:
        turn = page.ask("Count.", tier="hpc")
        page.until_text(turn, 40)
        rig.stop_relay()
        try:
            page.until_done(turn, 90)
        finally:
            rig.start_relay()
    row = rig.site.turn(turn)
    assert (row["answer"], row["outcome"]) == (numbered(150), "complete")


def test_a_killed_worker_keeps_what_came_and_the_next_question_is_answered(
    rig: CampusRig, alice: httpx.Client, daemon: EndpointDaemon
) -> None:
    """Globus says nothing of a user endpoint that was killed: the task hangs there. The silence ends it here."""
    switch(rig, max_workers=1)
    rig.upstream.script(slowly(4000))
    with Page(rig.site, alice) as page:
        turn = page.ask("Count.", tier="hpc")
        page.until_text(turn, 40)
        (pid,) = user_endpoints(daemon)
        os.kill(pid, signal.SIGKILL)
        done = page.until_done(turn, 60)
    row = rig.site.turn(turn)
    assert done["outcome"] == "interrupted"
    assert str(row["answer"]) == numbered(4000)[: len(str(row["answer"]))] != ""
    wait_until(lambda: said(rig, "a worker is silent and given up"), "the giving up", 90)
    rig.upstream.reset()
    rig.upstream.script(scripts.openai("from another"))
    assert answered(rig, alice)[1]["answer"] == "from another"


def user_endpoints(daemon: EndpointDaemon) -> list[int]:
    """Return the processes that run jobs here, in threads: the daemon's own children."""
    assert daemon.process is not None
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            if int(parent) == daemon.process.pid and state != "Z":
                found.append(int(entry.name))
    return found


def test_a_stopped_endpoint_is_said_at_once_with_the_next_step(
    rig: CampusRig, alice: httpx.Client, daemon: EndpointDaemon
) -> None:
    switch(rig, max_workers=0)
    daemon.stop()
    began = time.monotonic()
    with Page(rig.site, alice) as page:
        turn = page.ask("Is anybody there?", tier="hpc")
        done = page.until_done(turn, 60)
    assert time.monotonic() - began < 10
    assert done["outcome"] == "failed"
    assert "The HPC endpoint is offline." in done["error"]["happened"]
    assert "globus-compute-endpoint start" in done["error"]["todo"]
