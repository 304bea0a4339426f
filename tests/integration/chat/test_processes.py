"""Runners as processes of their own, and what is left when a process dies."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes import scripts
from tests.fixtures_site import upstream_env
from tests.fixtures_upstream import UpstreamControl
from tests.site import Page, Site, running_site, wait_until

TEXT = "".join(f"{n} " for n in range(80))


@pytest.fixture(scope="module")
def scaled(upstream_process: UpstreamControl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose web process answers nothing itself; leases are short so that a death is noticed soon."""
    env = {"RUNNER_MODE": "separate", "RUNNER_LEASE_S": "2", "RUNNER_POLL_S": "0.5"}
    with running_site(tmp_path_factory.mktemp("scaled"), **upstream_env(upstream_process), **env) as site:
        site.start_web()
        site.start_runner("runner-1")
        site.start_runner("runner-2")
        yield site


@pytest.fixture
def page(scaled: Site, upstream: UpstreamControl) -> Iterator[Page]:
    http = scaled.sign_in("alice")
    with Page(scaled, http) as page:
        yield page
    http.close()


def runner_of(site: Site, turn_id: str) -> str:
    """Return the process name of the runner that has the turn."""
    name = site.turn(turn_id)["runner"]
    return next(
        process for process in site.processes if process.startswith("runner") and name.encode() in site.log_of(process)
    )


def sweep(site: Site) -> None:
    site.manage("shell", "--no-imports", "-c", "from chat.tasks import sweep_turns; sweep_turns()")


def test_runners_in_other_processes_answer_and_stop(page: Page, scaled: Site, upstream: UpstreamControl) -> None:
    upstream.script(scripts.openai("from afar"), model="local-model", times=1)
    first = page.ask("Hello?")
    assert page.until_done(first)["outcome"] == "complete"
    assert page.text(first) == "from afar"
    upstream.script(scripts.numbered(2000, rate=20), model="local-model")
    turn_id = page.ask("Count for long")
    page.until_text(turn_id, 20)
    asked = time.monotonic()
    page.send(t="turn.stop", turn=turn_id)
    assert page.until_done(turn_id)["outcome"] == "cancelled"
    assert upstream.wait_for("disconnected", timeout_s=2) - asked < 1


def test_a_killed_runner_leaves_the_partial_marked_and_the_page_is_told(
    page: Page, scaled: Site, upstream: UpstreamControl
) -> None:
    upstream.script(scripts.numbered(2000, rate=20), model="local-model")
    turn_id = page.ask("Count for long")
    shown = page.until_text(turn_id, 30)
    name = runner_of(scaled, turn_id)
    scaled.kill(name)
    time.sleep(2.2)
    sweep(scaled)
    done = page.until_done(turn_id)
    assert done["outcome"] == "interrupted"
    stored = scaled.turn(turn_id)["answer"]
    assert page.text(turn_id) == stored
    assert TEXT.startswith(stored[: len(TEXT)])
    assert len(stored) >= len(shown) - 30  # at most one batch interval of text was not stored yet
    scaled.start_runner(name)


def test_a_runner_told_to_end_keeps_what_it_has_and_says_so(
    page: Page, scaled: Site, upstream: UpstreamControl
) -> None:
    upstream.script(scripts.numbered(2000, rate=20), model="local-model")
    turn_id = page.ask("Count for long")
    page.until_text(turn_id, 20)
    name = runner_of(scaled, turn_id)
    scaled.kill(name, signal.SIGTERM)
    done = page.until_done(turn_id)
    assert done["outcome"] == "interrupted"
    assert "restarted" in done["error"]["happened"]
    assert page.text(turn_id) == scaled.turn(turn_id)["answer"]
    scaled.start_runner(name)


def test_a_killed_web_process_loses_no_answer_and_the_page_resumes(
    page: Page, scaled: Site, upstream: UpstreamControl
) -> None:
    upstream.script(scripts.numbered(80, rate=20), model="local-model")
    turn_id = page.ask("Count")
    page.until_text(turn_id, 20)
    scaled.kill("web")
    page.close()
    scaled.start_web()
    page.open()
    page.watch({turn_id: page.seqs(turn_id)[-1]})
    assert page.until_done(turn_id)["outcome"] == "complete"
    assert page.text(turn_id) == scaled.turn(turn_id)["answer"] == TEXT


def test_without_the_key_value_server_answers_still_come(page: Page, scaled: Site, upstream: UpstreamControl) -> None:
    upstream.script(scripts.numbered(40, rate=40), model="local-model")
    scaled.kill("kv")
    try:
        turn_id = page.ask("Count")
        assert page.until_done(turn_id, 40)["outcome"] == "complete"
        assert page.text(turn_id) == scaled.turn(turn_id)["answer"]
    finally:
        scaled.socket.unlink(missing_ok=True)
        scaled.start_kv()


def test_the_embedded_runner_of_a_killed_web_process_is_swept_up(upstream: UpstreamControl, tmp_path: Path) -> None:
    env = upstream_env(upstream) | {"RUNNER_LEASE_S": "2"}
    upstream.script(scripts.numbered(2000, rate=20), model="local-model")
    with running_site(tmp_path, **env) as site:
        site.start_web()
        http = site.sign_in("alice")
        page = Page(site, http).open()
        turn_id = page.ask("Count for long")
        page.until_text(turn_id, 20)
        site.kill("web")
        page.close()
        http.close()
        wait_until(lambda: "expired" if site.turn(turn_id)["lease_until"] else "", "the lease")
        time.sleep(2.2)
        sweep(site)
        stored = site.turn(turn_id)
        assert (stored["state"], stored["outcome"]) == ("ended", "interrupted")
        assert TEXT.startswith(stored["answer"][: len(TEXT)])
