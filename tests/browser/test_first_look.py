"""What a person sees after the two commands: sign in with the printed account, and the chat is there."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.fixtures_stack import Stack

pytestmark = pytest.mark.browser


def test_the_printed_account_signs_in(stack: Stack, chromium_path: str, artefacts: Path) -> None:
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
        page.goto(stack.url)
        assert page.url.startswith(f"{stack.url}/login")
        page.fill("input[name=username]", "demo")
        page.fill("input[name=password]", stack.password)
        page.keyboard.press("Enter")
        page.wait_for_url(f"{stack.url}/")
        page.locator("textarea").wait_for()
        page.screenshot(path=artefacts / "first-look.png")
        browser.close()
    assert problems == []
