"""The campus tier through the whole site: a page asks, a worker answers."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from tests.fakes import scripts
from tests.integration.hpc.rig import CampusRig
from tests.integration.hpc.test_backend import numbered, slowly
from tests.site import Page


@pytest.fixture(scope="module")
def alice_http(rig_process: CampusRig) -> Iterator[httpx.Client]:
    rig_process.site.start_web()
    http = rig_process.site.sign_in("alice")
    yield http
    http.close()


def test_a_page_asks_the_campus_and_gets_the_answer(rig: CampusRig, alice_http: httpx.Client) -> None:
    rig.upstream.script(scripts.openai("from ", "the campus"))
    with Page(rig.site, alice_http) as page:
        turn = page.ask("Who answers?", tier="hpc", campus_only=True)
        done = page.until_done(turn)
        assert done["outcome"] == "complete"
        states = [event["state"] for event in page.events[turn] if event["kind"] == "state"]
    assert states[:2] == ["submitted", "queued"]
    row = rig.site.turn(turn)
    assert (row["answer"], row["tier"], row["cost_micro"]) == ("from the campus", "hpc", 0)
    assert (row["tokens_in"], row["tokens_out"]) == (7, 3)
    trace = rig.site.manage("explain_turn", turn)
    parts = (
        "routed to hpc",
        "attempt 1: hpc",
        "  submitted",
        "  queued",
        "  first text",
        "  by campus: endpoint lab, mode resident",
    )
    places = [trace.index(part) for part in parts]
    assert places == sorted(places)
    assert re.search(r"job process \d+, relay relay.test, relay frames [1-9]\d*, relay bytes [1-9]\d{2,}", trace)


def test_a_relay_that_restarts_is_not_seen_on_the_page(rig: CampusRig, alice_http: httpx.Client) -> None:
    rig.upstream.script(slowly(120))
    with Page(rig.site, alice_http) as page:
        turn = page.ask("Count.", tier="hpc")
        while not any(event["kind"] == "delta" for event in page.events.get(turn, ())):
            page.receive()
        rig.restart_relay()
        assert page.until_done(turn)["outcome"] == "complete"
    assert rig.site.turn(turn)["answer"] == numbered(120)


def test_the_key_in_use_remembers_that_it_was_used(rig: CampusRig, alice_http: httpx.Client) -> None:
    (row,) = rig.site.rows("SELECT last_used FROM routing_hpckey WHERE purpose = 'e2e'")
    assert row["last_used"]
    listed = rig.site.manage("hpc_keys", "list")
    assert "last used" in listed
