"""The ledger's services: reserve before a call, settle or release after it, correct later.

    reserve ──> settle ──> correct       each at most once per (turn, attempt, purpose)
       └──────> release

Every service is one transaction that adds a line and moves the budgets with it, and may be repeated: a second
call with the same key changes nothing. Lines remember the budgets they moved, so a call that runs over the end
of a month is settled in the month that reserved for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any
from uuid import UUID

from django.db import connection, transaction
from django.db.models import Exists, OuterRef, QuerySet
from django.utils import timezone

from routing import budgets
from routing.models import EntryKind, LedgerEntry
from routing.pricing import MOST_MICRO, CostSource, cost_micro
from routing.types import Price, Tier, Usage
from stream_site.errors import ConflictError, InputError

log = logging.getLogger("stream.ledger")

CLOSING = (EntryKind.SETTLE, EntryKind.RELEASE)


@dataclass(frozen=True)
class CallRef:
    """One attempt of one turn at one model, for one purpose: what the ledger keeps its lines by."""

    turn_id: UUID
    attempt: int
    user_id: int
    tier: Tier
    model: str
    purpose: str = "answer"


@dataclass(frozen=True)
class Bill:
    """What a settled call comes to, and what the line says about it."""

    amount_micro: int
    source: CostSource
    usage: Usage
    price: Price | None = None
    note: str = ""
    degraded: bool = False


@transaction.atomic
def reserve(*, call: CallRef, upper_micro: int, at: datetime | None = None) -> None:
    """Hold the most this call can cost in every budget it counts against. Nothing to hold: nothing is done.

    Raises `BudgetError` when a budget does not cover it, and `ConflictError` when the call is over already.
    """
    if not 0 <= upper_micro <= MOST_MICRO:
        raise ValueError(f"{upper_micro} micro-dollars cannot be reserved.")
    if upper_micro == 0:
        return
    lines = _lines(call)
    if any(kind in lines for kind in CLOSING):
        raise ConflictError(
            f"Attempt {call.attempt} of this turn was booked before.",
            kept="What was booked stays.",
            todo="Make a new attempt.",
        )
    if EntryKind.RESERVE in lines:
        return
    at = at or timezone.now()
    held = budgets.hold(call.user_id, upper_micro, at)
    _add(call, EntryKind.RESERVE, amount_micro=upper_micro, budget_ids=held, created_at=at)


@transaction.atomic
def settle(
    *, call: CallRef, usage: Usage, price: Price | None, note: str = "", at: datetime | None = None
) -> LedgerEntry:
    """Book what the call cost, in full even above its reservation, and give the reservation back.

    Works without a reservation: a free call books 0 with its tokens. When it cannot be priced (`price` is None, or
    the report is nonsense) the reservation is booked instead and the line is `degraded`. Returns the line.
    """
    lines = _lines(call)
    if EntryKind.SETTLE in lines:
        return lines[EntryKind.SETTLE]
    reservation = lines.get(EntryKind.RESERVE)
    bill = _bill(usage, price, note, reserved_micro=reservation.amount_micro if reservation else 0)
    return _book(call, lines, bill, at or timezone.now())


@transaction.atomic
def release(*, call: CallRef, note: str = "", at: datetime | None = None) -> None:
    """Give the reservation back: the call never reached the provider, or was refused by it."""
    lines = _lines(call)
    if any(kind in lines for kind in CLOSING) or EntryKind.RESERVE not in lines:
        return
    held = lines[EntryKind.RESERVE]
    _add(
        call,
        EntryKind.RELEASE,
        amount_micro=-held.amount_micro,
        budget_ids=held.budget_ids,
        note=note,
        created_at=at or timezone.now(),
    )
    budgets.move(held.budget_ids, reserved=-held.amount_micro)


@transaction.atomic
def correct(*, call: CallRef, actual_micro: int, note: str, at: datetime | None = None) -> LedgerEntry:
    """Right a settled call to what it really cost, e.g. a degraded line. Returns the correcting line.

    Raises `InputError` when the call was not settled, and `ConflictError` when it was corrected before.
    """
    if not 0 <= actual_micro <= MOST_MICRO:
        raise ValueError(f"A call cannot cost {actual_micro} micro-dollars.")
    lines = _lines(call)
    if EntryKind.SETTLE not in lines:
        raise InputError("This call was not settled yet, so there is nothing to correct.")
    if EntryKind.CORRECT in lines:
        raise ConflictError("This call was corrected before.", kept="The first correction stays.")
    settled = lines[EntryKind.SETTLE]
    at = at or timezone.now()
    ids = settled.budget_ids or [row.pk for row in budgets.rows_for(call.user_id, at)]
    difference = actual_micro - settled.amount_micro
    line = _add(
        call, EntryKind.CORRECT, amount_micro=difference, budget_ids=ids if difference else [], note=note, created_at=at
    )
    budgets.move(ids, spent=difference)
    return line


# ── after a crash ─────────────────────────────────────────────────────────


def open_reservations(*, older_than: timedelta, at: datetime | None = None) -> QuerySet[LedgerEntry]:
    """Return the reservations that nothing closed for this long. Choose more than the longest call may take."""
    before = (at or timezone.now()) - older_than
    return all_open_reservations().filter(created_at__lt=before).order_by("id")


def settle_abandoned(
    *, older_than: timedelta, estimate: Callable[[CallRef], tuple[Usage, Price] | None], at: datetime | None = None
) -> list[LedgerEntry]:
    """Settle every reservation whose call ended without a word, and return the lines.

    `estimate` says what is known of the call. Where it knows nothing, the whole reservation is booked, degraded.
    """
    settled = []
    for reservation in open_reservations(older_than=older_than, at=at):
        call = _call_of(reservation)
        usage, price = estimate(call) or (Usage(estimated=True), None)
        settled.append(settle(call=call, usage=usage, price=price, note="The call ended without a word.", at=at))
    return settled


def all_open_reservations() -> QuerySet[LedgerEntry]:
    same_call = {name: OuterRef(name) for name in ("turn_id", "attempt", "purpose")}
    closed = LedgerEntry.objects.filter(kind__in=CLOSING, **same_call)
    return LedgerEntry.objects.filter(~Exists(closed), kind=EntryKind.RESERVE)


def _call_of(line: LedgerEntry) -> CallRef:
    if line.user_id is None:
        raise ValueError(f"Ledger line {line.pk} has no user.")
    return CallRef(line.turn_id, line.attempt, line.user_id, Tier(line.tier), line.model, line.purpose)


# ── the parts ─────────────────────────────────────────────────────────────


def _lines(call: CallRef) -> dict[str, LedgerEntry]:
    """Return the call's lines by kind, and keep others from adding to it until this transaction ends."""
    if connection.vendor == "postgresql":  # SQLite has one writer at a time as it is (BEGIN IMMEDIATE)
        name = f"ledger {call.turn_id} {call.attempt} {call.purpose}"
        key = int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [key])
    lines = LedgerEntry.objects.filter(turn_id=call.turn_id, attempt=call.attempt, purpose=call.purpose)
    return {line.kind: line for line in lines}


