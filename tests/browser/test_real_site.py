"""A person's first hour on the real stack: real web server, real judge, real (tiny) model, real Chromium.

The model's words differ from run to run; what is checked is that they arrive, stay and are priced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.fixtures_stack import Stack

pytestmark = pytest.mark.browser
LONG = "Write a long story about a lighthouse keeper, a storm and a lost ship, with many details."
ANSWER_MS = 90_000
expect.set_options(timeout=20_000)  # a password check alone takes seconds on a loaded machine


@pytest.fixture(scope="module")
def signed_in(browser: Browser, stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sign in by hand, once, with the printed account; return the kept session."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(stack.url)
    expect(page).to_have_url(re.compile("/login"))
    page.fill("input[name=username]", "demo")
    page.fill("input[name=password]", "not it")
    page.keyboard.press("Enter")
    expect(page.get_by_text("do not match")).to_be_visible()
    expect(page.locator("input[name=username]")).to_have_value("demo")
    page.fill("input[name=password]", stack.password)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{stack.url}/")
    kept = tmp_path_factory.mktemp("session") / "state.json"
    context.storage_state(path=kept)
    context.close()
    return kept


@pytest.fixture
def problems() -> list[str]:
    return []


@pytest.fixture
def person(browser: Browser, signed_in: Path, problems: list[str]) -> Iterator[BrowserContext]:
    """A signed-in person's browser. A script error or a refused resource is a fault of the test's end."""
    context = browser.new_context(storage_state=signed_in, viewport={"width": 1280, "height": 800})
    context.set_default_timeout(20_000)
    yield context
    context.close()
    assert problems == []


@pytest.fixture
def page(person: BrowserContext, stack: Stack, problems: list[str]) -> Page:
    page = person.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(stack.url)
    return page


def ask(page: Page, text: str) -> None:
    page.fill("#ask", text)
    page.keyboard.press("Enter")


def answer(page: Page) -> str:
    return page.locator("article.answer .prose").last.inner_text()


def wait_for_text(page: Page, chars: int) -> str:
    """Wait until the newest answer shows at least `chars` characters."""
    for _ in range(1200):
        if page.locator("article.answer .prose").count() and len(answer(page)) >= chars:
            return answer(page)
        page.wait_for_timeout(50)
    raise AssertionError(f"no {chars} characters came")


def test_a_question_is_judged_routed_streamed_priced_and_explained(page: Page, artefacts: Path) -> None:
    page.screenshot(path=artefacts / "real-empty.png")
    ask(page, "What is the capital of France?")
    expect(page.locator(".receipt").last).to_be_visible(timeout=ANSWER_MS)
    assert answer(page).strip()
    expect(page.locator("article.answer .byline").last).to_contain_text("Local")
    expect(page.locator(".receipt").last).to_contain_text("$0.0000")
    expect(page).to_have_url(re.compile("/c/[0-9a-f-]{36}"))
    expect(page.locator(".convs [aria-current=page]")).to_contain_text("What is the capital of France?")
    page.get_by_role("button", name="Why Local?").last.click()
    popover = page.locator("#why")
    expect(popover).to_be_visible()
    for word in ("LOW", "MEDIUM", "HIGH"):
        expect(popover).to_contain_text(word)
    page.screenshot(path=artefacts / "real-why.png")
    page.keyboard.press("Escape")
    page.screenshot(path=artefacts / "real-answer.png")


def test_reloading_in_mid_answer_keeps_what_was_there_and_goes_on(page: Page) -> None:
    ask(page, LONG)
    before = wait_for_text(page, 40)
    page.reload()
    after = wait_for_text(page, len(before))
    assert after[:40] == before[:40]
    expect(page.locator(".receipt").last).to_be_visible(timeout=ANSWER_MS)
    assert len(answer(page)) >= len(after)


def test_stop_ends_the_answer_and_offers_to_go_on(page: Page, artefacts: Path) -> None:
    ask(page, LONG)
    wait_for_text(page, 40)
    page.get_by_role("button", name="Stop").first.click()
    expect(page.get_by_role("button", name="Continue from here")).to_be_visible(timeout=5000)
    stopped = answer(page)
    page.screenshot(path=artefacts / "real-stopped.png")
    page.get_by_role("button", name="Continue from here").click()
    expect(page.locator(".vers")).to_contain_text("2/2", timeout=ANSWER_MS)
    assert wait_for_text(page, len(stopped))[:30] == stopped[:30]
    page.keyboard.press("Escape")


def test_two_tabs_show_the_same(page: Page, person: BrowserContext) -> None:
    ask(page, "Name a colour.")
    expect(page).to_have_url(re.compile("/c/"))
    other = person.new_page()
    other.goto(page.url)
    expect(page.locator(".receipt").last).to_be_visible(timeout=ANSWER_MS)
    expect(other.locator(".receipt").last).to_be_visible(timeout=ANSWER_MS)
    assert answer(other) == answer(page)


def test_a_conversation_is_found_renamed_and_deleted(page: Page, artefacts: Path) -> None:
    ask(page, "What is a quokka?")
    expect(page.locator(".receipt").last).to_be_visible(timeout=ANSWER_MS)
    page.keyboard.press("Control+k")
    page.keyboard.type("quokk")
    expect(page.locator("dialog[open] mark").first).to_have_text(re.compile("quokk", re.IGNORECASE))
    page.screenshot(path=artefacts / "real-search.png")
    page.keyboard.press("Escape")
    page.locator(".conv", has_text="quokka").get_by_role("button").click()
    page.get_by_role("button", name="Rename").click()
    page.locator("dialog[open] input").fill("Small marsupials")
    page.keyboard.press("Enter")
    expect(page.locator(".convs [aria-current=page]")).to_contain_text("Small marsupials")
    page.locator(".conv", has_text="Small marsupials").get_by_role("button").click()
    page.get_by_role("button", name="Delete").first.click()
    page.locator("dialog[open]").get_by_role("button", name="Delete").click()
    expect(page.locator(".conv", has_text="Small marsupials")).to_have_count(0)


def test_dark_is_kept_and_390_px_has_no_sideways_scroll(page: Page, person: BrowserContext, artefacts: Path) -> None:
    ask(page, "Show a table of three planets and one formula.")
    expect(page.locator(".receipt").last).to_be_visible(timeout=ANSWER_MS)
    page.locator(".who").click()
    for _ in range(2):
        page.get_by_role("button", name="Theme").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.keyboard.press("Escape")
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    page.screenshot(path=artefacts / "real-dark.png")
    page.set_viewport_size({"width": 390, "height": 844})
    page.screenshot(path=artefacts / "real-390-dark.png")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.set_viewport_size({"width": 1280, "height": 800})
    page.locator(".who").click()
    page.get_by_role("button", name="Theme").click()
    expect(page.locator("html")).not_to_have_attribute("data-theme", "dark")


def test_everything_is_reached_by_keyboard(page: Page) -> None:
    page.locator("body").click(position={"x": 700, "y": 120})
    page.keyboard.press("/")
    expect(page.locator("#ask")).to_be_focused()
    page.keyboard.type("Say hello.")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("Twice.")
    assert page.locator("#ask").input_value() == "Say hello.\nTwice."
    page.keyboard.press("Enter")
    expect(page.locator(".receipt").last).to_be_visible(timeout=ANSWER_MS)
    expect(page.locator("#say")).to_contain_text("nswer")
    page.keyboard.press("Control+Shift+o")
    expect(page.locator("#hello")).to_be_visible()
