"""Writes of the chat: turns and conversations. Sync ORM; every function checks the owner."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, connection, transaction
from django.db.models import Max, Q
from django.utils import timezone

from accounts.models import User
from chat.models import Conversation, Turn, TurnEvents, TurnState
from chat.protocol import TurnStart
from chat.search import index_ended, index_title
from routing.types import DataPolicy, Outcome
from stream_site.errors import ConflictError, InputError, NotFound

TITLE_CHARS = 80


@dataclass(frozen=True)
class Started:
    """A turn that is stored. `duplicate`: it was there before, under the same client id."""

    turn: Turn
    duplicate: bool


@dataclass(frozen=True)
class Claim:
    """The right to write one turn. Writes of a claim whose fence is old are refused."""

    turn: Turn
    fence: int


def title_of(question: str) -> str:
    """Return a title: the first line of the question that says something."""
    line = next((line.strip() for line in question.splitlines() if line.strip()), "New chat")
    line = " ".join(line.split())
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


# ── starting ──────────────────────────────────────────────────────────────


def turn_start(*, owner: User, message: TurnStart, claim: tuple[str, float] | None = None) -> Started:
    """Store a question, once per client id. Database hop 1: when this returns, the message is never lost.

    `claim` is (runner, lease in seconds) of a runner that takes the turn in the same transaction.
    Raises `NotFound`, `ConflictError`.
    """
    try:
        with transaction.atomic():
            conversation, is_new = conversation_for(owner, message)
            # Asked only now that the conversation is locked: the same send may come twice at once.
            known = sent_before(owner, message.id)
            if known:
                return repeated(known, message.text)
            if not is_new:
                see_that_none_is_answering(conversation)
            turn = create_turn(
                conversation,
                client_id=message.id,
                question=message.text,
                tier_choice=message.tier,
                model_choice=message.model,
                position=1 if is_new else next_position(conversation),
                claim=claim,
            )
            if not is_new:
                Conversation.objects.filter(id=conversation.id).update(updated_at=timezone.now())
            return Started(turn, duplicate=False)
    except IntegrityError:
        # Two sends made the same new conversation at once: the other one is stored by now.
        known = sent_before(owner, message.id)
        if known is None:
            raise busy() from None
        return repeated(known, message.text)


def sent_before(owner: User, client_id: uuid.UUID) -> Turn | None:
    return Turn.objects.filter(owner=owner, client_id=client_id).first()


def see_that_none_is_answering(conversation: Conversation) -> None:
    """Raise `ConflictError` while an answer is being written: the next question would not see it."""
    if is_answering(conversation):
        raise busy()


def is_answering(conversation: Conversation) -> bool:
    return conversation.turns.exclude(state=TurnState.ENDED).exists()


def busy() -> ConflictError:
    return ConflictError(
        "An answer is still being written in this conversation.",
        kept="Your text stays in the box.",
        todo="Wait for it, or stop it, and send again.",
    )


def repeated(known: Turn, text: str) -> Started:
    if known.question != text:
        raise ConflictError("This id was used for another question.", todo="Reload the page and send it again.")
    return Started(known, duplicate=True)


def conversation_for(owner: User, message: TurnStart) -> tuple[Conversation, bool]:
    """Return the conversation, locked, and whether it is new. Raises `NotFound` when it is another person's."""
    found = Conversation.objects.select_for_update().filter(id=message.conversation).first()
    if found is None:
        policy = DataPolicy.CAMPUS_ONLY if message.campus_only else DataPolicy.PUBLIC
        now = timezone.now()
        return Conversation.objects.create(
            id=message.conversation,
            owner=owner,
            title=title_of(message.text),
            data_policy=policy,
            created_at=now,
            updated_at=now,
        ), True
    if found.owner_id != owner.pk:
        raise NotFound("There is no such conversation.", kept="Your text stays in the box.")
    return found, False


def next_position(conversation: Conversation) -> int:
    last: int | None = conversation.turns.aggregate(last=Max("position"))["last"]
    return (last or 0) + 1


def create_turn(conversation: Conversation, *, claim: tuple[str, float] | None, **fields: Any) -> Turn:
    """Create a turn, queued, or already claimed by a runner."""
    now = timezone.now()
    if claim:
        runner, lease_s = claim
        fields |= {
            "state": TurnState.RUNNING,
            "runner": runner,
            "fence": 1,
            "started_at": now,
            "lease_until": now + timedelta(seconds=lease_s),
        }
    return Turn.objects.create(conversation=conversation, owner_id=conversation.owner_id, created_at=now, **fields)