def _bill(usage: Usage, price: Price | None, note: str, *, reserved_micro: int) -> Bill:
    try:
        if price is None:
            raise ValueError("The model has no price.")
        cost = cost_micro(price, usage)
    except Exception as error:
        # Whatever is wrong with a report, the call took place: a line is written, and waits for its correction.
        log.exception("A call could not be priced; its reservation of %d micro-dollars is booked.", reserved_micro)
        words = f"Could not be priced ({error}); the reservation was booked. {note}".strip()
        return Bill(reserved_micro, CostSource.ESTIMATE, usage, price, words, degraded=True)
    if cost.amount_micro == 0 and not price.is_free:
        log.error("A call to a model with a price was booked at 0: source %s, %s.", cost.source, usage)
        note = f"A model with a price cost nothing. {note}".strip()
        return Bill(0, cost.source, usage, price, note, degraded=True)
    return Bill(cost.amount_micro, cost.source, usage, price, note)


def _book(call: CallRef, lines: dict[str, LedgerEntry], bill: Bill, at: datetime) -> LedgerEntry:
    reservation = lines.get(EntryKind.RESERVE)
    ids: Sequence[int] = reservation.budget_ids if reservation else []
    if not ids and bill.amount_micro:
        ids = [row.pk for row in budgets.rows_for(call.user_id, at)]
    held = reservation.amount_micro if reservation and EntryKind.RELEASE not in lines else 0
    usage = bill.usage
    line = _add(
        call,
        EntryKind.SETTLE,
        amount_micro=bill.amount_micro,
        tokens_in=_fit(usage.prompt),
        tokens_cached=_fit(usage.cached),
        tokens_out=_fit(usage.completion),
        tokens_reasoning=_fit(usage.reasoning),
        source=bill.source,
        price=asdict(bill.price) if bill.price else None,
        generation_id=usage.generation_id[:200],
        note=bill.note,
        degraded=bill.degraded,
        budget_ids=ids,
        created_at=at,
    )
    budgets.move(ids, reserved=-held, spent=bill.amount_micro)
    return line


def _fit(tokens: object) -> int:
    """Return a token count that the column can hold, whatever was reported."""
    return min(max(0, tokens), 10**15) if isinstance(tokens, int) else 0


def _add(call: CallRef, kind: EntryKind, **fields: Any) -> LedgerEntry:
    return LedgerEntry.objects.create(
        turn_id=call.turn_id,
        attempt=call.attempt,
        purpose=call.purpose,
        user_id=call.user_id,
        tier=call.tier.value,
        model=call.model[:200],
        kind=kind,
        **fields,
    )
