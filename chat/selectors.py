"""Reads of the chat. Every function takes the owner: nothing of another person is ever reachable."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from accounts.models import User
from chat.models import Conversation, Turn, TurnEvents, TurnState
from routing.context import Ask
from routing.engine import AnswerRequest
from routing.money import format_usd
from routing.spend import budget_state
from routing.types import DataPolicy, Message
from stream_site.errors import NotFound

REPLAY_CHARS = 4096


def turn_dict(turn: Turn) -> dict[str, Any]:
    """Return a whole turn as the browser gets it, in the page, in `turn.accepted` and in `done`."""
    return {
        "id": str(turn.id),
        "conversation": str(turn.conversation_id),
        "client_id": str(turn.client_id),
        "position": turn.position,
        "version": turn.version,
        "continues": str(turn.continues_id) if turn.continues_id else None,
        "question": turn.question,
        "tier_choice": turn.tier_choice,
        "model_choice": turn.model_choice,
        "state": turn.state,
        "outcome": turn.outcome,
        "answer": turn.answer,
        "reasoning": turn.reasoning,
        "error": turn.error,
        "route": turn.route,
        "tier": turn.tier,
        "model": turn.model,
        "model_label": turn.model_label,
        "attempts": turn.attempts,
        "tokens_in": turn.tokens_in,
        "tokens_out": turn.tokens_out,
        "tokens_estimated": turn.tokens_estimated,
        "cost_micro": turn.cost_micro,
        "first_text_ms": turn.first_text_ms,
        "total_ms": turn.total_ms,
        "events_end": turn.events_end,
        "created_at": turn.created_at.isoformat(),
        "ended_at": turn.ended_at.isoformat() if turn.ended_at else None,
    }


def done_event(turn: Turn) -> dict[str, Any]:
    """Return the last event of an ended turn, as its runner sent it: everything but the text, which came before."""
    stored = {key: value for key, value in turn_dict(turn).items() if key not in ("answer", "reasoning")}
    return {"seq": turn.events_end, "kind": "done", "outcome": turn.outcome, "stored": stored, "error": turn.error}


def told_turn(turn: Turn) -> dict[str, Any]:
    """Return a turn for `turn.accepted`: without its text, which comes as events, as if it were being answered."""
    return turn_dict(turn) | {
        "state": TurnState.RUNNING if turn.state == TurnState.ENDED else turn.state,
        "outcome": "",
        "answer": "",
        "reasoning": "",
        "error": None,
    }


def replay_events(turn: Turn) -> list[dict[str, Any]]:
    """Return an ended turn as events of its own fence (`turn.fence` + 1), always the same: its text in pieces, then `done`."""
    kinds = (("reasoning", turn.reasoning), ("delta", turn.answer))
    pieces = [
        {"kind": kind, "text": text[at : at + REPLAY_CHARS]}
        for kind, text in kinds
        for at in range(0, len(text), REPLAY_CHARS)
    ]
    events: list[dict[str, Any]] = [{"seq": number, **piece} for number, piece in enumerate(pieces, 1)]
    return [*events, done_event(turn) | {"seq": len(pieces) + 1}]


# ── for the runner ────────────────────────────────────────────────────────


def answer_request(turn: Turn) -> AnswerRequest:
    """Return all that the engine needs to answer `turn`: history, data policy, what may be spent.

    At most four queries; one for the first question of a conversation, which waits for it.
    """
    budget = budget_state(turn.owner_id)
    partial = Turn.objects.values_list("answer", flat=True).get(id=turn.continues_id) if turn.continues_id else ""
    return AnswerRequest(
        turn_id=turn.id,
        user_id=turn.owner_id,
        ask=Ask(question=turn.question, history=history_before(turn), partial=partial),
        tier_choice=turn.tier_choice,
        model_choice=turn.model_choice,
        data_policy=DataPolicy(turn.conversation.data_policy),
        budget_left_micro=budget.left_micro,
    )


def history_before(turn: Turn) -> tuple[Message, ...]:
    """Return the questions and answers before `turn`: of each question the newest version that has text."""
    if turn.position == 1:
        return ()
    rows = (
        Turn.objects.filter(conversation_id=turn.conversation_id, position__lt=turn.position)
        .exclude(answer="")
        .order_by("position", "version")
        .values_list("position", "question", "answer")
    )
    newest = {position: (question, answer) for position, question, answer in rows}
    return tuple(
        message
        for question, answer in newest.values()
        for message in (Message("user", question), Message("assistant", answer))
    )


# ── for sockets ───────────────────────────────────────────────────────────


def watched_conversation(owner: User, conversation_id: uuid.UUID) -> Conversation | None:
    """Return the conversation, or None when it is not made yet. Raises `NotFound` when it is another person's."""
    found = Conversation.objects.filter(id=conversation_id).first()
    if found is not None and found.owner_id != owner.pk:
        raise NotFound("There is no such conversation.")
    return found


def turns_to_tell(conversation: Conversation, known: Iterable[uuid.UUID], after: datetime | None) -> list[Turn]:
    """Return the turns a page does not know: those made after its newest, and those being answered."""
    turns = conversation.turns.exclude(id__in=list(known))
    active = turns.exclude(state=TurnState.ENDED)
    newer = turns.filter(created_at__gt=after) if after else turns.none()
    return list((active | newer).order_by("position", "version")[:500])


def events_after(turn_id: uuid.UUID, seq: int) -> list[dict[str, Any]]:
    """Return the stored events of a running turn after `seq`, in order."""
    batches = TurnEvents.objects.filter(turn_id=turn_id, last_seq__gt=seq)
    return [event for batch in batches for event in batch.events if event["seq"] > seq]


def turns_now(turn_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, Turn]:
    return Turn.objects.in_bulk(list(turn_ids))


# ── for pages ─────────────────────────────────────────────────────────────


def me(user: User) -> dict[str, Any]:
    """Return the person as the account menu shows them. One query."""
    budget = budget_state(user.pk)
    label = f"Cloud {format_usd(budget.spent_micro)} of {format_usd(budget.limit_micro)}"
    return {"name": user.shown_name, "initials": user.initials, "theme": user.theme, "budget_label": label}


def conversation_dict(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": str(conversation.id),
        "title": conversation.title,
        "campus_only": conversation.data_policy == DataPolicy.CAMPUS_ONLY,
    }


def conversation_message(conversation: Conversation, *, deleted: bool = False) -> dict[str, Any]:
    """Return the ring that tells a person's pages of a change."""
    shown = {"conversation": str(conversation.id), **conversation_dict(conversation)}
    shown |= {"updated_at": conversation.updated_at.isoformat(), "deleted": deleted}
    return {"type": "conversation.changed", "conversation": shown}
