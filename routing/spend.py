"""Reads of spend. Every function takes the user: nothing of another person is ever reachable."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, tzinfo
from typing import Any

from django.db.models import Sum
from django.db.models.functions import TruncDate
from django.utils import timezone

from routing.budgets import keys_for
from routing.models import Budget, EntryKind, LedgerEntry
from routing.periods import day_range, next_start


@dataclass(frozen=True)
class BudgetState:
    """A user's budget now. `resets_on` is the first day of the next period, in the reporting zone."""

    limit_micro: int
    spent_micro: int
    reserved_micro: int
    left_micro: int
    resets_on: date | None


def budget_state(user_id: int, at: datetime | None = None) -> BudgetState:
    """Return this month's budget of a user. One query; a budget that was never used is what the settings give."""
    key = keys_for(user_id, at or timezone.now())[0]
    row = Budget.objects.filter(**key.as_filter()).first() or Budget(limit_micro=key.limit_micro)
    return BudgetState(
        limit_micro=row.limit_micro,
        spent_micro=row.spent_micro,
        reserved_micro=row.reserved_micro,
        left_micro=row.left_micro,
        resets_on=next_start(key.period, key.period_start),
    )


def spend_by_day(*, user_id: int, first: date, last: date, zone: tzinfo) -> dict[date, int]:
    """Return micro-dollars by local day of `zone`, `first` and `last` included, without the days that have no lines."""
    start, until = day_range(first, last, zone)
    lines = LedgerEntry.objects.filter(
        user_id=user_id,
        kind__in=(EntryKind.SETTLE, EntryKind.CORRECT),
        created_at__gte=start,
        created_at__lt=until,
    )
    days: Any = lines.order_by().values_list(TruncDate("created_at", tzinfo=zone)).annotate(Sum("amount_micro"))
    return {day: int(amount) for day, amount in days}
