"""The ledger's services, one action at a time. Runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, timedelta
from uuid import uuid4

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries, Settings

from accounts.models import User
from routing import ledger
from routing.ledger_check import verify
from routing.models import Budget, EntryKind, LedgerEntry, Scope
from routing.pricing import MOST_MICRO, upper_bound_micro
from routing.spend import budget_state
from routing.types import Price, Tier, Usage
from stream_site.errors import BudgetError, ConflictError, InputError
from tests.integration.routing.conftest import NewCall

pytestmark = [pytest.mark.data, pytest.mark.django_db]

PRICE = Price(input=1_000_000, output=2_000_000, cached=100_000)
USAGE = Usage(prompt=1_000, completion=500, cached=400, generation_id="gen-1")
COST = 600 + 40 + 1_000
JUST_BEFORE_MIDNIGHT = datetime(2026, 11, 30, 23, 59, 50, tzinfo=UTC)


@pytest.fixture(autouse=True)
def limits(settings: Settings) -> None:
    settings.USER_MONTHLY_BUDGET_USD = 0.01
    settings.PLATFORM_MONTHLY_BUDGET_USD = 1


@pytest.fixture(autouse=True)
def _ledger_agrees(db: None) -> object:
    """Whatever a test does, budgets and ledger agree at its end."""
    yield
    assert verify() == []


def budgets() -> dict[str, tuple[int, int]]:
    """(spent, reserved) by scope, of all periods."""
    return {row.scope: (row.spent_micro, row.reserved_micro) for row in Budget.objects.all()}


def test_reserve_holds_in_both_budgets(alice: User, new_call: NewCall) -> None:
    ledger.reserve(call=new_call(), upper_micro=4_000)
    assert budgets() == {Scope.USER: (0, 4_000), Scope.PLATFORM: (0, 4_000)}
    line = LedgerEntry.objects.get()
    assert (line.kind, line.amount_micro, line.user_id, line.source) == (EntryKind.RESERVE, 4_000, alice.pk, "none")
    assert sorted(line.budget_ids) == sorted(Budget.objects.values_list("pk", flat=True))


def test_reserving_nothing_touches_nothing(
    new_call: NewCall, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    call = new_call()
    with django_assert_num_queries(2):  # the savepoint
        ledger.reserve(call=call, upper_micro=0)
    assert not Budget.objects.exists()
    assert not LedgerEntry.objects.exists()


@pytest.mark.parametrize("upper", [-1, MOST_MICRO + 1])
def test_reserving_what_cannot_be_is_refused(new_call: NewCall, upper: int) -> None:
    with pytest.raises(ValueError, match="cannot be reserved"):
        ledger.reserve(call=new_call(), upper_micro=upper)


def test_reserving_again_holds_once(new_call: NewCall) -> None:
    call = new_call()
    for _ in range(3):
        ledger.reserve(call=call, upper_micro=4_000)
    assert budgets()[Scope.USER] == (0, 4_000)


def test_attempts_and_purposes_are_calls_of_their_own(new_call: NewCall) -> None:
    turn = uuid4()
    for attempt, purpose in ((1, "answer"), (2, "answer"), (1, "judge")):
        ledger.reserve(call=new_call(turn_id=turn, attempt=attempt, purpose=purpose), upper_micro=1_000)
    assert budgets()[Scope.USER] == (0, 3_000)


def test_settle_books_the_cost_and_gives_the_rest_back(new_call: NewCall) -> None:
    call = new_call()
    ledger.reserve(call=call, upper_micro=upper_bound_micro(PRICE, 1_000, 4_000))
    line = ledger.settle(call=call, usage=USAGE, price=PRICE, note="as usual")
    assert budgets() == {Scope.USER: (COST, 0), Scope.PLATFORM: (COST, 0)}
    assert (line.amount_micro, line.source, line.degraded, line.note) == (COST, "price_table", False, "as usual")
    assert (line.tokens_in, line.tokens_cached, line.tokens_out, line.generation_id) == (1_000, 400, 500, "gen-1")
    assert line.price == {"input": 1_000_000, "output": 2_000_000, "cached": 100_000, "reasoning": None}


def test_settling_again_returns_the_first_line(new_call: NewCall) -> None:
    call = new_call()
    ledger.reserve(call=call, upper_micro=5_000)
    first = ledger.settle(call=call, usage=USAGE, price=PRICE)
    again = ledger.settle(call=call, usage=Usage(prompt=9_999), price=PRICE)
    assert again == first
    assert budgets()[Scope.USER] == (COST, 0)


def test_a_free_call_books_nothing_but_its_tokens(new_call: NewCall) -> None:
    line = ledger.settle(call=new_call(tier=Tier.LOCAL, model="small"), usage=USAGE, price=Price())
    assert (line.amount_micro, line.source, line.tokens_in, line.tokens_out) == (0, "free", 1_000, 500)
    assert (line.budget_ids, line.degraded) == ([], False)
    assert not Budget.objects.exists()


def test_a_free_call_is_booked_when_the_budget_is_used_up(new_call: NewCall) -> None:
    ledger.reserve(call=new_call(), upper_micro=10_000)
    free = new_call(tier=Tier.HPC)
    ledger.reserve(call=free, upper_micro=0)
    assert ledger.settle(call=free, usage=USAGE, price=Price()).amount_micro == 0


def test_a_cost_without_reservation_is_booked(new_call: NewCall) -> None:
    ledger.settle(call=new_call(), usage=USAGE, price=PRICE)
    assert budgets() == {Scope.USER: (COST, 0), Scope.PLATFORM: (COST, 0)}


def test_a_cost_above_reservation_and_budget_is_booked_in_full(alice: User, new_call: NewCall) -> None:
    call = new_call()
    ledger.reserve(call=call, upper_micro=10)
    ledger.settle(call=call, usage=Usage(prompt=1, cost_micro=50_000), price=PRICE)
    assert budgets()[Scope.USER] == (50_000, 0)
    assert budget_state(alice.pk).left_micro == 0


def test_the_same_usage_books_the_same_whichever_way_it_came(new_call: NewCall) -> None:
    """A-COST-04, A-COST-05: a stream and a whole answer hand over one kind of usage, and the provider's cost wins."""
    reported = Usage(prompt=1_000, completion=500, cost_micro=1_234)
    reserved, unreserved = new_call(), new_call()
    ledger.reserve(call=reserved, upper_micro=3_000)
    lines = [ledger.settle(call=call, usage=reported, price=PRICE) for call in (reserved, unreserved)]
    assert [(line.amount_micro, line.source) for line in lines] == [(1_234, "provider")] * 2


