"""The chat page against a scripted server: sent once, resumed without gap or repeat, nothing typed is lost."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import ARTEFACTS, Watched, chat_page, until
from tests.fakes.chat_samples import BROKEN, ROUTE, sample_turns
from tests.fakes.chat_site import ChatSite, make_turn

pytestmark = pytest.mark.browser


@pytest.fixture
def chat(chat_site: ChatSite, context: BrowserContext) -> Iterator[Page]:
    """A new chat, linked. Ends with a check that nothing went wrong in the page."""
    chat_site.pages["/"] = chat_page()
    page = context.new_page()
    watched = Watched(page, chat_site.url)
    page.goto(chat_site.url)
    wait(page, lambda: len(chat_site.sockets) == 1)
    yield page
    assert watched.strays == []
    assert [e for e in watched.errors if "WebSocket" not in e] == []


def wait(page: Page, condition: object, timeout_ms: int = 8000) -> None:
    for _ in range(timeout_ms // 20):
        if condition():  # type: ignore[operator]
            return
        page.wait_for_timeout(20)
    raise AssertionError("the condition never came true")


def ask(page: Page, chat_site: ChatSite, text: str) -> str:
    """Ask and return the id of the accepted turn."""
    before = set(chat_site.running)
    page.fill("#ask", text)
    page.press("#ask", "Enter")
    wait(page, lambda: len(chat_site.running) > len(before))
    turn_id = (set(chat_site.running) - before).pop()
    expect(page.locator("#send.is-stop")).to_have_attribute("aria-label", "Stop")
    return turn_id


def begin(chat_site: ChatSite, turn_id: str) -> None:
    chat_site.emit(turn_id, "route", route=ROUTE)
    chat_site.emit(turn_id, "attempt", attempt=1, tier="local", model="small", model_label="Small 3B")


def test_first_question_gives_the_chat_an_address(chat: Page, chat_site: ChatSite) -> None:
    turn_id = ask(chat, chat_site, "What is a buoy?")
    conversation = chat_site.running[turn_id].turn["conversation"]
    assert chat.url.endswith(f"/c/{conversation}")
    entry = chat.locator(f'[data-id="{conversation}"]')
    expect(entry.locator("a")).to_have_attribute("aria-current", "page")
    expect(entry).to_contain_text("What is a buoy?")
    changed = {"conversation": conversation, "title": "Buoys", "updated_at": "", "campus_only": True, "deleted": False}
    chat_site.send_all({"t": "conversation.changed", **changed})
    expect(entry).to_contain_text("Buoys")
    expect(chat.locator("#title")).to_have_text("Buoys")
    expect(chat.locator("#lock")).to_have_class("chip is-toggle is-on")


def test_a_first_question_sent_again_after_a_reload_is_the_same_one(chat: Page, chat_site: ChatSite) -> None:
    chat_site.frozen = True
    chat.fill("#ask", "What is a buoy?")
    chat.press("#ask", "Enter")
    wait(chat, lambda: chat_site.sent("turn.start"))
    chat_site.frozen = False
    chat_site.pages["/"] = chat_page()  # the server names another new chat
    chat.reload()
    wait(chat, lambda: chat_site.connects == 2)
    expect(chat.locator("#ask")).to_have_value("What is a buoy?")
    chat.press("#ask", "Enter")
    wait(chat, lambda: len(chat_site.sent("turn.start")) == 2)
    first, second = chat_site.sent("turn.start")
    assert (first["id"], first["conversation"]) == (second["id"], second["conversation"])
    until(chat, f"location.pathname === '/c/{first['conversation']}'")
    assert len(chat_site.running) == 1
    assert chat.evaluate("Object.keys(localStorage).filter((k) => k.startsWith('stream.pending'))") == []


def test_an_answer_from_route_to_receipt(chat: Page, chat_site: ChatSite) -> None:
    turn_id = ask(chat, chat_site, "What is a buoy?")
    expect(chat.locator(".wait")).to_contain_text("Choosing who answers")
    expect(chat.locator(".answer")).to_have_attribute("aria-busy", "true")
    begin(chat_site, turn_id)
    expect(chat.locator(".wait")).to_contain_text("Local is reading the question")
    chat_site.text(turn_id, "A buoy ", "**floats**.")
    expect(chat.locator(".prose strong")).to_have_text("floats")
    expect(chat.locator("#say")).to_have_text("Local is answering.")
    chat_site.end(
        turn_id, tier="local", model_label="Small 3B", route=ROUTE, tokens_in=1284, tokens_out=12, first_text_ms=300
    )
    expect(chat.locator(".receipt")).to_contain_text("1,284 tokens in, 12 out")
    expect(chat.locator(".receipt")).to_contain_text("0.3 s to first text, 1.5 s in all")
    expect(chat.locator(".receipt .cost")).to_have_text("$0.0000 · free")
    expect(chat.locator("#say")).to_have_text("Answer complete, 3 words.")
    expect(chat.locator(".caret")).to_have_count(0)
    chat.get_by_role("button", name="Why Local?").click()
    expect(chat.locator("#why")).to_contain_text("Judged MEDIUM, 0.81.")
    chat.get_by_role("button", name="Redo on Cloud").click()
    wait(chat, lambda: chat_site.sent("turn.again"))
    assert chat_site.sent("turn.again")[0]["tier"] == "cloud"
    assert chat_site.sent("turn.again")[0]["turn"] == turn_id


def test_double_click_sends_once(chat: Page, chat_site: ChatSite) -> None:
    chat.fill("#ask", "Once, please")
    chat.dblclick("#send")
    wait(chat, lambda: chat_site.running)
    chat.wait_for_timeout(200)
    assert len(chat_site.sent("turn.start")) == 1
    assert chat.locator(".bubble").count() == 1


def test_enter_and_click_together_send_once(chat: Page, chat_site: ChatSite) -> None:
    chat.fill("#ask", "Once, please")
    chat.evaluate("""() => {
      ask.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }));
      send.click(); send.form.requestSubmit();
    }""")
    wait(chat, lambda: chat_site.running)
    chat.wait_for_timeout(200)
    assert len(chat_site.sent("turn.start")) == 1
    assert chat.locator(".bubble").count() == 1


def test_a_lost_question_is_sent_again_under_the_same_id(chat: Page, chat_site: ChatSite) -> None:
    chat_site.frozen = True  # what is sent now is received, but the answer never arrives
    chat.fill("#ask", "Are you there?")
    chat.press("#ask", "Enter")
    wait(chat, lambda: chat_site.sent("turn.start"))
    expect(chat.locator("#send")).to_be_disabled()
    chat_site.frozen = False
    chat_site.kill()
    wait(chat, lambda: len(chat_site.sent("turn.start")) == 2)
    first, second = chat_site.sent("turn.start")
    assert first == second
    expect(chat.locator(".bubble")).to_have_text(["Are you there?"])
    assert len(chat_site.running) == 1


def test_killed_socket_resumes_without_gap_or_repeat(chat: Page, chat_site: ChatSite) -> None:
    turn_id = ask(chat, chat_site, "Count")
    begin(chat_site, turn_id)
    words = [f"w{n} " for n in range(60)]
    chat_site.text(turn_id, *words[:20])
    wait(chat, lambda: chat_site.sent("ack"))
    chat_site.kill()
    wait(chat, lambda: not chat_site.sockets)
    chat_site.text(turn_id, *words[20:40])  # nobody listens
    wait(chat, lambda: len(chat_site.sockets) == 1)
    wait(chat, lambda: chat_site.sent("watch")[-1]["turns"].get(turn_id) == 22)
    chat_site.text(turn_id, *words[40:])
    expect(chat.locator(".prose")).to_have_text("".join(words).strip())
    chat_site.end(turn_id)
    expect(chat.locator(".prose")).to_have_text("".join(words).strip())


def test_a_repeat_is_dropped_and_a_gap_is_asked_for(chat: Page, chat_site: ChatSite) -> None:
    turn_id = ask(chat, chat_site, "Count")
    begin(chat_site, turn_id)
    chat_site.text(turn_id, "one ", "two ")
    events = chat_site.running[turn_id].events
    chat_site.send_all(events[-1])
    events.append({**events[-1], "seq": 5, "text": "three "})  # stored, and its ring is lost
    chat.wait_for_timeout(2100)  # a page asks for what is missing at most every two seconds
    watches = len(chat_site.sent("watch"))
    chat_site.text(turn_id, "four")
    wait(chat, lambda: len(chat_site.sent("watch")) > watches)
    assert chat_site.sent("watch")[-1]["turns"][turn_id] == 4
    expect(chat.locator(".prose")).to_have_text("one two three four")


def test_another_runner_starts_the_answer_over(chat: Page, chat_site: ChatSite) -> None:
    turn_id = ask(chat, chat_site, "Count")
    begin(chat_site, turn_id)
    chat_site.text(turn_id, "from the first")
    expect(chat.locator(".prose")).to_have_text("from the first")
    event = {"t": "event", "turn": turn_id, "fence": 2}
    chat_site.send_all(
        event | {"seq": 1, "kind": "attempt", "attempt": 1, "tier": "local", "model": "s", "model_label": "S"}
    )
    chat_site.send_all(event | {"seq": 2, "kind": "delta", "text": "from the second"})
    chat_site.send_all(event | {"fence": 1, "seq": 4, "kind": "delta", "text": " late"})
    expect(chat.locator(".prose")).to_have_text("from the second")


def test_silence_is_noticed_by_the_heartbeat(chat_site: ChatSite, context: BrowserContext) -> None:
    """The server's interval is 10 s, so 0.4 s here stands for it: a frozen server is noticed within 2.5 intervals."""
    chat_site.heartbeat_s = 0.4
    chat_site.pages["/"] = chat_page()
    page = context.new_page()
    page.goto(chat_site.url)
    wait(page, lambda: len(chat_site.sent("ping")) > 1)
    expect(page.locator("#link")).to_be_hidden()
    page.fill("#ask", "What I typed")
    chat_site.frozen = True
    expect(page.locator("#link")).to_contain_text("Reconnecting", timeout=10_000)
    assert page.input_value("#ask") == "What I typed"
    chat_site.frozen = False
    page.get_by_role("button", name="Try now").click()
    expect(page.locator("#link")).to_be_hidden(timeout=15_000)


