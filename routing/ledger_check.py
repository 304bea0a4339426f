"""Compare every budget with the ledger."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import QuerySet, Sum

from routing.ledger import all_open_reservations
from routing.models import Budget, EntryKind, LedgerEntry


@dataclass(frozen=True)
class Difference:
    """A budget that says something else than the ledger. `field` is "spent" or "reserved"."""

    budget_id: int
    budget: str
    field: str
    budget_micro: int
    ledger_micro: int

    def __str__(self) -> str:
        return (
            f"{self.budget}: {self.field} is {self.budget_micro} micro-dollars, "
            f"and the ledger's lines come to {self.ledger_micro}."
        )


def verify() -> list[Difference]:
    """Return every difference between budgets and ledger; none is the only right answer.

    Runs beside live traffic: what differs at the first look is looked at again with its budgets locked, when
    every line that moved them is visible and no other can.
    """
    suspects = {difference.budget_id for difference in _differences(Budget.objects.all())}
    if not suspects:
        return []
    with transaction.atomic():
        # user before platform, the order in which calls lock them
        locked = Budget.objects.filter(pk__in=suspects).order_by("-scope", "pk").select_for_update()
        return _differences(locked)


def _differences(budgets: QuerySet[Budget]) -> list[Difference]:
    rows = list(budgets)
    spent = _sums(LedgerEntry.objects.filter(kind__in=(EntryKind.SETTLE, EntryKind.CORRECT)))
    reserved = _sums(all_open_reservations())
    found = []
    for row in rows:
        for field, stored, counted in (
            ("spent", row.spent_micro, spent[row.pk]),
            ("reserved", row.reserved_micro, reserved[row.pk]),
        ):
            if stored != counted:
                found.append(Difference(row.pk, str(row), field, stored, counted))
    return found


def _sums(lines: QuerySet[LedgerEntry]) -> Counter[int]:
    """Return the sum of these lines by budget id. The database groups: lines of one month have few sets of budgets."""
    sums: Counter[int] = Counter()
    groups: Any = lines.order_by().values_list("budget_ids").annotate(Sum("amount_micro"))
    for budget_ids, amount in groups:
        for pk in budget_ids:
            sums[pk] += int(amount)
    return sums
