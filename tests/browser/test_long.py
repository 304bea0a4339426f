"""A conversation of 400 turns: opens at its end, fills in above, and neither typing nor streaming touches old turns."""

from __future__ import annotations

import json
import statistics
import uuid

import pytest
from playwright.sync_api import BrowserContext, expect

from tests.browser.conftest import chat_page, until
from tests.browser.test_client import ask, begin, wait
from tests.fakes.chat_samples import BROKEN, ROUTE, WAVES
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


def talk_of(html: str) -> str:
    return json.loads(html.split('id="boot" type="application/json">')[1].split("</script>")[0])["conversation"]


def test_older_turns_come_from_the_server(chat_site: ChatSite, context: BrowserContext) -> None:
    """The page has the last ten; the next come by themselves, those further back when the reader goes there."""
    turns = [make_turn(n, f"Question {n}", f"Answer {n}") for n in range(1, 201)]
    html = chat_page(turns[-10:])
    chat_site.pages["/"], older = html, f"/c/{talk_of(html)}/turns"
    chat_site.replies[older] = (503, {"error": BROKEN | {"happened": "The database was away."}})
    page = context.new_page()
    page.goto(chat_site.url, wait_until="commit")
    expect(page.locator("#notices")).to_contain_text("The database was away.")
    assert page.evaluate("document.querySelectorAll('.ask').length") == 10
    chat_site.replies[older] = (200, {"turns": turns[90:190]})
    page.get_by_role("button", name="Show earlier questions").click()
    until(page, "document.querySelectorAll('.ask').length === 110")
    expect(page.locator("#earlier")).to_be_visible()
    chat_site.replies[older] = (200, {"turns": turns[:90]})
    page.evaluate("location.hash = '#q5'")
    until(page, "document.activeElement.id === 'q5'")
    until(page, "document.querySelectorAll('.ask').length === 200")
    shown = page.evaluate("[...document.querySelectorAll('.bubble')].map((b) => b.textContent)")
    assert shown == [f"Question {n}" for n in range(1, 201)]
    expect(page.locator("#earlier")).to_be_hidden()


def test_older_conversations_come_when_the_list_is_scrolled(chat_site: ChatSite, context: BrowserContext) -> None:
    row = {"campus_only": False}
    more = [{"id": str(uuid.uuid4()), "title": f"Old talk {n}", **row} for n in range(30)]
    chat_site.replies["/conversations"] = (
        200,
        {"groups": [["Yesterday", more[:20]], ["Older", more[20:]]], "more": ""},
    )
    chat_site.pages["/"] = chat_page(more_conversations="2026-11-01T00:00:00+00:00,x")
    page = context.new_page()
    page.goto(chat_site.url)
    until(page, "document.querySelectorAll('.conv').length === 33")
    assert page.evaluate("[...document.querySelectorAll('#conversations h2')].map((h) => h.textContent)") == [
        "Today",
        "Yesterday",
        "Older",
    ]
    expect(page.locator(f'[data-id="{more[0]["id"]}"] a')).to_have_attribute("href", f"/c/{more[0]['id']}")
    expect(page.locator("#more-conversations")).to_be_hidden()
    page.locator(f'[data-id="{more[25]["id"]}"]').hover()
    page.get_by_role("button", name="Options for Old talk 25").click()
    page.get_by_role("button", name="Rename…").click()
    expect(page.locator("#rename input")).to_have_value("Old talk 25")