def test_draft_survives_a_reload(chat: Page, chat_site: ChatSite) -> None:
    chat.fill("#ask", "half a question")
    chat.reload()
    expect(chat.locator("#ask")).to_have_value("half a question")
    ask(chat, chat_site, "half a question")
    chat.goto(chat_site.url)
    expect(chat.locator("#ask")).to_have_value("")


def test_signed_out_keeps_the_draft_and_asks_to_sign_in(chat: Page, chat_site: ChatSite) -> None:
    chat.fill("#ask", "my draft")
    chat_site.reject_code = 4401
    chat_site.kill()
    link = chat.get_by_role("link", name="Sign in again")
    expect(link).to_be_visible()
    assert link.get_attribute("href") == "/login?next=%2F"
    assert chat.input_value("#ask") == "my draft"
    chat.reload()
    expect(chat.locator("#ask")).to_have_value("my draft")


def test_a_refused_question_goes_back_into_the_box(chat: Page, chat_site: ChatSite) -> None:
    chat.fill("#ask", "too much")
    chat_site.frozen = True
    chat.press("#ask", "Enter")
    wait(chat, lambda: chat_site.sent("turn.start"))
    chat_site.frozen = False
    chat_site.send_all(
        {"t": "error", "for": chat_site.sent("turn.start")[0]["id"], "error": BROKEN | {"title": "The budget is used"}}
    )
    expect(chat.get_by_role("alert")).to_contain_text("The budget is used")
    expect(chat.locator("#ask")).to_have_value("too much")
    expect(chat.locator(".bubble")).to_have_count(0)
    expect(chat.locator("#send")).to_be_enabled()