@pytest.mark.parametrize("usage", [Usage(prompt=10, completion=10, cost_micro=0), Usage()])
def test_a_priced_model_at_no_cost_raises_an_alert(
    new_call: NewCall, caplog: pytest.LogCaptureFixture, usage: Usage
) -> None:
    """A-COST-05."""
    with caplog.at_level(logging.ERROR, "stream.ledger"):
        line = ledger.settle(call=new_call(), usage=usage, price=PRICE)
    assert (line.amount_micro, line.degraded) == (0, True)
    assert "was booked at 0" in caplog.text


@pytest.mark.parametrize(
    ("usage", "price"),
    [
        (USAGE, None),
        (USAGE, Price(input=-5)),
        (Usage(prompt=1.5), PRICE),  # type: ignore[arg-type]
        (Usage(cost_micro=10**40), PRICE),
        (Usage(prompt=10**40), PRICE),
    ],
)
def test_a_call_that_cannot_be_priced_still_gets_its_line(new_call: NewCall, usage: Usage, price: Price | None) -> None:
    """A-COST-08."""
    call = new_call()
    ledger.reserve(call=call, upper_micro=7_000)
    line = ledger.settle(call=call, usage=usage, price=price, note="by the engine")
    assert (line.amount_micro, line.degraded, line.source) == (7_000, True, "estimate")
    assert line.note.startswith("Could not be priced")
    assert line.note.endswith("by the engine")
    assert budgets()[Scope.USER] == (7_000, 0)


def test_garbage_counts_are_stored_as_what_fits(new_call: NewCall) -> None:
    line = ledger.settle(call=new_call(), usage=Usage(-5, 10**30, cached=10**30), price=Price())
    line.refresh_from_db()
    assert (line.tokens_in, line.tokens_cached, line.tokens_out) == (0, 10**15, 10**15)


