"""What a chat page holds when it opens, and what it asks for later: the newest turns and conversations first."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Max, Q
from django.utils import timezone

from accounts.models import User
from chat.models import Conversation, TurnState
from chat.selectors import turn_dict
from routing.types import DataPolicy
from stream_site.errors import InputError

OPENING_POSITIONS = 10
MORE_POSITIONS = 50
MOST_POSITIONS = 1000
OPENING_CONVERSATIONS = 30
MORE_CONVERSATIONS = 60
Groups = list[tuple[str, list[dict[str, Any]]]]


# ── turns ─────────────────────────────────────────────────────────────────


def opening_turns(conversation: Conversation) -> list[dict[str, Any]]:
    """Return the newest positions, all versions, in order. Two queries."""
    newest = conversation.turns.aggregate(top=Max("position"))["top"] or 0
    return turn_dicts(conversation, newest - OPENING_POSITIONS + 1, newest)


def turns_before(conversation: Conversation, position: int, back_to: int | None) -> list[dict[str, Any]]:
    """Return the turns before `position`: a page of them, or all back to `back_to`. One query."""
    first = position - MORE_POSITIONS if back_to is None else max(back_to, position - MOST_POSITIONS)
    return turn_dicts(conversation, first, position - 1)


def turn_dicts(conversation: Conversation, first: int, last: int) -> list[dict[str, Any]]:
    """Return the turns of the positions `first` to `last`, all versions, in order. One query."""
    return [turn_dict(turn) for turn in conversation.turns.filter(position__range=(first, last))]


def last_answer(turns: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the newest version at the last position when it has ended with text, else None."""
    last = turns[-1] if turns else None
    return last if last and last["state"] == TurnState.ENDED and last["answer"] else None


# ── the side bar ──────────────────────────────────────────────────────────


def sidebar(owner: User, after: str = "", most: int = OPENING_CONVERSATIONS) -> tuple[Groups, str]:
    """Return conversations by age, newest first, and where the next page starts ("" at the end). One query.

    `after` is what an earlier page returned. Raises `InputError` when it is not.
    """
    rows = Conversation.objects.filter(owner=owner).order_by("-updated_at", "-id")
    if after:
        at, last = read_mark(after)
        rows = rows.filter(Q(updated_at__lt=at) | Q(updated_at=at, id__lt=last))
    found = list(rows.values("id", "title", "data_policy", "updated_at")[: most + 1])
    page = found[:most]
    heading_of = headings()
    groups: dict[str, list[dict[str, Any]]] = {}
    for c in page:
        shown = {"id": str(c["id"]), "title": c["title"], "campus_only": c["data_policy"] == DataPolicy.CAMPUS_ONLY}
        groups.setdefault(heading_of(c["updated_at"]), []).append(shown)
    mark = f"{page[-1]['updated_at'].isoformat()},{page[-1]['id']}" if len(found) > most else ""
    return list(groups.items()), mark


def read_mark(mark: str) -> tuple[datetime, UUID]:
    """Return the time and id of a page's last conversation. Raises `InputError`."""
    when, _, last = mark.partition(",")
    try:
        at = datetime.fromisoformat(when)
        if at.tzinfo is None:
            raise ValueError("no time zone")
        return at, UUID(last)
    except ValueError:
        raise InputError("The place in the list cannot be read.", field="after", todo="Load the page again.") from None


def headings() -> Any:
    """Return a function from a time to the heading it stands under, as of now."""
    today = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    bounds = (
        ("Today", today),
        ("Yesterday", today - timedelta(days=1)),
        ("Last 7 days", today - timedelta(days=7)),
        ("Last 30 days", today - timedelta(days=30)),
    )
    return lambda when: next((name for name, start in bounds if when >= start), "Older")