def test_escape_stops_and_the_part_is_kept(chat: Page, chat_site: ChatSite) -> None:
    turn_id = ask(chat, chat_site, "Long story")
    begin(chat_site, turn_id)
    chat_site.text(turn_id, "Once upon a time")
    expect(chat.locator(".prose")).to_contain_text("Once upon a time")
    chat.keyboard.press("Escape")
    wait(chat, lambda: chat_site.sent("turn.stop"))
    chat_site.end(turn_id, "cancelled")
    expect(chat.locator(".cutmark")).to_contain_text("after 4 words")
    chat.get_by_role("button", name="Continue from here").click()
    wait(chat, lambda: chat_site.sent("turn.continue"))
    assert chat_site.sent("turn.continue")[0]["turn"] == turn_id
    expect(chat.locator(".vers")).to_contain_text("2/2")
    chat.get_by_role("button", name="Previous version").click()
    expect(chat.locator(".prose")).to_have_text("Once upon a time")


def test_failure_and_fallback_are_explained(chat: Page, chat_site: ChatSite) -> None:
    turn_id = ask(chat, chat_site, "Hard one")
    begin(chat_site, turn_id)
    chat_site.emit(turn_id, "fallback", **{"from": "local", "to": "cloud", "why": "It was busy."})
    expect(chat.locator(".wait")).to_contain_text("Local could not answer: It was busy. Cloud answers in its place")
    chat_site.end(turn_id, "failed", BROKEN, route=ROUTE, tier="local")
    alert = chat.get_by_role("alert")
    expect(alert).to_contain_text(BROKEN["title"])
    expect(alert).to_contain_text(BROKEN["kept"])
    expect(alert.get_by_role("button", name="Answer on Cloud, about $0.004")).to_be_visible()
    expect(alert).to_contain_text(f"upstream_busy {BROKEN['ref']}")


