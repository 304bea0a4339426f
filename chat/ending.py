"""The end of a turn: answer and ledger in one transaction (database hop 2), and the end of turns whose runner died."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from chat.models import Turn, TurnEvents, TurnState
from chat.search import index_ended
from chat.services import Claim, end_unwritten, stored_events, stored_text
from chat.steps import Step, steps_of_events
from routing import ledger
from routing.types import ModelSpec, Outcome, Tier, Usage
from stream_site.error_shapes import words
from stream_site.errors import StreamBroken


@dataclass(frozen=True)
class Bill:
    """One attempt, as it is booked. `ran`: the provider may charge for it."""

    attempt: int
    model: ModelSpec
    usage: Usage
    ran: bool


@dataclass(frozen=True)
class TurnEnd:
    """How a turn ended, as its runner saw it. `first_text_ms` counts from acceptance. `model` answered, or tried last."""

    outcome: Outcome
    answer: str
    reasoning: str
    error: dict[str, Any] | None
    route: dict[str, Any] | None
    model: ModelSpec | None
    usage: Usage
    bills: Sequence[Bill]
    first_text_ms: int | None
    events_end: int
    steps: Sequence[Step] = ()


def turn_finish(*, claim: Claim, end: TurnEnd) -> Turn | None:
    """Store the end of a turn and book its attempts. Return it, or None when another fence has taken it over."""
    with transaction.atomic():
        turn = Turn.objects.select_for_update().filter(id=claim.turn.id, state=TurnState.RUNNING).first()
        if turn is None or turn.fence != claim.fence:
            return None
        now = timezone.now()
        turn.state, turn.outcome = TurnState.ENDED, end.outcome
        turn.answer, turn.reasoning = end.answer, end.reasoning
        turn.error, turn.route = end.error, end.route
        if end.model:
            turn.tier, turn.model, turn.model_label = end.model.tier, end.model.name, end.model.label
        turn.attempts = len(end.bills)
        turn.tokens_in, turn.tokens_out = end.usage.prompt, end.usage.completion
        turn.tokens_estimated = end.usage.estimated
        turn.cost_micro = sum(book(turn, bill) for bill in end.bills)
        turn.first_text_ms = end.first_text_ms
        turn.steps = list(end.steps)
        turn.total_ms = int((now - turn.created_at).total_seconds() * 1000)
        turn.events_end = end.events_end
        turn.ended_at, turn.lease_until = now, None
        turn.save()
        TurnEvents.objects.filter(turn=turn).delete()
        index_ended(turn)
    return turn


def book(turn: Turn, bill: Bill) -> int:
    """Book one attempt; return what it cost, US micro-dollars."""
    call = ledger.CallRef(
        turn_id=turn.id,
        attempt=bill.attempt,
        user_id=turn.owner_id,
        tier=bill.model.tier,
        model=bill.model.name,
    )
    if not bill.ran:
        ledger.release(call=call, note="the provider did not take the call")
        return 0
    return ledger.settle(call=call, usage=bill.usage, price=bill.model.price).amount_micro


def book_open_reservations(turn: Turn) -> int:
    """Book what the dead runner had set aside, whole: what its calls used is not known here. Return the sum."""
    total = 0
    for held in ledger.all_open_reservations().filter(turn_id=turn.id):
        call = ledger.CallRef(turn.id, held.attempt, turn.owner_id, Tier(held.tier), held.model, held.purpose)
        note = "The server that made the call stopped."
        total += ledger.settle(call=call, usage=Usage(estimated=True), price=None, note=note).amount_micro
    return total


def turn_abandon(turn: Turn) -> Turn | None:
    """End a turn whose runner died: what is stored of the answer is kept, open reservations are booked.

    Returns None when somebody else dealt with it.
    """
    with transaction.atomic():
        now = timezone.now()
        held = Turn.objects.select_for_update().filter(
            id=turn.id, fence=turn.fence, state=TurnState.RUNNING, lease_until__lt=now
        )
        found = held.first()
        if found is None:
            return None
        found.answer, found.reasoning = stored_text(found)
        events = stored_events(found)
        found.steps = steps_of_events(events)
        found.route = next((event["route"] for event in events if event["kind"] == "route"), found.route)
        visible = bool(found.answer or found.reasoning)
        error = StreamBroken(
            "The server that was writing the answer stopped.",
            kept="What arrived is saved." if visible else "Your question is saved.",
            todo="Continue from here, or try again." if visible else "Try again.",
        )
        found.cost_micro += book_open_reservations(found)
        if found.stop_requested:
            end_unwritten(found, Outcome.CANCELLED, None)
        else:
            end_unwritten(found, Outcome.INTERRUPTED if visible else Outcome.FAILED, words(error).as_dict())
    return found
