"""Conversations and turns. A turn is one user message and its answer; a second answer is a new version of it."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Now

from routing.types import DataPolicy, Outcome, Tier


class Conversation(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="conversations")
    title = models.CharField(max_length=200)
    title_is_own = models.BooleanField(default=False, help_text="The owner named it; it is not made from the question.")
    data_policy = models.CharField(
        max_length=16, choices=[(p.value, p.value) for p in DataPolicy], default=DataPolicy.PUBLIC
    )
    created_at = models.DateTimeField(db_default=Now())
    updated_at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes = [models.Index(fields=["owner", "-updated_at"], name="conversation_recent")]

    def __str__(self) -> str:
        return self.title


class TurnState(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"


class Turn(models.Model):
    """One question and one answer to it.

    `position` counts questions of a conversation from 1; `version` counts answers to the same question from 1.
    `fence` grows each time a runner takes the turn: writes of a runner that lost it are refused.
    `events_end` is the number of the last event stored; events themselves are in `TurnEvents`.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="turns")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="turns")
    client_id = models.UUIDField(help_text="Made by the sender, once per send: the same id never makes two turns.")
    position = models.PositiveIntegerField()
    version = models.PositiveIntegerField(default=1)
    continues = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="continuations")

    question = models.TextField()
    tier_choice = models.CharField(max_length=8, default="auto")
    model_choice = models.CharField(max_length=200, blank=True, default="")

    state = models.CharField(max_length=8, choices=TurnState, default=TurnState.QUEUED)
    outcome = models.CharField(max_length=12, choices=[(o.value, o.value) for o in Outcome], blank=True, default="")
    answer = models.TextField(blank=True, default="")
    reasoning = models.TextField(blank=True, default="")
    error = models.JSONField(null=True, blank=True)
    route = models.JSONField(null=True, blank=True)
    tier = models.CharField(max_length=8, choices=[(t.value, t.label) for t in Tier], blank=True, default="")
    model = models.CharField(max_length=200, blank=True, default="")
    model_label = models.CharField(max_length=200, blank=True, default="")
    attempts = models.PositiveSmallIntegerField(default=0)

    tokens_in = models.PositiveIntegerField(default=0)
    tokens_out = models.PositiveIntegerField(default=0)
    tokens_estimated = models.BooleanField(default=False)
    cost_micro = models.BigIntegerField(default=0, help_text="US micro-dollars, all attempts")
    first_text_ms = models.PositiveIntegerField(
        null=True, blank=True, help_text="from acceptance to the first text or reasoning"
    )
    total_ms = models.PositiveIntegerField(null=True, blank=True)

    steps = models.JSONField(
        default=list, blank=True, help_text="What happened when, for `manage.py explain_turn`: see chat.steps."
    )
    events_end = models.PositiveIntegerField(default=0)
    runner = models.CharField(max_length=64, blank=True, default="")
    fence = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True, blank=True)
    stop_requested = models.BooleanField(default=False)
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["position", "version"]
        constraints = [
            models.UniqueConstraint(fields=["owner", "client_id"], name="turn_once_per_client_id"),
            models.UniqueConstraint(fields=["conversation", "position", "version"], name="turn_place"),
            models.CheckConstraint(
                condition=(Q(state="ended") & ~Q(outcome="")) | (~Q(state="ended") & Q(outcome="")),
                name="turn_ended_has_one_outcome",
            ),
        ]
        indexes = [
            models.Index(fields=["created_at"], condition=Q(state="queued"), name="turn_queue"),
            models.Index(fields=["lease_until"], condition=Q(state="running"), name="turn_leases"),
        ]

    def __str__(self) -> str:
        return f"{self.position}.{self.version} of {self.conversation_id}"


class TurnEvents(models.Model):
    """A batch of stored events of one turn: `events` is a list of event dictionaries, `first_seq` to `last_seq`."""

    turn = models.ForeignKey(Turn, models.CASCADE, related_name="event_batches")
    first_seq = models.PositiveIntegerField()
    last_seq = models.PositiveIntegerField()
    events = models.JSONField()

    class Meta:
        ordering = ["first_seq"]
        constraints = [
            models.UniqueConstraint(fields=["turn", "first_seq"], name="events_once"),
            models.CheckConstraint(condition=Q(last_seq__gte=F("first_seq")), name="events_in_order"),
        ]

    def __str__(self) -> str:
        return f"{self.first_seq}-{self.last_seq} of {self.turn_id}"


class SearchText(models.Model):
    """One searchable text: a title, a question or an answer. Kept by `chat.search`, indexed by the database."""

    class Where(models.TextChoices):
        TITLE = "title"
        QUESTION = "question"
        ANSWER = "answer"

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    conversation = models.ForeignKey(Conversation, models.CASCADE, related_name="search_texts")
    turn = models.ForeignKey(Turn, models.CASCADE, null=True, blank=True, related_name="search_texts")
    where = models.CharField(max_length=8, choices=Where)
    text = models.TextField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["turn", "where"], name="search_turn_text_once"),
            models.UniqueConstraint(fields=["conversation"], condition=Q(turn=None), name="search_title_once"),
        ]

    def __str__(self) -> str:
        return f"{self.where} of {self.conversation_id}"
