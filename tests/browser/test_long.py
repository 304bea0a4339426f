"""A conversation of 400 turns: opens at its end, fills in above, and neither typing nor streaming touches old turns."""

from __future__ import annotations

import statistics

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.conftest import chat_page, until
from tests.browser.test_client import ask, begin, wait
from tests.fakes.chat_samples import ROUTE, WAVES
from tests.fakes.chat_site import ChatSite, make_turn

pytestmark = pytest.mark.browser
TURNS = 400
KEYS = """async () => {
  const times = [];
  for (let n = 0; n < 30; n++) {
    const start = performance.now();
    ask.focus(); document.execCommand('insertText', false, 'x');
    ask.getBoundingClientRect();
    times.push(performance.now() - start);
    await new Promise((next) => requestAnimationFrame(next));
  }
  return times;
}"""
WATCH_OLD = """() => {
  window.touched = 0;
  const isOld = (m) => m.target !== log && log.contains(m.target) && !log.lastElementChild.contains(m.target);
  new MutationObserver((all) => { touched += all.filter(isOld).length; })
    .observe(log, { subtree: true, childList: true, characterData: true });
}"""


@pytest.fixture
def long_html() -> str:
    return chat_page([make_turn(n, f"Question {n}", WAVES, route=ROUTE) for n in range(1, TURNS + 1)])


def test_long_chat(chat_site: ChatSite, context: BrowserContext, long_html: str) -> None:
    chat_site.pages["/"] = long_html
    chat_site.position = TURNS
    page = context.new_page()
    page.goto(chat_site.url, wait_until="commit")
    expect(page.locator(".answer.last .receipt")).to_be_in_viewport()
    shown_ms = page.evaluate("performance.now()")
    until(page, f"document.querySelectorAll('.ask').length === {TURNS}", timeout_s=60)
    assert page.evaluate(
        "[...document.querySelectorAll('.bubble')].every((b, i) => b.textContent === `Question ${i + 1}`)"
    )
    assert page.evaluate(
        "[...document.querySelectorAll('.prose')].every((p) => p.textContent.includes('peaks over threshold'))"
    )
    assert page.evaluate("document.documentElement.scrollHeight - scrollY - innerHeight") < 100
    key_ms = statistics.median(page.evaluate(KEYS))
    page.fill("#ask", "")
    wait(page, lambda: chat_site.sockets)
    turn_id = ask(page, chat_site, "One more")
    page.wait_for_timeout(1000)  # turns that have just come near are being coloured and typeset
    page.evaluate(WATCH_OLD)
    begin(chat_site, turn_id)
    chat_site.text(turn_id, *[f"word{n} and **more**\n\n" for n in range(40)])
    until(page, "log.lastElementChild.textContent.includes('word39')")  # a failing expect() reads the whole long page
    assert page.evaluate("touched") == 0
    assert page.evaluate("document.documentElement.scrollHeight - scrollY - innerHeight") < 100
    print(f"shown after {shown_ms:.0f} ms, a key takes {key_ms:.1f} ms")
    assert key_ms < 50


def test_older_turns_do_not_move_what_is_read(chat_site: ChatSite, context: BrowserContext, long_html: str) -> None:
    """A search leads to an old turn: it stays in view while its neighbours are drawn and laid out."""
    chat_site.pages["/"] = long_html
    page = context.new_page()
    page.goto(f"{chat_site.url}/#q120", wait_until="commit")
    until(page, "document.activeElement.id === 'q120'", timeout_s=60)
    page.wait_for_timeout(800)
    top = page.evaluate("q120.getBoundingClientRect().top")
    assert 0 <= top < 300
    page.mouse.move(700, 400)
    page.mouse.wheel(0, -1500)
    page.wait_for_timeout(500)
    moved = page.evaluate("q120.getBoundingClientRect().top") - top
    assert 1300 < moved < 1700