def test_release_gives_all_back(new_call: NewCall) -> None:
    call = new_call()
    ledger.reserve(call=call, upper_micro=4_000)
    for _ in range(2):
        ledger.release(call=call, note="refused by the provider")
    assert budgets() == {Scope.USER: (0, 0), Scope.PLATFORM: (0, 0)}
    line = LedgerEntry.objects.get(kind=EntryKind.RELEASE)
    assert (line.amount_micro, line.note) == (-4_000, "refused by the provider")


def test_release_without_reservation_does_nothing(new_call: NewCall) -> None:
    ledger.release(call=new_call(), note="")
    assert not LedgerEntry.objects.exists()


def test_release_after_settling_changes_nothing(new_call: NewCall) -> None:
    call = new_call()
    ledger.reserve(call=call, upper_micro=4_000)
    ledger.settle(call=call, usage=USAGE, price=PRICE)
    ledger.release(call=call, note="late")
    assert budgets()[Scope.USER] == (COST, 0)


def test_a_cost_that_comes_after_the_release_is_booked(new_call: NewCall) -> None:
    call = new_call()
    ledger.reserve(call=call, upper_micro=4_000)
    ledger.release(call=call, note="")
    ledger.settle(call=call, usage=USAGE, price=PRICE)
    assert budgets()[Scope.USER] == (COST, 0)


@pytest.mark.parametrize("end", ["settle", "release"])
def test_a_finished_call_cannot_be_reserved_again(new_call: NewCall, end: str) -> None:
    call = new_call()
    ledger.reserve(call=call, upper_micro=4_000)
    if end == "settle":
        ledger.settle(call=call, usage=USAGE, price=PRICE)
    else:
        ledger.release(call=call, note="")
    with pytest.raises(ConflictError, match="booked before"):
        ledger.reserve(call=call, upper_micro=4_000)
    assert budgets()[Scope.USER][1] == 0


def test_a_correction_rights_a_degraded_line(new_call: NewCall) -> None:
    call = new_call()
    ledger.reserve(call=call, upper_micro=7_000)
    ledger.settle(call=call, usage=USAGE, price=None)
    assert ledger.correct(call=call, actual_micro=COST, note="from the provider's list").amount_micro == COST - 7_000
    assert budgets() == {Scope.USER: (COST, 0), Scope.PLATFORM: (COST, 0)}
    with pytest.raises(ConflictError, match="corrected before"):
        ledger.correct(call=call, actual_micro=0, note="")


def test_a_correction_of_a_call_booked_at_nothing_finds_its_budgets(new_call: NewCall) -> None:
    call = new_call()
    ledger.settle(call=call, usage=Usage(), price=PRICE)
    ledger.correct(call=call, actual_micro=900, note="")
    assert budgets() == {Scope.USER: (900, 0), Scope.PLATFORM: (900, 0)}


def test_what_was_not_settled_cannot_be_corrected(new_call: NewCall) -> None:
    with pytest.raises(InputError, match="not settled"):
        ledger.correct(call=new_call(), actual_micro=1, note="")
    with pytest.raises(ValueError, match="cannot cost"):
        ledger.correct(call=new_call(), actual_micro=-1, note="")


def test_a_refusal_says_how_much_until_when_and_what_stays_open(alice: User, new_call: NewCall) -> None:
    ledger.reserve(call=new_call(), upper_micro=8_000, at=JUST_BEFORE_MIDNIGHT)
    with pytest.raises(BudgetError) as refused:
        ledger.reserve(call=new_call(), upper_micro=2_001, at=JUST_BEFORE_MIDNIGHT)
    error = refused.value
    assert error.happened == (
        "Your monthly budget of $0.01 has $0.002 left ($0.008 is held for calls under way), "
        "and this call can cost up to $0.002001."
    )
    assert "Free tiers stay open" in error.todo
    assert "1 December 2026 (UTC)" in error.todo
    assert error.retry_after_s == 10
    assert budgets() == {Scope.USER: (0, 8_000), Scope.PLATFORM: (0, 8_000)}


def test_the_platforms_budget_refuses_too_and_nothing_is_held(settings: Settings, new_call: NewCall) -> None:
    settings.PLATFORM_MONTHLY_BUDGET_USD = 0.001
    with pytest.raises(BudgetError, match=r"The platform's monthly budget of \$0\.001 has \$0\.001 left, and"):
        ledger.reserve(call=new_call(), upper_micro=2_000)
    assert not Budget.objects.exists()  # taken back with the transaction
    assert not LedgerEntry.objects.exists()