def test_a_turn_of_another_page_shows_up_live(chat: Page, chat_site: ChatSite) -> None:
    first = ask(chat, chat_site, "Mine")
    chat_site.end(first)
    conversation = chat_site.running[first].turn["conversation"]
    other = chat_site.begin({"t": "turn.start", "id": "elsewhere", "text": "Theirs", "conversation": conversation})
    chat_site.send_all({"t": "turn.accepted", "for": None, "turn": other, "duplicate": False})
    begin(chat_site, other["id"])
    chat_site.text(other["id"], "Hello there")
    expect(chat.locator(".bubble").last).to_have_text("Theirs")
    expect(chat.locator(".prose").last).to_have_text("Hello there")


def test_reload_in_the_middle_shows_the_whole_text(chat_site: ChatSite, context: BrowserContext) -> None:
    chat_site.pages["/"] = chat_page(
        [make_turn(1, "Q", "half", state="running", outcome="", ended_at=None, events_end=3)]
    )
    page = context.new_page()
    page.goto(chat_site.url)
    wait(page, lambda: chat_site.sent("watch"))
    ((turn_id, seen),) = chat_site.sent("watch")[0]["turns"].items()
    assert seen == 0
    for seq, text in enumerate(["half ", "and ", "whole"], 1):
        chat_site.send_all({"t": "event", "turn": turn_id, "fence": 1, "seq": seq, "kind": "delta", "text": text})
    expect(page.locator(".prose")).to_have_text("half and whole")


def test_pick_a_tier_and_keep_it(chat: Page, chat_site: ChatSite) -> None:
    chat.click("#pick")
    expect(chat.locator("#opts")).to_contain_text("Not set up here.")
    expect(chat.locator('input[data-tier="hpc"]')).to_be_disabled()
    chat.get_by_text("Mini").click()
    expect(chat.locator("#picker")).to_be_hidden()
    turn_id = ask(chat, chat_site, "With Mini")
    assert {k: chat_site.sent("turn.start")[0][k] for k in ("tier", "model")} == {"tier": "cloud", "model": "lab/mini"}
    chat_site.end(turn_id)
    chat.click("#lock")
    wait(chat, lambda: chat_site.posts)
    assert chat_site.posts[0][1] == {"on": True}
    expect(chat.locator("#pick")).to_have_text(" Auto")
    chat.click("#pick")
    expect(chat.locator("#opts")).to_contain_text("Off: this conversation is campus only.")


