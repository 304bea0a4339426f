"""Reads of the chat. Every function takes the owner: nothing of another person is ever reachable."""

from __future__ import annotations

from typing import Any

from chat.models import Turn


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
