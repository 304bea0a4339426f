"""Random sequences of reserve, settle, release and correct, against a model of a few lines. Runs on both databases."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from pytest_django import Settings

from routing import ledger
from routing.ledger import CallRef
from routing.ledger_check import verify
from routing.models import Budget, Scope
from routing.types import Price, Tier, Usage
from stream_site.errors import BudgetError, ConflictError, InputError

USERS = (101, 102)
USER_LIMIT, PLATFORM_LIMIT = 1_000, 1_500
PRICE = Price(input=1_000_000, output=1_000_000)

calls = st.integers(0, 7)
amounts = st.integers(1, 700)


@dataclass
class Told:
    """What the model knows of one call."""

    user: int
    turn: UUID
    reserved: int | None = None
    released: bool = False
    spent: int | None = None
    corrected: bool = False

    @property
    def held(self) -> int:
        return self.reserved if self.reserved and not self.released and self.spent is None else 0


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.around = transaction.atomic()
        self.around.__enter__()
        self.told = [Told(USERS[n % 2], uuid4()) for n in range(8)]

    def teardown(self) -> None:
        differences = verify()
        transaction.set_rollback(True)
        self.around.__exit__(None, None, None)
        assert differences == []

    def taken(self, user: int | None = None) -> int:
        """Spent plus held, of one user or of everyone."""
        return sum(t.held + (t.spent or 0) for t in self.told if user in (None, t.user))

    def ref(self, told: Told) -> CallRef:
        return CallRef(told.turn, 1, told.user, Tier.CLOUD, "big")

    @rule(n=calls, amount=amounts)
    def reserve(self, n: int, amount: int) -> None:
        told = self.told[n]
        if told.released or told.spent is not None:
            with pytest.raises(ConflictError):
                ledger.reserve(call=self.ref(told), upper_micro=amount)
        elif told.reserved is not None:
            ledger.reserve(call=self.ref(told), upper_micro=amount)
        elif self.taken(told.user) + amount > USER_LIMIT or self.taken() + amount > PLATFORM_LIMIT:
            with pytest.raises(BudgetError):
                ledger.reserve(call=self.ref(told), upper_micro=amount)
        else:
            ledger.reserve(call=self.ref(told), upper_micro=amount)
            told.reserved = amount

    @rule(n=calls, tokens=amounts)
    def settle(self, n: int, tokens: int) -> None:
        told = self.told[n]
        told.spent = tokens if told.spent is None else told.spent
        ledger.settle(call=self.ref(told), usage=Usage(prompt=tokens), price=PRICE)

    @rule(n=calls)
    def settle_without_a_price(self, n: int) -> None:
        told = self.told[n]
        told.spent = (told.reserved or 0) if told.spent is None else told.spent
        ledger.settle(call=self.ref(told), usage=Usage(), price=None)

    @rule(n=calls)
    def release(self, n: int) -> None:
        told = self.told[n]
        told.released = told.released or (told.reserved is not None and told.spent is None)
        ledger.release(call=self.ref(told), note="")

    @rule(n=calls, amount=amounts)
    def correct(self, n: int, amount: int) -> None:
        told = self.told[n]
        if told.spent is None or told.corrected:
            with pytest.raises(InputError):  # ConflictError is one
                ledger.correct(call=self.ref(told), actual_micro=amount, note="")
        else:
            ledger.correct(call=self.ref(told), actual_micro=amount, note="")
            told.spent, told.corrected = amount, True

    @invariant()
    def budgets_are_what_the_model_says(self) -> None:
        stored = {(row.scope, row.scope_id): (row.spent_micro, row.reserved_micro) for row in Budget.objects.all()}
        for user in USERS:
            mine = [t for t in self.told if t.user == user]
            expected = (sum(t.spent or 0 for t in mine), sum(t.held for t in mine))
            assert stored.get((Scope.USER, str(user)), (0, 0)) == expected
        expected = (sum(t.spent or 0 for t in self.told), sum(t.held for t in self.told))
        assert stored.get((Scope.PLATFORM, ""), (0, 0)) == expected


@pytest.mark.data
@pytest.mark.django_db
def test_any_sequence_of_services_keeps_the_books(settings: Settings) -> None:
    settings.USER_MONTHLY_BUDGET_USD = USER_LIMIT / 1_000_000
    settings.PLATFORM_MONTHLY_BUDGET_USD = PLATFORM_LIMIT / 1_000_000
    run_state_machine_as_test(
        LedgerMachine, settings=hypothesis_settings(max_examples=30, stateful_step_count=25, deadline=None)
    )