def test_exactly_what_is_left_fits(new_call: NewCall) -> None:
    ledger.reserve(call=new_call(), upper_micro=10_000)
    with pytest.raises(BudgetError):
        ledger.reserve(call=new_call(), upper_micro=1)


def test_one_persons_budget_is_not_anothers(new_call: NewCall) -> None:
    bob = User.objects.create_user("bob")
    ledger.reserve(call=new_call(), upper_micro=10_000)
    ledger.reserve(call=new_call(user_id=bob.pk), upper_micro=10_000)
    assert budget_state(bob.pk).reserved_micro == 10_000


def test_a_call_over_the_end_of_the_month_is_settled_where_it_was_reserved(new_call: NewCall) -> None:
    call, later = new_call(), JUST_BEFORE_MIDNIGHT + timedelta(minutes=1)
    ledger.reserve(call=call, upper_micro=4_000, at=JUST_BEFORE_MIDNIGHT)
    ledger.settle(call=call, usage=USAGE, price=PRICE, at=later)
    ledger.reserve(call=new_call(), upper_micro=10_000, at=later)
    own = Budget.objects.filter(scope=Scope.USER)
    assert {row.period_start: (row.spent_micro, row.reserved_micro) for row in own} == {
        date(2026, 11, 1): (COST, 0),
        date(2026, 12, 1): (0, 10_000),
    }


def test_the_month_is_the_month_of_the_reporting_zone(settings: Settings, new_call: NewCall) -> None:
    settings.TIME_ZONE = "Asia/Kolkata"
    ledger.reserve(call=new_call(), upper_micro=1, at=datetime(2026, 11, 30, 19, 0, tzinfo=UTC))
    assert {row.period_start for row in Budget.objects.all()} == {date(2026, 12, 1)}


def test_open_reservations_are_those_nothing_closed(new_call: NewCall) -> None:
    old, young, settled, released = (new_call() for _ in range(4))
    now = timezone.now()
    for call in (old, settled, released):
        ledger.reserve(call=call, upper_micro=2_000, at=now - timedelta(hours=2))
    ledger.settle(call=settled, usage=USAGE, price=PRICE)
    ledger.release(call=released, note="")
    ledger.reserve(call=young, upper_micro=2_000, at=now)
    found = ledger.open_reservations(older_than=timedelta(hours=1), at=now)
    assert [line.turn_id for line in found] == [old.turn_id]


def test_abandoned_calls_are_settled_by_what_is_known(new_call: NewCall) -> None:
    known, unknown = new_call(), new_call()
    long_ago = timezone.now() - timedelta(hours=2)
    for call in (known, unknown):
        ledger.reserve(call=call, upper_micro=4_000, at=long_ago)

    def estimate(call: ledger.CallRef) -> tuple[Usage, Price] | None:
        return (Usage(prompt=100, completion=50, estimated=True), PRICE) if call == known else None

    lines = ledger.settle_abandoned(older_than=timedelta(hours=1), estimate=estimate)
    assert [(line.turn_id, line.amount_micro, line.source, line.degraded) for line in lines] == [
        (known.turn_id, 200, "estimate", False),
        (unknown.turn_id, 4_000, "estimate", True),
    ]
    assert ledger.settle_abandoned(older_than=timedelta(hours=1), estimate=estimate) == []


def test_the_ledger_outlives_the_account(alice: User, new_call: NewCall) -> None:
    number, call = alice.pk, new_call()
    ledger.reserve(call=call, upper_micro=4_000)
    alice.delete()
    ledger.settle(call=call, usage=USAGE, price=PRICE)
    lines = LedgerEntry.objects.select_related("user").order_by("id")
    assert [(line.user_id, line.kind) for line in lines] == [(number, "reserve"), (number, "settle")]


def test_reserving_and_settling_take_a_fixed_number_of_queries(
    new_call: NewCall, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    ledger.reserve(call=new_call(), upper_micro=10)  # makes the budgets
    call = new_call()
    with django_assert_max_num_queries(8):
        ledger.reserve(call=call, upper_micro=10)
    with django_assert_max_num_queries(7):
        ledger.settle(call=call, usage=USAGE, price=PRICE)
