"""`manage.py explain_turn` on turns that really ran: what it says is in order, and agrees with what happened."""

from __future__ import annotations

import re

import pytest

from tests.fakes import scripts
from tests.fixtures_upstream import UpstreamControl
from tests.site import Page, Site

SECRET_WORDS = "purple walrus"


def explained(site: Site, turn: str) -> str:
    """Return what the command prints; its times never go back."""
    text = site.manage("explain_turn", turn)
    times = [float(ms.replace(",", "")) for ms in re.findall(r"^ *([\d,]+) ms  ", text, re.MULTILINE)]
    assert times == sorted(times)
    assert len(times) > 3
    return text


def in_order(text: str, *parts: str) -> None:
    at = 0
    for part in parts:
        found = text.find(part, at)
        assert found >= 0, f"{part!r} is not after the one before it in:\n{text}"
        at = found + len(part)


def test_a_judged_question_shows_judge_policy_attempt_text_and_ledger(
    alice: Page, site: Site, upstream: UpstreamControl
) -> None:
    upstream.script(scripts.openai("Hello"), model="local-model")
    turn = alice.ask(f"What is the capital of France, {SECRET_WORDS}?", tier="auto")
    alice.until_done(turn)
    text = explained(site, turn)
    in_order(
        text,
        "for tier auto",
        "taken by a runner",
        "judged ",
        " by classifier in ",
        "routed to local local-model",
        "candidate local",
        "candidate cloud",
        "attempt 1: local local-model",
        "first text",
        "ended: outcome complete",
        "settle $0.0000",
        "complete: local local-model, 1 attempts, $0.0000",
    )
    assert SECRET_WORDS not in text
    assert "Hello" not in text


def test_a_paid_answer_shows_what_was_set_aside_and_what_it_cost(
    alice: Page, site: Site, upstream: UpstreamControl
) -> None:
    upstream.script(scripts.openrouter("Paid ", "words", cost="0.00214"))
    turn = alice.ask("Prove it", tier="cloud")
    alice.until_done(turn)
    parts = (
        "not judged",
        "attempt 1: cloud",
        "reserve $",
        "first text",
        "ended: outcome complete",
        "settle $0.0021 (provider)",
    )
    in_order(explained(site, turn), *parts)


def test_a_fallback_shows_both_attempts_and_why(alice: Page, site: Site, upstream: UpstreamControl) -> None:
    upstream.script([{"status": 503, "headers": {}, "body": "full"}], model="local-model")
    upstream.script(scripts.openai("from the cloud"), times=1)
    turn = alice.ask("Hello?", tier="auto")
    alice.until_done(turn)
    parts = (
        "attempt 1: local",
        "fell back from local to cloud: ",
        "attempt 2: cloud",
        "reserve $",
        "first text",
        "2 attempts",
    )
    in_order(explained(site, turn), *parts)


def test_a_turn_that_is_not_there_is_said(site: Site) -> None:
    with pytest.raises(AssertionError, match="There is no turn nonsense"):
        site.manage("explain_turn", "nonsense")
