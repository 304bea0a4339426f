"""Chromium, and the chat page as Django renders it, on a site driven by the test."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import RequestFactory
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.fakes.chat_site import ChatSite

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
ARTEFACTS = Path(__file__).resolve().parents[2] / "artefacts"
LOCAL_MODEL = {
    "name": "small",
    "label": "Small 3B",
    "window": 8192,
    "price_in_micro": 0,
    "price_out_micro": 0,
    "free": True,
    "note": "",
    "typical_first_text_s": 1.0,
}
CLOUD_MODEL = LOCAL_MODEL | {
    "name": "lab/large",
    "label": "Large",
    "window": 200_000,
    "price_in_micro": 3_000_000,
    "price_out_micro": 15_000_000,
    "free": False,
    "typical_first_text_s": 2.0,
}
TIERS = [
    {"tier": "local", "label": "Local", "configured": True, "usable": True, "why": "", "models": [LOCAL_MODEL]},
    {
        "tier": "hpc",
        "label": "Campus HPC",
        "configured": False,
        "usable": False,
        "why": "Not set up here.",
        "models": [],
    },
    {
        "tier": "cloud",
        "label": "Cloud",
        "configured": True,
        "usable": True,
        "why": "",
        "models": [CLOUD_MODEL, CLOUD_MODEL | {"name": "lab/mini", "label": "Mini", "price_in_micro": 250_000}],
    },
]


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:
    """One browser per module: a longer life would keep Playwright's loop running under the asynchronous tests."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(8000)
    yield context
    context.close()


@pytest.fixture
def chat_site() -> Iterator[ChatSite]:
    with ChatSite() as chat_site:
        yield chat_site


def chat_page(turns: list[dict[str, Any]] | None = None, **changes: Any) -> str:
    """Return the chat page as Django renders it: an empty new chat without `turns`."""
    conversation = str(uuid.uuid4()) if turns is not None else None
    for turn in turns or []:
        turn["conversation"] = conversation
    title = changes.pop("title", "Wave heights")
    me = {
        "name": "Mira Okafor",
        "initials": "MO",
        "theme": changes.pop("theme", ""),
        "budget_label": "Cloud $3.41 of $20.00",
    }
    campus_only = changes.pop("campus_only", False)
    shown = {"id": conversation, "title": title, "campus_only": campus_only} if conversation else None
    others = [{"id": str(uuid.uuid4()), "title": f"Older talk {n}", "campus_only": n == 2} for n in range(1, 4)]
    groups = [("Today", [shown, *others[:1]] if shown else others[:1]), ("Yesterday", others[1:])]
    tiers = changes.pop("tiers", TIERS)
    boot = {
        "ws": "/ws/chat",
        "conversation": conversation,
        "new_conversation": str(uuid.uuid4()),
        "title": title if shown else "",
        "campus_only": campus_only,
        "turns": turns or [],
        "more_conversations": changes.pop("more_conversations", ""),
        "tiers": tiers,
        "urls": {
            "chat": "/",
            "conversation": "/c/ID",
            "rename": "/c/ID/rename",
            "delete": "/c/ID/delete",
            "campus_only": "/c/ID/campus-only",
            "turns": "/c/ID/turns",
            "conversations": "/conversations",
            "search": "/search",
            "theme": "/me/theme",
        },
        "csrf": "token",
        "user": me,
    }
    context = {"me": me, "conversation": shown, "groups": groups, "tiers": tiers, "boot": boot}
    return render_to_string("chat/page.html", context, request=RequestFactory().get("/"))


class Watched:
    """A page with what went wrong in it: console errors, policy violations, requests to elsewhere."""

    def __init__(self, page: Page, own: str) -> None:
        self.page = page
        self.errors: list[str] = []
        self.strays: list[str] = []
        page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda e: self.errors.append(str(e)))
        page.on(
            "request",
            lambda r: (
                None if r.url.startswith((own, own.replace("http", "ws"), "data:")) else self.strays.append(r.url)
            ),
        )
        page.on("dialog", lambda d: (self.errors.append(f"dialog: {d.message}"), d.dismiss()))


def until(page: Page, condition: str, timeout_s: float = 8) -> None:
    """Wait until the expression is true. Playwright's own wait evaluates text in the page, which the policy forbids."""
    deadline = time.monotonic() + timeout_s
    while not page.evaluate(condition):
        assert time.monotonic() < deadline, f"never true: {condition}"
        page.wait_for_timeout(30)
