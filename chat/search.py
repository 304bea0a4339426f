"""Full-text search over one's own conversations: FTS5 on SQLite, tsvector on PostgreSQL; words match by their beginning.

Scripts without spaces (Chinese, Japanese, Thai …) have no words to index: a query in them is a substring search.
"""

from __future__ import annotations

import re
from typing import Any

from django.db import connection
from django.db.models import Q, QuerySet
from django.db.models.expressions import RawSQL

from accounts.models import User
from chat.models import Conversation, SearchText, Turn

MOST_RESULTS = 50
MOST_TERMS = 12
MOST_CHARS = 100_000  # of one text; PostgreSQL's tsvector ends at 1 MB
AROUND_CHARS = 70
WORD = re.compile(r"\w+", re.UNICODE)
UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
Snippet = list[tuple[str, bool]]


# ── keeping the index ─────────────────────────────────────────────────────


def index_title(conversation: Conversation) -> None:
    """Make a conversation findable by its (new) title."""
    SearchText.objects.update_or_create(
        conversation=conversation,
        turn=None,
        defaults={"where": SearchText.Where.TITLE, "owner_id": conversation.owner_id, "text": conversation.title},
    )


def index_ended(turn: Turn) -> None:
    """Make an ended turn findable, and with its first one the conversation. Not sooner: no question waits for this."""
    if turn.position == 1 and turn.version == 1:
        index_title(turn.conversation)
    texts = [(SearchText.Where.QUESTION, turn.question)] if turn.version == 1 else []
    texts.append((SearchText.Where.ANSWER, turn.answer))
    SearchText.objects.bulk_create(
        SearchText(
            owner_id=turn.owner_id,
            conversation_id=turn.conversation_id,
            turn=turn,
            where=where,
            text=text[:MOST_CHARS],
        )
        for where, text in texts
        if text
    )


# ── searching ─────────────────────────────────────────────────────────────


def search(owner: User, query: str) -> list[dict[str, Any]]:
    """Return the texts of `owner` that hold every term of `query`, newest conversation first, best part shown. One query."""
    terms = WORD.findall(query)[:MOST_TERMS]
    if not terms:
        return []
    found = matching(SearchText.objects.filter(owner=owner), terms)
    rows = found.select_related("conversation", "turn").order_by("-conversation__updated_at", "id")[:MOST_RESULTS]
    return [
        {
            "conversation": str(row.conversation_id),
            "title": row.conversation.title,
            "turn": str(row.turn_id) if row.turn_id else None,
            "position": row.turn.position if row.turn else None,
            "where": row.where,
            "snippet": snippet(row.text, terms),
        }
        for row in rows
    ]


def matching(rows: QuerySet[SearchText], terms: list[str]) -> QuerySet[SearchText]:
    if any(UNSPACED.search(term) for term in terms):
        condition = Q()
        for term in terms:
            condition &= Q(text__icontains=term)
        return rows.filter(condition)
    if connection.vendor == "postgresql":
        query = " & ".join(f"'{term}':*" for term in terms)
        return rows.filter(
            id__in=RawSQL(
                "SELECT id FROM chat_searchtext WHERE to_tsvector('simple', text) @@ to_tsquery('simple', %s)", [query]
            )
        )
    query = " ".join(f'"{term}"*' for term in terms)
    return rows.filter(id__in=RawSQL("SELECT rowid FROM chat_search_fts WHERE chat_search_fts MATCH %s", [query]))


def snippet(text: str, terms: list[str]) -> Snippet:
    """Return a piece of `text` around the first match, as (text, is a match) pairs. Pure."""
    pattern = re.compile("|".join(re.escape(term) for term in sorted(terms, key=len, reverse=True)), re.IGNORECASE)
    first = pattern.search(text)
    start = max(0, first.start() - AROUND_CHARS) if first else 0
    end = min(len(text), (first.end() if first else 0) + 2 * AROUND_CHARS)
    piece = " ".join(text[start:end].split())
    parts: Snippet = [("… ", False)] if start else []
    at = 0
    for match in pattern.finditer(piece):
        if match.start() > at:
            parts.append((piece[at : match.start()], False))
        parts.append((match.group(), True))
        at = match.end()
    if at < len(piece):
        parts.append((piece[at:], False))
    if end < len(text):
        parts.append((" …", False))
    return parts
