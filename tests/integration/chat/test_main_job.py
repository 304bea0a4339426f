"""The main job over the real site: a question is stored, routed, streamed, kept and priced."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from tests.fakes import scripts
from tests.fixtures_upstream import UpstreamControl
from tests.site import Page, Site, wait_until


def counted(count: int) -> str:
    """Return what `scripts.numbered` says: each token once, in order."""
    return "".join(f"{n} " for n in range(count))


def test_a_question_is_answered_stored_and_booked(alice: Page, site: Site, upstream: UpstreamControl) -> None:
    upstream.script(scripts.openai("Hello ", "**world**"), model="local-model")
    turn_id = alice.ask("Say hello")
    done = alice.until_done(turn_id)
    assert done["outcome"] == "complete"
    assert alice.text(turn_id) == "Hello **world**"
    assert alice.seqs(turn_id) == list(range(1, done["seq"] + 1))
    kinds = [e["kind"] for e in alice.events[turn_id]]
    assert kinds[:2] == ["route", "attempt"]
    assert kinds[-1] == "done"
    stored = site.turn(turn_id)
    assert (stored["state"], stored["outcome"], stored["answer"]) == ("ended", "complete", "Hello **world**")
    assert (stored["tier"], stored["cost_micro"]) == ("local", 0)
    assert stored["tokens_in"] > 0
    line = site.rows("SELECT * FROM routing_ledgerentry WHERE turn_id = ?", uuid.UUID(turn_id).hex)
    assert [(row["kind"], row["amount_micro"]) for row in line] == [("settle", 0)]


def test_a_paid_answer_is_reserved_settled_and_shown_at_the_providers_price(
    alice: Page, site: Site, upstream: UpstreamControl
) -> None:
    upstream.script(scripts.openrouter("Paid ", "words", cost="0.00214"))
    turn_id = alice.ask("Prove it", tier="cloud")
    done = alice.until_done(turn_id)
    assert done["stored"]["cost_micro"] == 2140
    rows = site.rows(
        "SELECT kind, amount_micro, source FROM routing_ledgerentry WHERE turn_id = ? ORDER BY id",
        uuid.UUID(turn_id).hex,
    )
    assert [row["kind"] for row in rows] == ["reserve", "settle"]
    assert (rows[1]["amount_micro"], rows[1]["source"]) == (2140, "provider")


def test_reloading_in_mid_answer_shows_all_of_it_without_gap_or_repeat(
    page_of: Callable[..., Page], alice_http: httpx.Client, upstream: UpstreamControl
) -> None:
    upstream.script(scripts.numbered(60, rate=30), model="local-model")
    first = page_of(alice_http)
    turn_id = first.ask("Count")
    first.until_text(turn_id, 40)
    first.close()
    second = page_of(alice_http, conversation=first.conversation)
    second.watch({turn_id: 0})
    second.until_done(turn_id)
    assert second.text(turn_id) == counted(60)


def test_a_dropped_socket_resumes_after_the_last_event_it_saw(
    page_of: Callable[..., Page], alice_http: httpx.Client, upstream: UpstreamControl
) -> None:
    upstream.script(scripts.numbered(60, rate=30), model="local-model")
    page = page_of(alice_http)
    turn_id = page.ask("Count")
    page.until_text(turn_id, 40)
    page.close()
    time.sleep(0.4)
    page.open()
    page.watch({turn_id: page.seqs(turn_id)[-1]})
    page.until_done(turn_id)
    seqs = page.seqs(turn_id)
    assert seqs == list(range(1, len(seqs) + 1))
    assert page.text(turn_id) == counted(60)


def test_closing_the_tab_loses_nothing(
    page_of: Callable[..., Page], alice_http: httpx.Client, site: Site, upstream: UpstreamControl
) -> None:
    upstream.script(scripts.numbered(20, rate=40), model="local-model")
    page = page_of(alice_http)
    turn_id = page.ask("Count")
    page.close()
    wait_until(lambda: site.turn(turn_id)["state"] == "ended", "the end without a page")
    assert site.turn(turn_id)["answer"] == counted(20)


def test_two_tabs_show_the_same_and_the_other_one_needs_no_reload(
    page_of: Callable[..., Page], alice_http: httpx.Client, upstream: UpstreamControl
) -> None:
    upstream.script(scripts.numbered(30, rate=40), model="local-model")
    one = page_of(alice_http)
    other = page_of(alice_http, conversation=one.conversation)
    other.watch()
    turn_id = one.ask("Count")
    one.until_done(turn_id)
    other.until_done(turn_id)
    assert one.text(turn_id) == other.text(turn_id) == counted(30)
    assert other.turns[turn_id]["question"] == "Count"


def test_the_same_send_twice_makes_one_turn(
    page_of: Callable[..., Page], alice_http: httpx.Client, site: Site, upstream: UpstreamControl
) -> None:
    client_id = str(uuid.uuid4())
    pages = [page_of(alice_http)]
    pages.append(page_of(alice_http, conversation=pages[0].conversation))
    message = pages[0].start_message("Once", client_id)
    for page in pages:
        page.send(**message)
        page.send(**message)
    ids = {page.accepted(client_id) for page in pages for _ in range(2)}
    assert len(ids) == 1
    pages[0].until_done(ids.pop())
    count = site.rows("SELECT count(*) AS n FROM chat_turn WHERE client_id = ?", uuid.UUID(client_id).hex)
    assert count[0]["n"] == 1
    assert len(upstream.log()) == 1


def test_stop_closes_the_upstream_request_within_a_second_and_keeps_the_partial(
    alice: Page, site: Site, upstream: UpstreamControl
) -> None:
    upstream.script(scripts.numbered(2000, rate=20), model="local-model")
    turn_id = alice.ask("Count for long")
    alice.until_text(turn_id, 30)
    asked = time.monotonic()
    alice.send(t="turn.stop", turn=turn_id)
    done = alice.until_done(turn_id)
    assert done["outcome"] == "cancelled"
    assert upstream.wait_for("disconnected", timeout_s=2) - asked < 1
    assert site.turn(turn_id)["answer"] == alice.text(turn_id)
    assert done["stored"]["tokens_estimated"] is True
    assert site.turn(turn_id)["outcome"] == "cancelled"


def test_a_broken_stream_keeps_the_partial_and_can_be_continued(alice: Page, upstream: UpstreamControl) -> None:
    upstream.script([*scripts.openai("One, two, ")[:2], {"sleep": 0.3}, *scripts.CUT], model="local-model", times=1)
    turn_id = alice.ask("Count to four")
    done = alice.until_done(turn_id)
    assert done["outcome"] == "interrupted"
    assert done["error"]["kept"] == "What arrived is saved."
    upstream.reset()
    upstream.script(scripts.openai("three, four."), model="local-model")
    again = str(uuid.uuid4())
    alice.send(t="turn.continue", id=again, turn=turn_id)
    more = alice.until_done(alice.accepted(again))
    assert alice.text(more["turn"]) == alice.text(turn_id) + "three, four."
    assert (more["stored"]["position"], more["stored"]["version"]) == (1, 2)
    assert more["stored"]["continues"] == turn_id
    sent = upstream.last()["body"]["messages"]
    assert [m["role"] for m in sent][-3:] == ["user", "assistant", "user"]


def test_trying_again_adds_a_version_and_the_next_question_sees_the_newest(
    alice: Page, upstream: UpstreamControl
) -> None:
    upstream.script(scripts.openai("first"), model="local-model", times=1)
    turn_id = alice.ask("Name one")
    alice.until_done(turn_id)
    upstream.script(scripts.openai("second"), model="local-model")
    again = str(uuid.uuid4())
    alice.send(t="turn.again", id=again, turn=turn_id, tier="local", model="")
    assert alice.until_done(alice.accepted(again))["stored"]["version"] == 2
    alice.until_done(alice.ask("And then?"))
    sent = [m["content"] for m in upstream.last()["body"]["messages"]]
    assert "second" in sent
    assert "first" not in sent


def test_a_tier_that_is_down_is_left_before_the_first_text_and_it_is_said(
    alice: Page, upstream: UpstreamControl
) -> None:
    upstream.script(scripts.status(503, "down"), model="anthropic/claude-sonnet-4.5")
    upstream.script(scripts.openai("free words"), model="local-model")
    turn_id = alice.ask("Why is the sky blue?", tier="auto")
    done = alice.until_done(turn_id)
    fallback = [e for e in alice.events[turn_id] if e["kind"] == "fallback"]
    assert [(f["from"], f["to"]) for f in fallback] == [("cloud", "local")]
    assert alice.text(turn_id) == "free words"
    assert done["stored"]["attempts"] == 2
    assert done["stored"]["cost_micro"] == 0


def test_campus_only_stays_on_campus(alice: Page, upstream: UpstreamControl) -> None:
    upstream.script(scripts.status(503, "down"), model="local-model")
    done = alice.until_done(alice.ask("Secret", tier="auto", campus_only=True))
    assert done["outcome"] == "failed"
    assert {r["body"]["model"] for r in upstream.log()} == {"local-model"}


@pytest.mark.parametrize("what", ["turn.stop", "turn.again", "turn.continue", "watch", "turn.start"])
def test_nothing_of_another_person_is_reachable(
    what: str, alice: Page, page_of: Callable[..., Page], bob_http: httpx.Client, upstream: UpstreamControl
) -> None:
    turn_id = alice.ask("Mine")
    alice.until_done(turn_id)
    bob = page_of(bob_http, conversation=alice.conversation)
    if what == "turn.start":
        bob.send(**bob.start_message("Intrude", str(uuid.uuid4())))
    elif what == "watch":
        bob.send(t="watch", conversation=alice.conversation, turns={turn_id: 0})
    else:
        bob.send(t=what, turn=turn_id, id=str(uuid.uuid4()), tier="local", model="")
    answer = bob.receive()
    assert answer["t"] == "error"
    assert answer["error"]["code"] == "not_found"
    assert bob_http.get(f"/c/{alice.conversation}").status_code == 404


def test_a_message_that_cannot_be_used_is_answered_in_words_and_the_socket_stays(alice: Page) -> None:
    for bad in ["{", "[]", '{"t": "nonsense"}', '{"t": "turn.start"}', '{"t":"turn.stop","turn":"x"}']:
        assert alice.socket
        alice.socket.send(bad)
        answer = alice.receive()
        assert answer["t"] == "error"
        assert answer["error"]["happened"]
    alice.send(t="ping", at=7)
    assert alice.receive() == {"t": "pong", "at": 7}


def test_a_reader_that_acknowledges_nothing_gets_a_bounded_amount_and_the_whole_answer_at_the_end(
    page_of: Callable[..., Page], alice_http: httpx.Client, upstream: UpstreamControl
) -> None:
    big = "x" * 4000
    upstream.script(scripts.openai(*[big] * 200), model="local-model")
    page = page_of(alice_http, acks=False)
    turn_id = page.ask("Much")
    got = 0
    try:
        while True:
            got += len(json.dumps(page.receive(2)))
    except TimeoutError:
        pass
    assert 100_000 < got < 256 * 1024 + 2 * 4096 + 20_000
    page.acks = True
    page.send(t="ack", turn=turn_id, seq=page.seqs(turn_id)[-1])
    page.until_done(turn_id)
    assert page.text(turn_id) == big * 200


def test_many_answers_at_once_do_not_mix(
    page_of: Callable[..., Page], alice_http: httpx.Client, upstream: UpstreamControl
) -> None:
    pages = [page_of(alice_http) for _ in range(12)]
    results: dict[int, str] = {}

    def run(number: int) -> None:
        turn_id = pages[number].ask(f"Question number {number}")
        results[number] = pages[number].until_done(turn_id)["stored"]["question"]

    threads = [threading.Thread(target=run, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: f"Question number {n}" for n in range(12)}


def test_signing_out_ends_the_open_sockets_of_that_browser_only(site: Site, upstream: UpstreamControl) -> None:
    leaving, staying = site.sign_in("alice"), site.sign_in("alice")
    with Page(site, leaving) as gone, Page(site, staying) as stays:
        token = leaving.cookies["csrftoken"]
        leaving.post("/logout", headers={"X-CSRFToken": token, "Referer": site.url})
        with pytest.raises(ConnectionClosed) as closed:
            gone.receive(5)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 4401
        stays.send(t="ping", at=1)
        assert stays.receive()["t"] == "pong"
    leaving.close()
    staying.close()


@pytest.mark.parametrize("origin", ["https://evil.test", "null", None, "http://127.0.0.1:1"])
def test_a_foreign_page_cannot_open_the_socket(origin: str | None, site: Site, alice_http: httpx.Client) -> None:
    cookie = "; ".join(f"{k}={v}" for k, v in alice_http.cookies.items())
    url = site.url.replace("http", "ws", 1) + "/ws/chat"
    headers = {"Cookie": cookie}
    with (
        pytest.raises(InvalidStatus) as refused,
        connect(url, origin=origin, additional_headers=headers, proxy=None),  # type: ignore[arg-type]
    ):
        pass
    assert refused.value.response.status_code == 403


def test_a_socket_without_a_session_is_told_to_sign_in(site: Site) -> None:
    url = site.url.replace("http", "ws", 1) + "/ws/chat"
    with connect(url, origin=Origin(site.url), proxy=None) as socket, pytest.raises(ConnectionClosed) as closed:
        socket.recv(5)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 4401


def test_pages_and_calls_ask_to_sign_in_and_check_the_token(site: Site, alice: Page, alice_http: httpx.Client) -> None:
    for path in ("/", f"/c/{uuid.uuid4()}", "/search?q=x"):
        assert httpx.get(site.url + path, trust_env=False).headers["location"].startswith("/login")
    assert alice_http.post(f"/c/{uuid.uuid4()}/delete", json={}).status_code == 403
    csp = alice_http.get("/").headers["content-security-policy"]
    assert "unsafe" not in csp
    assert "default-src 'none'" in csp


def test_the_calls_of_a_page_answer_in_words(site: Site, alice: Page, alice_http: httpx.Client) -> None:
    alice.until_done(alice.ask("A question about buoys"))
    headers = {"X-CSRFToken": alice_http.cookies["csrftoken"], "Referer": site.url}
    base = f"/c/{alice.conversation}"
    assert (
        alice_http.post(f"{base}/rename", json={"title": " New  name "}, headers=headers).json()["title"] == "New name"
    )
    refused = alice_http.post(f"{base}/rename", json={"title": ""}, headers=headers)
    assert refused.status_code == 400
    assert refused.json()["error"]["happened"] == "The title is empty."
    assert alice_http.post(f"{base}/rename", content=b"{", headers=headers).status_code == 400
    assert alice_http.post(f"{base}/campus-only", json={"on": True}, headers=headers).json()["campus_only"] is True
    assert alice_http.post("/me/theme", json={"theme": "pink"}, headers=headers).status_code == 400
    found = alice_http.get("/search", params={"q": "buoys"}).json()["results"]
    assert any(r["conversation"] == alice.conversation for r in found)
    assert alice_http.post(f"{base}/delete", json={}, headers=headers).json()["deleted"] is True
    assert alice_http.get(base).status_code == 404
