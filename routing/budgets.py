"""Budget rows: find or make them, hold, give back, spend. Only `routing.ledger` calls this, inside its transactions.

Rows are always moved in the order user, platform, so that two calls never wait for each other in a circle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from django.conf import settings
from django.db.models import F, Q
from django.utils import timezone

from routing.models import Budget, Scope
from routing.money import format_usd_exact, usd_to_micro
from routing.periods import Period, midnight, next_start, period_start
from stream_site.errors import BudgetError


@dataclass(frozen=True)
class BudgetKey:
    """Names one budget row. `limit_micro` is the limit it gets when it is made."""

    scope: Scope
    scope_id: str
    period: Period
    period_start: date
    limit_micro: int

    def as_filter(self) -> dict[str, str | date]:
        return {
            "scope": self.scope.value,
            "scope_id": self.scope_id,
            "period": self.period.value,
            "period_start": self.period_start,
        }


def keys_for(user_id: int, at: datetime) -> tuple[BudgetKey, ...]:
    """Return the budgets that a call of this user at this time counts against, in locking order."""
    month = period_start(Period.MONTH, at, timezone.get_default_timezone())
    own, everyone = usd_to_micro(settings.USER_MONTHLY_BUDGET_USD), usd_to_micro(settings.PLATFORM_MONTHLY_BUDGET_USD)
    return (
        BudgetKey(Scope.USER, str(user_id), Period.MONTH, month, own),
        BudgetKey(Scope.PLATFORM, "", Period.MONTH, month, everyone),
    )


def rows_for(user_id: int, at: datetime) -> list[Budget]:
    """Return these budgets, made with the limits of the settings if this is their first use."""
    keys = keys_for(user_id, at)
    wanted = Q()
    for key in keys:
        wanted |= Q(**key.as_filter())
    found = {budget.scope: budget for budget in Budget.objects.filter(wanted)}
    return [found.get(key.scope.value) or _made(key) for key in keys]


def _made(key: BudgetKey) -> Budget:
    budget, _ = Budget.objects.get_or_create(**key.as_filter(), defaults={"limit_micro": key.limit_micro})
    return budget


def hold(user_id: int, amount_micro: int, at: datetime) -> list[int]:
    """Reserve `amount_micro` in every budget of the user and return their ids. Raises `BudgetError` in words.

    The check and the reservation are one UPDATE: of calls that arrive together, only those that fit get through.
    The caller's transaction takes back what was held in one budget when the next one refuses.
    """
    rows = rows_for(user_id, at)
    for budget in rows:
        fits = Q(limit_micro__gte=F("spent_micro") + F("reserved_micro") + amount_micro)
        held = Budget.objects.filter(fits, pk=budget.pk).update(reserved_micro=F("reserved_micro") + amount_micro)
        if not held:
            budget.refresh_from_db()
            raise refusal(budget, amount_micro, at)
    return [budget.pk for budget in rows]


def move(budget_ids: Sequence[int], *, reserved: int = 0, spent: int = 0) -> None:
    """Add to what each of these budgets has reserved and spent, whatever the limit says."""
    if reserved or spent:
        for pk in budget_ids:
            Budget.objects.filter(pk=pk).update(
                reserved_micro=F("reserved_micro") + reserved, spent_micro=F("spent_micro") + spent
            )


def resets_on(budget: Budget) -> date | None:
    """Return the day the budget starts anew, or None if it never does."""
    return next_start(Period(budget.period), budget.period_start)


def refusal(budget: Budget, amount_micro: int, at: datetime) -> BudgetError:
    """Say why `amount_micro` does not fit, what is open instead, and when the budget starts anew."""
    own = budget.scope == Scope.USER
    whose, whom = ("Your", "your PI") if own else ("The platform's", "an administrator")
    kind = {Period.MONTH: "monthly budget", Period.DAY: "daily budget", Period.TOTAL: "budget"}[Period(budget.period)]
    held = f" ({format_usd_exact(budget.reserved_micro)} is held for calls under way)" if budget.reserved_micro else ""
    happened = (
        f"{whose} {kind} of {format_usd_exact(budget.limit_micro)} has {format_usd_exact(budget.left_micro)} left{held}"
        f", and this call can cost up to {format_usd_exact(amount_micro)}."
    )
    todo = f"Free tiers stay open: pick one of them, shorten the question, or ask {whom} for more."
    anew = resets_on(budget)
    if anew is None:
        return BudgetError(happened, todo=todo)
    zone = timezone.get_default_timezone()
    todo += f" The budget starts anew on {anew.day} {anew:%B %Y} ({timezone.get_default_timezone_name()})."
    wait_s = (midnight(anew, zone) - at).total_seconds()
    return BudgetError(happened, todo=todo, retry_after_s=max(0.0, wait_s))
