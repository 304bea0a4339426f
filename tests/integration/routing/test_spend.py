"""Reads of spend, the check of the books and the admin. Runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from datetime import UTC, date, datetime
from io import StringIO
from zoneinfo import ZoneInfo

import pytest
from django.contrib.admin import site
from django.core.management import CommandError, call_command
from django.test import Client, RequestFactory
from pytest_django import DjangoAssertNumQueries, Settings

from accounts.models import User
from routing import ledger
from routing.admin import BudgetAdmin, BudgetForm
from routing.ledger_check import verify
from routing.models import Budget, LedgerEntry, Scope
from routing.spend import BudgetState, budget_state, spend_by_day
from routing.types import Price, Usage
from tests.integration.routing.conftest import NewCall

pytestmark = [pytest.mark.data, pytest.mark.django_db]

PRICE = Price(input=1_000_000)
NOVEMBER = datetime(2026, 11, 15, 12, tzinfo=UTC)


def spend(call: ledger.CallRef, micro: int, at: datetime) -> None:
    ledger.settle(call=call, usage=Usage(prompt=micro), price=PRICE, at=at)


def test_the_state_of_a_budget_that_was_never_used(settings: Settings, alice: User) -> None:
    settings.USER_MONTHLY_BUDGET_USD = 20
    assert budget_state(alice.pk, NOVEMBER) == BudgetState(20_000_000, 0, 0, 20_000_000, date(2026, 12, 1))


def test_the_state_of_a_budget_in_one_query(
    alice: User, new_call: NewCall, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    spend(new_call(), 300, NOVEMBER)
    ledger.reserve(call=new_call(), upper_micro=700, at=NOVEMBER)
    with django_assert_num_queries(1):
        state = budget_state(alice.pk, NOVEMBER)
    assert (state.spent_micro, state.reserved_micro, state.left_micro) == (300, 700, state.limit_micro - 1_000)


@pytest.mark.parametrize(
    ("zone", "days"),
    [
        ("Asia/Kolkata", {date(2026, 11, 30): 11}),
        ("America/Chicago", {date(2026, 11, 29): 11}),
        ("UTC", {date(2026, 11, 29): 1, date(2026, 11, 30): 10}),
    ],
)
def test_each_line_is_in_one_local_day(
    alice: User, new_call: NewCall, zone: str, days: dict[date, int], django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    """A-COST-02, A-COST-03, A-COST-06: a view of one day has that local day's lines, and the days add up."""
    spend(new_call(), 1, datetime(2026, 11, 29, 23, 30, tzinfo=UTC))
    spend(new_call(), 10, datetime(2026, 11, 30, 0, 30, tzinfo=UTC))
    picked = [date(2026, 11, day) for day in (28, 29, 30)]
    info = ZoneInfo(zone)
    with django_assert_num_queries(1):
        whole = spend_by_day(user_id=alice.pk, first=picked[0], last=picked[-1], zone=info)
    single: dict[date, int] = {}
    for day in picked:
        single |= spend_by_day(user_id=alice.pk, first=day, last=day, zone=info)
    assert whole == single == days


def test_spend_is_of_one_person_and_with_its_corrections(alice: User, new_call: NewCall) -> None:
    bob, call = User.objects.create_user("bob"), new_call()
    spend(call, 500, NOVEMBER)
    spend(new_call(user_id=bob.pk), 9, NOVEMBER)
    ledger.correct(call=call, actual_micro=450, note="", at=NOVEMBER)
    day = NOVEMBER.date()
    assert spend_by_day(user_id=alice.pk, first=day, last=day, zone=UTC) == {day: 450}


def test_the_check_finds_what_was_moved_behind_the_ledgers_back(new_call: NewCall) -> None:
    spend(new_call(), 300, NOVEMBER)
    ledger.reserve(call=new_call(), upper_micro=700, at=NOVEMBER)
    call_command("ledger_verify", stdout=StringIO())
    Budget.objects.filter(scope=Scope.USER).update(spent_micro=299, reserved_micro=0)
    found = {(d.field, d.budget_micro, d.ledger_micro) for d in verify()}
    assert found == {("spent", 299, 300), ("reserved", 0, 700)}
    out = StringIO()
    with pytest.raises(CommandError, match="2 differences"):
        call_command("ledger_verify", stdout=out)
    assert "spent is 299 micro-dollars, and the ledger's lines come to 300." in out.getvalue()


def test_changing_a_limit_leaves_what_calls_moved_meanwhile(admin_user: User, new_call: NewCall) -> None:
    spend(new_call(), 300, NOVEMBER)
    opened = Budget.objects.get(scope=Scope.USER)
    spend(new_call(), 50, NOVEMBER)
    form = BudgetForm({"limit_usd": "3.41"}, instance=opened)
    assert form.is_valid()
    request = RequestFactory().post("/")
    request.user = admin_user
    BudgetAdmin(Budget, site).save_model(request, opened, form, change=True)
    stored = Budget.objects.get(pk=opened.pk)
    assert (stored.limit_micro, stored.spent_micro) == (3_410_000, 350)


def test_the_admin_shows_the_ledger_and_changes_only_limits(admin_client: Client, new_call: NewCall) -> None:
    spend(new_call(), 123_456, NOVEMBER)
    User.objects.filter(username="alice").delete()
    line, budget = LedgerEntry.objects.get(), Budget.objects.get(scope=Scope.USER)
    assert b"$0.1235" in admin_client.get("/admin/routing/ledgerentry/").content
    assert admin_client.get(f"/admin/routing/ledgerentry/{line.pk}/change/").status_code == 200
    assert admin_client.post(f"/admin/routing/ledgerentry/{line.pk}/change/", {"note": "x"}).status_code == 403
    assert admin_client.post(f"/admin/routing/ledgerentry/{line.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin_client.get("/admin/routing/budget/add/").status_code == 403
    page = f"/admin/routing/budget/{budget.pk}/change/"
    assert b"$0.123456" in admin_client.get(page).content
    assert admin_client.post(page, {"limit_usd": "-1"}).status_code == 200  # shown again with its error
    assert admin_client.post(page, {"limit_usd": "7.5", "spent_micro": "0"}).status_code == 302
    budget.refresh_from_db()
    assert (budget.limit_micro, budget.spent_micro) == (7_500_000, 123_456)