def test_rename_delete_and_search(chat_site: ChatSite, context: BrowserContext) -> None:
    chat_site.pages["/"] = html = chat_page(sample_turns())
    conversation = html.split('"conversation": "')[1].split('"')[0]
    hit = {"conversation": conversation, "title": "Wave heights", "turn": None, "position": 2, "where": "answer"}
    chat_site.replies["/search"] = (
        200,
        {"results": [hit | {"snippet": [["We ", False], ["fitted", True], [" it.", False]]}]},
    )
    page = context.new_page()
    page.goto(chat_site.url)
    row = page.locator(f'[data-id="{conversation}"]')
    row.get_by_role("button").click()
    page.click("#menu-rename")
    page.fill("#rename-to", "Buoy 46")
    page.keyboard.press("Enter")
    expect(row).to_contain_text("Buoy 46")
    assert chat_site.posts[-1] == (f"/c/{conversation}/rename", {"title": "Buoy 46"})
    chat_site.replies[f"/c/{conversation}/delete"] = (503, {"error": BROKEN})
    row.get_by_role("button").click()
    page.click("#menu-delete")
    page.locator("#delete button[type=submit]").click()
    expect(page.locator("#delete [data-error]")).to_contain_text(BROKEN["happened"])
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    page.fill("#findq", "fitted")
    expect(page.locator("#hits mark")).to_have_text("fitted")
    chat_site.pages[f"/c/{conversation}"] = html
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/c/{conversation}#q2")
    until(page, "document.activeElement.id === 'q2'")


def test_keyboard_map(chat: Page, chat_site: ChatSite) -> None:
    chat.locator("#ask").blur()
    chat.locator("body").press("?")
    expect(chat.locator("#keys")).to_be_visible()
    chat.keyboard.press("Escape")
    chat.keyboard.press("Control+.")
    expect(chat.locator("#side")).to_be_hidden()
    chat.keyboard.press("Control+.")
    expect(chat.locator("#side")).to_be_visible()
    chat.keyboard.press("/")
    until(chat, "document.activeElement.id === 'ask'")
    chat.keyboard.press("@")
    expect(chat.locator("#picker")).to_be_visible()
    assert chat.input_value("#ask") == ""


def test_a_campus_question_shows_its_way_to_the_first_token(chat: Page, chat_site: ChatSite) -> None:
    turn_id = ask(chat, chat_site, "Fit 40 buoys.")
    chat_site.emit(turn_id, "route", route=ROUTE | {"tier": "hpc"})
    chat_site.emit(turn_id, "attempt", attempt=1, tier="hpc", model="qwen", model_label="Qwen3 32B")
    chat_site.emit(turn_id, "state", state="submitted", detail="")
    chat_site.emit(turn_id, "state", state="queued", detail="a worker is starting (demo processes)")
    life = chat.locator(".life")
    expect(life.locator("li.done")).to_have_count(2)
    expect(life.locator("li.now b")).to_have_text("Queued")
    expect(life.locator(".life-say")).to_have_text(
        "A worker is starting (demo processes). You can leave: the answer waits here."
    )
    expect(life.locator("li").first.locator("bdi")).to_have_text(re.compile(r"\d\.\d s"))
    expect(chat.locator(".wait")).to_be_hidden()
    ARTEFACTS.mkdir(exist_ok=True)
    chat.screenshot(path=ARTEFACTS / "campus-queued.png")
    chat_site.emit(turn_id, "state", state="prefill", detail="")
    expect(life.locator("li.now b")).to_have_text("Reading")
    chat_site.text(turn_id, "Here it is")
    expect(life.locator(".is-past li.done")).to_have_count(5)
    expect(life.locator(".life-say")).to_have_count(0)
    chat.screenshot(path=ARTEFACTS / "campus-streaming.png")
    chat_site.end(turn_id, tier="hpc", model_label="Qwen3 32B", route=ROUTE | {"tier": "hpc"})
    expect(life).to_be_hidden()