def turn_again(
    *,
    owner: User,
    turn_id: uuid.UUID,
    client_id: uuid.UUID,
    tier: str = "",
    model: str = "",
    carry_on: bool = False,
    claim: tuple[str, float] | None = None,
) -> Started:
    """Answer a question once more, as a new version; the old answer stays. `carry_on`: go on from its partial answer.

    Raises `NotFound`, `InputError`, `ConflictError`.
    """
    with transaction.atomic():
        old = Turn.objects.select_related("conversation").filter(owner=owner, id=turn_id).first()
        if old is None:
            raise NotFound("There is no such answer.")
        Conversation.objects.select_for_update().get(id=old.conversation_id)
        known = sent_before(owner, client_id)
        if known:
            return Started(known, duplicate=True)
        see_that_none_is_answering(old.conversation)
        siblings = old.conversation.turns
        if carry_on and not old.answer:
            raise InputError("There is no text to go on from.", todo="Use Try again.")
        version = siblings.filter(position=old.position).aggregate(last=Max("version"))["last"] + 1
        turn = create_turn(
            old.conversation,
            client_id=client_id,
            question=old.question,
            tier_choice=tier or old.tier_choice,
            model_choice=model if tier else old.model_choice,
            position=old.position,
            version=version,
            continues=old if carry_on else None,
            claim=claim,
        )
        Conversation.objects.filter(id=old.conversation_id).update(updated_at=timezone.now())
    return Started(turn, duplicate=False)


def turn_stop(*, owner: User, turn_id: uuid.UUID) -> Turn:
    """Ask for the end of a turn. A turn that no runner has taken ends at once. Raises `NotFound`."""
    with transaction.atomic():
        turn = Turn.objects.select_for_update().filter(owner=owner, id=turn_id).first()
        if turn is None:
            raise NotFound("There is no such answer.")
        if turn.state == TurnState.QUEUED:
            end_unwritten(turn, Outcome.CANCELLED, None)
        elif turn.state == TurnState.RUNNING:
            Turn.objects.filter(id=turn.id).update(stop_requested=True)
    return turn


def end_unwritten(turn: Turn, outcome: Outcome, error: dict[str, Any] | None) -> None:
    """End a turn whose runner is gone or never came; keep what is stored of its answer."""
    now = timezone.now()
    turn.state, turn.outcome, turn.error = TurnState.ENDED, outcome, error
    turn.ended_at, turn.lease_until = now, None
    turn.total_ms = int((now - turn.created_at).total_seconds() * 1000)
    turn.events_end += 1
    turn.fence += 1
    turn.save()
    TurnEvents.objects.filter(turn=turn).delete()
    index_ended(turn)


# ── the runner's writes ───────────────────────────────────────────────────


def turns_claim(*, runner: str, most: int, lease_s: float) -> list[Claim]:
    """Take up to `most` queued turns, oldest first. No turn is ever taken twice."""
    now = timezone.now()
    with transaction.atomic():
        queued = Turn.objects.filter(state=TurnState.QUEUED).order_by("created_at")
        if connection.features.has_select_for_update_skip_locked:
            queued = queued.select_for_update(skip_locked=True)
        turns = list(queued[:most])
        for turn in turns:
            turn.state, turn.runner = TurnState.RUNNING, runner
            turn.fence += 1
            turn.started_at = now
            turn.lease_until = now + timedelta(seconds=lease_s)
        Turn.objects.bulk_update(turns, ["state", "runner", "fence", "started_at", "lease_until"])
    return [Claim(turn, turn.fence) for turn in turns]


def leases_renew(*, claims: list[tuple[uuid.UUID, int]], lease_s: float) -> tuple[set[uuid.UUID], set[uuid.UUID]]:
    """Extend the leases of `claims`, (turn, fence). Return (turns lost to another fence, turns to stop)."""
    if not claims:
        return set(), set()
    wanted = dict(claims)
    rows = Turn.objects.filter(id__in=wanted, state=TurnState.RUNNING).values_list("id", "fence", "stop_requested")
    held = {id_: stop for id_, fence, stop in rows if fence == wanted[id_]}
    Turn.objects.filter(id__in=held, state=TurnState.RUNNING).update(
        lease_until=timezone.now() + timedelta(seconds=lease_s)
    )
    return set(wanted) - set(held), {id_ for id_, stop in held.items() if stop}


