"""The chat's data layer, on SQLite and on PostgreSQL."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from accounts.models import User
from chat import ending, pages, selectors, services
from chat.models import Conversation, SearchText, Turn, TurnEvents
from chat.protocol import TurnStart
from chat.search import search
from routing import ledger
from routing.models import LedgerEntry
from routing.types import ModelSpec, Outcome, Price, Tier, Usage
from stream_site.errors import ConflictError, InputError, NotFound

pytestmark = [pytest.mark.data, pytest.mark.django_db]
LOCAL = ModelSpec(Tier.LOCAL, "small", "Small", 2048, 512)
PAID = ModelSpec(Tier.CLOUD, "big", "Big", 200_000, 8192, Price(input=3_000_000, output=15_000_000))


@pytest.fixture
def alice() -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def bob() -> User:
    return User.objects.create_user("bob")


def start(owner: User, text: str = "Why?", conversation: uuid.UUID | None = None, **fields: Any) -> services.Started:
    message = TurnStart(uuid.uuid4(), conversation or uuid.uuid4(), text, "auto", "", campus_only=False)
    return services.turn_start(owner=owner, message=message, **fields)


def finish(turn: Turn, answer: str = "Because.", **fields: Any) -> Turn | None:
    end = ending.TurnEnd(
        **{
            "outcome": Outcome.COMPLETE,
            "answer": answer,
            "reasoning": "",
            "error": None,
            "route": None,
            "model": LOCAL,
            "usage": Usage(10, 3),
            "bills": [ending.Bill(1, LOCAL, Usage(10, 3), ran=True)],
            "first_text_ms": 5,
            "events_end": 4,
        }
        | fields
    )
    return ending.turn_finish(claim=services.Claim(turn, turn.fence), end=end)


def test_a_question_is_stored_once_under_its_client_id(alice: User) -> None:
    message = TurnStart(uuid.uuid4(), uuid.uuid4(), "  First line\nsecond", "local", "", campus_only=True)
    first = services.turn_start(owner=alice, message=message)
    again = services.turn_start(owner=alice, message=message)
    assert (first.duplicate, again.duplicate) == (False, True)
    assert first.turn.id == again.turn.id
    conversation = Conversation.objects.get()
    assert (conversation.title, conversation.data_policy) == ("First line", "campus_only")


def test_a_client_id_used_for_another_question_is_a_conflict(alice: User) -> None:
    message = TurnStart(uuid.uuid4(), uuid.uuid4(), "one", "local", "", campus_only=False)
    services.turn_start(owner=alice, message=message)
    with pytest.raises(ConflictError, match="another question"):
        services.turn_start(owner=alice, message=TurnStart(message.id, message.conversation, "two", "local", "", False))


def test_two_people_may_use_the_same_client_id(alice: User, bob: User) -> None:
    client_id = uuid.uuid4()
    for owner in (alice, bob):
        services.turn_start(owner=owner, message=TurnStart(client_id, uuid.uuid4(), "q", "local", "", False))
    assert Turn.objects.filter(client_id=client_id).count() == 2


def test_a_conversation_answers_one_question_at_a_time(alice: User) -> None:
    first = start(alice)
    with pytest.raises(ConflictError, match="still being written"):
        start(alice, conversation=first.turn.conversation_id)


def test_every_write_refuses_another_persons_things(alice: User, bob: User) -> None:
    turn = start(alice, claim=("r", 20)).turn
    finish(turn)
    conversation_id = turn.conversation_id
    attempts: list[Callable[[], Any]] = [
        lambda: start(bob, conversation=conversation_id),
        lambda: services.turn_stop(owner=bob, turn_id=turn.id),
        lambda: services.turn_again(owner=bob, turn_id=turn.id, client_id=uuid.uuid4()),
        lambda: services.conversation_rename(owner=bob, conversation_id=conversation_id, title="x"),
        lambda: services.conversation_delete(owner=bob, conversation_id=conversation_id),
        lambda: services.conversation_set_campus_only(owner=bob, conversation_id=conversation_id, on=True),
        lambda: selectors.watched_conversation(bob, conversation_id),
    ]
    for attempt in attempts:
        with pytest.raises(NotFound):
            attempt()
    assert search(bob, "Why") == []


def test_queued_turns_are_claimed_oldest_first_and_never_twice(alice: User) -> None:
    turns = [start(alice, f"q{n}").turn for n in range(3)]
    first = services.turns_claim(runner="a", most=2, lease_s=20)
    second = services.turns_claim(runner="b", most=5, lease_s=20)
    assert [c.turn.id for c in first + second] == [t.id for t in turns]
    assert {c.fence for c in first} == {1}
    assert services.turns_claim(runner="c", most=5, lease_s=20) == []


def test_writes_under_an_old_fence_are_refused_and_leave_no_trace(alice: User) -> None:
    turn = start(alice, claim=("r", 20)).turn
    Turn.objects.filter(id=turn.id).update(fence=2)
    assert not services.events_append(turn_id=turn.id, fence=1, events=[{"seq": 1, "kind": "delta", "text": "x"}])
    assert finish(turn) is None
    assert not TurnEvents.objects.exists()
    assert not LedgerEntry.objects.exists()
    assert services.leases_renew(claims=[(turn.id, 1)], lease_s=20) == ({turn.id}, set())


def test_the_end_is_stored_with_its_price_in_one_step(alice: User) -> None:
    turn = start(alice, claim=("r", 20)).turn
    services.events_append(turn_id=turn.id, fence=1, events=[{"seq": 1, "kind": "delta", "text": "x"}])
    ledger.reserve(call=ledger.CallRef(turn.id, 1, alice.pk, Tier.CLOUD, "big"), upper_micro=200_000)
    bills = [ending.Bill(1, PAID, Usage(1000, 100), ran=True), ending.Bill(2, LOCAL, Usage(10, 2), ran=True)]
    ended = finish(turn, model=LOCAL, bills=bills)
    assert ended is not None
    assert ended.cost_micro == 1000 * 3 + 100 * 15
    assert (ended.attempts, ended.tier, ended.state) == (2, "local", "ended")
    assert not TurnEvents.objects.exists()
    assert list(LedgerEntry.objects.order_by("id").values_list("kind", flat=True)) == ["reserve", "settle", "settle"]


def test_an_attempt_that_never_ran_gives_its_reservation_back(alice: User) -> None:
    turn = start(alice, claim=("r", 20)).turn
    ledger.reserve(call=ledger.CallRef(turn.id, 1, alice.pk, Tier.CLOUD, "big"), upper_micro=200_000)
    ended = finish(turn, bills=[ending.Bill(1, PAID, Usage(), ran=False)], answer="", outcome=Outcome.FAILED)
    assert ended is not None
    assert ended.cost_micro == 0
    assert list(LedgerEntry.objects.order_by("id").values_list("kind", flat=True)) == ["reserve", "release"]


def expire(turn: Turn) -> Turn:
    Turn.objects.filter(id=turn.id).update(lease_until=timezone.now() - timedelta(seconds=1))
    turn.refresh_from_db()
    return turn


def test_a_turn_whose_runner_died_unseen_starts_over(alice: User) -> None:
    turn = expire(start(alice, claim=("r", 20)).turn)
    assert services.turns_expired() == [turn]
    assert services.is_free_to_restart(turn)
    assert services.turn_requeue(turn)
    assert not services.turn_requeue(turn)
    (claim,) = services.turns_claim(runner="s", most=5, lease_s=20)
    assert (claim.turn.id, claim.fence) == (turn.id, 2)


def test_a_turn_whose_runner_died_with_text_keeps_it_marked_and_booked(alice: User) -> None:
    turn = start(alice, claim=("r", 20)).turn
    ledger.reserve(call=ledger.CallRef(turn.id, 1, alice.pk, Tier.CLOUD, "big"), upper_micro=200_000)
    for seq, text in ((1, "Half "), (2, "an answer")):
        services.events_append(turn_id=turn.id, fence=1, events=[{"seq": seq, "kind": "delta", "text": text}])
    expire(turn)
    assert not services.is_free_to_restart(turn)
    ended = ending.turn_abandon(turn)
    assert ended is not None
    assert (ended.outcome, ended.answer, ended.cost_micro) == ("interrupted", "Half an answer", 200_000)
    assert ended.error is not None
    assert ended.error["kept"] == "What arrived is saved."
    assert ending.turn_abandon(turn) is None
    assert LedgerEntry.objects.get(kind="settle").degraded


def test_stopping_a_turn_nobody_took_ends_it_at_once(alice: User) -> None:
    turn = start(alice).turn
    assert services.turn_stop(owner=alice, turn_id=turn.id).outcome == "cancelled"
    running = start(alice, claim=("r", 20)).turn
    services.turn_stop(owner=alice, turn_id=running.id)
    assert services.leases_renew(claims=[(running.id, 1)], lease_s=20) == (set(), {running.id})


def test_the_model_sees_the_newest_version_that_has_text(alice: User) -> None:
    first = start(alice, "q1", claim=("r", 20)).turn
    finish(first, "old answer")
    again = services.turn_again(owner=alice, turn_id=first.id, client_id=uuid.uuid4(), claim=("r", 20)).turn
    finish(again, "new answer")
    failed = services.turn_again(owner=alice, turn_id=first.id, client_id=uuid.uuid4(), claim=("r", 20)).turn
    finish(failed, "", outcome=Outcome.FAILED)
    following = start(alice, "q2", conversation=first.conversation_id, claim=("r", 20)).turn
    request = selectors.answer_request(following)
    assert [m.text for m in request.ask.history] == ["q1", "new answer"]


def test_going_on_from_no_text_is_refused(alice: User) -> None:
    turn = start(alice, claim=("r", 20)).turn
    finish(turn, "", outcome=Outcome.FAILED)
    with pytest.raises(InputError, match="no text to go on from"):
        services.turn_again(owner=alice, turn_id=turn.id, client_id=uuid.uuid4(), carry_on=True)


def test_a_replayed_answer_is_whole_numbered_and_always_the_same(alice: User) -> None:
    turn = start(alice, claim=("r", 20)).turn
    ended = finish(turn, "é" * 9000, reasoning="hm")
    assert ended is not None
    events = selectors.replay_events(ended)
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert "".join(e["text"] for e in events if e["kind"] == "delta") == "é" * 9000
    assert events[-1]["kind"] == "done"
    assert "answer" not in events[-1]["stored"]
    assert events == selectors.replay_events(ended)


# ── conversations and search ──────────────────────────────────────────────


def test_search_finds_titles_questions_and_answers_by_the_beginning_of_words(alice: User, bob: User) -> None:
    turn = start(alice, "Which threshold for buoys?", claim=("r", 20)).turn
    finish(turn, "Use the mean residual life plot.")
    finish(start(bob, "threshold of mine", claim=("r", 20)).turn)
    for query, where in (("thresh", {"title", "question"}), ("residual LIFE", {"answer"}), ("buoy mean", set())):
        assert {r["where"] for r in search(alice, query)} == where, query
    marked = [text for text, hit in search(alice, "resi")[0]["snippet"] if hit]
    assert marked == ["resi"]


@pytest.mark.parametrize("query", ["气压", "\"'*() OR :", "a & b | !", "%", "_", "x" * 200, "''", "NEAR(a b)", "-"])
def test_search_takes_any_text_as_words(query: str, alice: User) -> None:
    finish(start(alice, "海面气压是多少", claim=("r", 20)).turn)
    found = search(alice, query)
    assert bool(found) == (query == "气压")


def test_search_follows_renaming_and_deleting(alice: User) -> None:
    turn = start(alice, "Old name", claim=("r", 20)).turn
    finish(turn)
    services.conversation_rename(owner=alice, conversation_id=turn.conversation_id, title="  Fresh   title ")
    assert [r["where"] for r in search(alice, "fresh")] == ["title"]
    assert Conversation.objects.get().title == "Fresh title"
    services.conversation_delete(owner=alice, conversation_id=turn.conversation_id)
    assert search(alice, "fresh") == []
    assert not SearchText.objects.exists()
    assert LedgerEntry.objects.filter(turn_id=turn.id).exists()


def test_a_conversation_being_answered_is_stopped_before_it_is_deleted(alice: User) -> None:
    turn = start(alice, claim=("r", 20)).turn
    with pytest.raises(ConflictError, match="still being written"):
        services.conversation_delete(owner=alice, conversation_id=turn.conversation_id)
    turn.refresh_from_db()
    assert turn.stop_requested
    assert Conversation.objects.exists()


@pytest.mark.parametrize("count", [2, 40])
def test_reads_for_a_page_take_the_same_number_of_queries_however_much_there_is(count: int, alice: User) -> None:
    for n in range(count):
        turn = start(alice, f"c{n}", claim=("r", 20)).turn
        finish(turn)
    for n in range(count):
        more = start(alice, f"q{n}", conversation=turn.conversation_id, claim=("r", 20)).turn
        finish(more)
    conversation = Conversation.objects.get(id=turn.conversation_id)
    with CaptureQueriesContext(connection) as queries:
        groups, _ = pages.sidebar(alice)
        turns = pages.opening_turns(conversation)
        selectors.me(alice)
        search(alice, "q")
    assert len(queries) == 5
    assert sum(len(rows) for _, rows in groups) == min(count, pages.OPENING_CONVERSATIONS)
    assert [turn["position"] for turn in turns] == list(range(1, count + 2))[-pages.OPENING_POSITIONS :]


def test_older_turns_come_page_by_page_or_back_to_a_place(alice: User) -> None:
    turn = start(alice, "q1", claim=("r", 20)).turn
    finish(turn)
    for n in range(2, 74):
        finish(start(alice, f"q{n}", conversation=turn.conversation_id, claim=("r", 20)).turn)
    conversation = Conversation.objects.get(id=turn.conversation_id)
    first = pages.opening_turns(conversation)[0]["position"]
    page = pages.turns_before(conversation, first, None)
    assert [t["question"] for t in page] == [f"q{n}" for n in range(first - 50, first)]
    rest = pages.turns_before(conversation, page[0]["position"], 3)
    assert [t["question"] for t in rest] == [f"q{n}" for n in range(3, page[0]["position"])]
    assert [t["position"] for t in pages.turns_before(conversation, 3, None)] == [1, 2]
    assert pages.turns_before(conversation, 1, None) == []


def test_the_side_bar_lists_every_conversation_once(alice: User, bob: User) -> None:
    start(bob, "not hers", claim=("r", 20))
    now = timezone.now()
    Conversation.objects.bulk_create(
        Conversation(owner=alice, title=f"t{n}", updated_at=now - timedelta(days=n // 3)) for n in range(100)
    )  # three at each moment
    seen, mark = [], ""
    while True:
        groups, mark = pages.sidebar(alice, mark, 7)
        seen += [row["title"] for _, rows in groups for row in rows]
        if not mark:
            break
    assert sorted(seen) == sorted(f"t{n}" for n in range(100))
    days = [int(title[1:]) // 3 for title in seen]
    assert days == sorted(days)


@pytest.mark.parametrize("mark", ["x", "2026-01-01,nothing", "2026-01-01T00:00:00," + str(uuid.UUID(int=1)), ","])
def test_a_mark_that_is_none_is_refused_in_words(mark: str, alice: User) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        pages.sidebar(alice, mark)


def test_the_side_bar_groups_by_age(alice: User) -> None:
    ages = {"Today": 0, "Yesterday": 1, "Last 7 days": 4, "Last 30 days": 20, "Older": 400}
    for name, days in ages.items():
        turn = start(alice, name, claim=("r", 20)).turn
        Conversation.objects.filter(id=turn.conversation_id).update(updated_at=timezone.now() - timedelta(days=days))
    assert [(heading, rows[0]["title"]) for heading, rows in pages.sidebar(alice)[0]] == [(n, n) for n in ages]


@pytest.mark.django_db(transaction=True)
def test_many_people_start_and_end_turns_at_once(db: None) -> None:
    owners = [User.objects.create_user(f"u{n}") for n in range(10)]
    faults: list[BaseException] = []

    def work(owner: User) -> None:
        try:
            for _ in range(3):
                turn = start(owner, claim=("r", 20)).turn
                services.events_append(turn_id=turn.id, fence=1, events=[{"seq": 1, "kind": "delta", "text": "x"}])
                assert finish(turn) is not None
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            faults.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(owner,)) for owner in owners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert Turn.objects.filter(state="ended").count() == 30


@pytest.mark.django_db(transaction=True)
def test_the_same_send_from_many_threads_makes_one_turn(db: None) -> None:
    owner = User.objects.create_user("double")
    message = TurnStart(uuid.uuid4(), uuid.uuid4(), "once", "auto", "", campus_only=False)
    results: list[Any] = []

    def send() -> None:
        try:
            results.append(services.turn_start(owner=owner, message=message).turn.id)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            results.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(results) == {Turn.objects.get().id}
