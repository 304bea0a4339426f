"""Money: budgets, and the ledger that is only ever added to. Amounts are whole US micro-dollars.

`routing.ledger` writes both, in one transaction each; nothing else may.
"""

from __future__ import annotations

from typing import Any, NoReturn

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone

from routing.hpc_models import HpcEndpoint, HpcKey, HpcMailbox
from routing.periods import Period
from routing.pricing import CostSource
from routing.types import Tier

__all__ = ["Budget", "EntryKind", "HpcEndpoint", "HpcKey", "HpcMailbox", "LedgerEntry", "Scope"]


class Scope(models.TextChoices):
    """Whose budget it is. `scope_id` is the user's id as text, or empty for the platform."""

    USER = "user"
    PLATFORM = "platform"


class Budget(models.Model):
    """What one scope may spend in one period. Made on first use; `reserved_micro` is held for calls under way."""

    scope = models.CharField(max_length=16, choices=Scope)
    scope_id = models.CharField(max_length=64, blank=True, default="")
    period = models.CharField(max_length=8, choices=[(p.value, p.value) for p in Period])
    period_start = models.DateField(help_text="The first day, in the reporting time zone.")
    limit_micro = models.BigIntegerField()
    spent_micro = models.BigIntegerField(default=0)
    reserved_micro = models.BigIntegerField(default=0)

    class Meta:
        ordering = ["-period_start", "scope", "scope_id"]
        constraints = [
            models.UniqueConstraint(fields=["scope", "scope_id", "period", "period_start"], name="budget_once"),
            models.CheckConstraint(condition=Q(limit_micro__gte=0), name="budget_limit_not_negative"),
            models.CheckConstraint(condition=Q(spent_micro__gte=0), name="budget_spent_not_negative"),
            models.CheckConstraint(condition=Q(reserved_micro__gte=0), name="budget_reserved_not_negative"),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.scope_id} {self.period} from {self.period_start}".replace("  ", " ")

    @property
    def left_micro(self) -> int:
        return max(0, self.limit_micro - self.spent_micro - self.reserved_micro)


class EntryKind(models.TextChoices):
    RESERVE = "reserve", "reserved before the call"
    SETTLE = "settle", "what the call cost"
    RELEASE = "release", "reservation given back"
    CORRECT = "correct", "correction of what the call cost"


class LedgerEntry(models.Model):
    """One line of the ledger. Lines are never changed and never deleted: `save` and `delete` refuse, and so do
    database triggers (migration 0002). A mistake is righted by a line of kind `correct`.

    `turn_id` is no foreign key: conversations may be deleted. `user` is one without a database constraint, and its
    number stays when the account is deleted; it is nullable only so that joins are outer joins and such lines are
    never lost from a list. `budget_ids` are the budgets that this line moved.
    """

    created_at = models.DateTimeField(default=timezone.now, editable=False)
    turn_id = models.UUIDField()
    attempt = models.PositiveSmallIntegerField()
    kind = models.CharField(max_length=8, choices=EntryKind)
    purpose = models.CharField(max_length=16, default="answer")
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.DO_NOTHING, null=True, db_constraint=False, related_name="ledger_entries"
    )
    tier = models.CharField(max_length=8, choices=[(t.value, t.label) for t in Tier])
    model = models.CharField(max_length=200)
    amount_micro = models.BigIntegerField()
    tokens_in = models.BigIntegerField(default=0)
    tokens_cached = models.BigIntegerField(default=0)
    tokens_out = models.BigIntegerField(default=0)
    tokens_reasoning = models.BigIntegerField(default=0)
    source = models.CharField(
        max_length=12, choices=[(s.value, s.value) for s in CostSource], default=CostSource.NONE.value
    )
    price = models.JSONField(null=True, help_text="The price that was applied, micro-dollars per million tokens.")
    generation_id = models.CharField(max_length=200, blank=True, default="")
    note = models.TextField(blank=True, default="")
    degraded = models.BooleanField(default=False, help_text="The amount is doubtful and waits for a correction.")
    budget_ids = models.JSONField(default=list)

    class Meta:
        ordering = ["-id"]
        verbose_name_plural = "ledger entries"
        constraints = [
            models.UniqueConstraint(fields=["turn_id", "attempt", "purpose", "kind"], name="ledger_once_per_call"),
        ]
        indexes = [
            models.Index(fields=["user", "created_at"], name="ledger_of_user"),
            models.Index(fields=["created_at"], condition=Q(kind="reserve"), name="ledger_reserves"),
            models.Index(fields=["created_at"], condition=Q(degraded=True), name="ledger_degraded"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} {self.amount_micro} for {self.turn_id}/{self.attempt} {self.purpose}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        if not self._state.adding:
            raise TypeError("A ledger entry is never changed. Add a correction.")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError("A ledger entry is never deleted. Add a correction.")