def events_append(*, turn_id: uuid.UUID, fence: int, events: list[dict[str, Any]]) -> bool:
    """Store a batch of events. Return False, storing nothing, when the turn was lost to another fence."""
    first, last = events[0]["seq"], events[-1]["seq"]
    with transaction.atomic():
        held = Turn.objects.filter(id=turn_id, fence=fence, state=TurnState.RUNNING).update(events_end=last)
        if held:
            TurnEvents.objects.create(turn_id=turn_id, first_seq=first, last_seq=last, events=events)
    return bool(held)


# ── sweeping ──────────────────────────────────────────────────────────────


def turns_expired() -> list[Turn]:
    """Return the turns whose runner stopped renewing its lease."""
    return list(Turn.objects.filter(state=TurnState.RUNNING, lease_until__lt=timezone.now())[:500])


def is_free_to_restart(turn: Turn) -> bool:
    """Whether nothing of the answer was stored, and it has not been tried too often: it may start over unseen."""
    return turn.events_end == 0 and turn.fence < 3 and not turn.stop_requested


def turn_requeue(turn: Turn) -> bool:
    """Put a turn back in the queue. Return False when somebody else dealt with it."""
    return bool(
        Turn.objects.filter(
            id=turn.id, fence=turn.fence, state=TurnState.RUNNING, lease_until__lt=timezone.now()
        ).update(state=TurnState.QUEUED, lease_until=None, runner="")
    )


def stored_text(turn: Turn) -> tuple[str, str]:
    """Return (answer, reasoning) as far as the stored events have them."""
    answer, reasoning = [], []
    for event in stored_events(turn):
        if event["kind"] == "delta":
            answer.append(event["text"])
        elif event["kind"] == "reasoning":
            reasoning.append(event["text"])
    return "".join(answer), "".join(reasoning)


def stored_events(turn: Turn) -> list[dict[str, Any]]:
    """Return the events of a turn that is not over, as far as they are stored."""
    return [event for batch in TurnEvents.objects.filter(turn=turn) for event in batch.events]


# ── conversations ─────────────────────────────────────────────────────────


def own_conversation(owner: User, conversation_id: uuid.UUID) -> Conversation:
    """Return the conversation. Raises `NotFound` when it does not exist or is another person's."""
    found = Conversation.objects.filter(Q(owner=owner), id=conversation_id).first()
    if found is None:
        raise NotFound("There is no such conversation.")
    return found


def conversation_rename(*, owner: User, conversation_id: uuid.UUID, title: str) -> Conversation:
    """Give a conversation a name of its owner's. Raises `NotFound`, `InputError`."""
    clean = " ".join(title.replace("\0", "").split())
    if not clean:
        raise InputError("The title is empty.", field="title", todo="Type a title.")
    if len(clean) > 200:
        raise InputError("The title is longer than 200 characters.", field="title", todo="Shorten it.")
    conversation = own_conversation(owner, conversation_id)
    conversation.title, conversation.title_is_own = clean, True
    with transaction.atomic():
        conversation.save(update_fields=["title", "title_is_own"])
        index_title(conversation)
    return conversation


def conversation_delete(*, owner: User, conversation_id: uuid.UUID) -> Conversation:
    """Delete a conversation with all its turns. The ledger keeps what it cost, without any text. Raises `NotFound`.

    A turn that is being answered is stopped first: `ConflictError` until it has ended.
    """
    conversation = own_conversation(owner, conversation_id)
    if is_answering(conversation):
        conversation.turns.filter(state=TurnState.RUNNING).update(stop_requested=True)
        raise ConflictError(
            "An answer is still being written in this conversation.",
            kept="The conversation is still there.",
            todo="It is being stopped; delete it again in a moment.",
        )
    conversation_id = conversation.id
    conversation.delete()
    conversation.id = conversation_id
    return conversation


def conversation_set_campus_only(*, owner: User, conversation_id: uuid.UUID, on: bool) -> Conversation:
    """Close a conversation to the cloud, or open it again. Raises `NotFound`."""
    conversation = own_conversation(owner, conversation_id)
    conversation.data_policy = DataPolicy.CAMPUS_ONLY if on else DataPolicy.PUBLIC
    conversation.save(update_fields=["data_policy"])
    return conversation
