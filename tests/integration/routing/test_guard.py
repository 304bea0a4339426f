"""Lines of the ledger cannot be changed or deleted, by the ORM or by SQL. Runs on SQLite and on PostgreSQL."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, transaction

from routing import ledger
from routing.models import Budget, LedgerEntry
from routing.types import Price, Usage
from tests.integration.routing.conftest import NewCall

pytestmark = [pytest.mark.data, pytest.mark.django_db]


@pytest.fixture
def line(new_call: NewCall) -> LedgerEntry:
    return ledger.settle(call=new_call(), usage=Usage(prompt=3, cost_micro=5), price=Price(input=1))


def test_a_line_cannot_be_saved_again(line: LedgerEntry) -> None:
    line.amount_micro = 0
    with pytest.raises(TypeError, match="never changed"):
        line.save()
    with pytest.raises(TypeError, match="never deleted"):
        line.delete()
    line.refresh_from_db()
    assert line.amount_micro == 5


def test_the_database_refuses_updates_and_deletions(line: LedgerEntry) -> None:
    for act in (lambda: LedgerEntry.objects.update(amount_micro=0), lambda: LedgerEntry.objects.all().delete()):
        with pytest.raises(IntegrityError, match="only ever added to"), transaction.atomic():
            act()
    line.refresh_from_db()
    assert line.amount_micro == 5


@pytest.mark.parametrize("sql", ["UPDATE routing_ledgerentry SET note = 'x'", "DELETE FROM routing_ledgerentry"])
def test_plain_sql_is_refused_too(line: LedgerEntry, sql: str) -> None:
    with pytest.raises(IntegrityError, match="only ever added to"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(sql)
    assert LedgerEntry.objects.filter(pk=line.pk, note=line.note).exists()


@pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL has TRUNCATE")
def test_truncating_is_refused(line: LedgerEntry) -> None:
    with pytest.raises(IntegrityError, match="only ever added to"), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("TRUNCATE routing_ledgerentry")
    assert LedgerEntry.objects.filter(pk=line.pk).exists()


def test_a_call_has_one_line_of_each_kind(line: LedgerEntry) -> None:
    copy = LedgerEntry.objects.get(pk=line.pk)
    copy.pk, copy._state.adding = None, True
    with pytest.raises(IntegrityError), transaction.atomic():
        copy.save()


@pytest.mark.parametrize("column", ["limit_micro", "spent_micro", "reserved_micro"])
def test_no_amount_of_a_budget_goes_below_zero(new_call: NewCall, column: str) -> None:
    ledger.reserve(call=new_call(), upper_micro=5)
    with pytest.raises(IntegrityError), transaction.atomic():
        Budget.objects.update(**{column: -1})
    assert {row.reserved_micro for row in Budget.objects.all()} == {5}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("round_number", [1, 2])
def test_the_guard_is_up_again_after_tables_were_emptied(line: LedgerEntry, round_number: int) -> None:
    """The end of a transactional test empties the ledger with the guard lifted; the next test finds it in place."""
    assert LedgerEntry.objects.count() == 1
    with pytest.raises(IntegrityError, match="only ever added to"):
        LedgerEntry.objects.update(amount_micro=0)
