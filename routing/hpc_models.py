"""The campus tier in the database: endpoints, their keys, and the mailboxes of resident workers.

Keys are sealed with the site's own key (`routing.hpc_secrets`); `routing.backends.hpc.directory` alone opens them.
"""

from __future__ import annotations

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone


class Control(models.TextChoices):
    """What starts workers at an endpoint."""

    PROCESS = "process", "processes of this machine (demonstration)"
    GLOBUS = "globus", "Globus Compute"


class Purpose(models.TextChoices):
    """Who holds a key beside the platform: e2e the worker; producer worker and relay; consumer the relay."""

    E2E = "e2e", "content, end to end"
    PRODUCER = "producer", "admission of workers at the relay"
    CONSUMER = "consumer", "admission of the platform at the relay"


class HpcEndpoint(models.Model):
    """One place with GPUs that answers questions of the campus tier."""

    name = models.CharField(max_length=32, unique=True, validators=[RegexValidator(r"^[a-z0-9-]+\Z")])
    label = models.CharField(max_length=100, help_text="What people read.")
    control = models.CharField(max_length=16, choices=Control)
    relays = models.TextField(
        blank=True, default="", help_text="[name=]url, comma-separated, as workers dial them; empty: RELAY_URLS."
    )
    globus_endpoint = models.UUIDField(null=True, blank=True)
    model = models.CharField(max_length=200, help_text="The name its model server gives the model.")
    enabled = models.BooleanField(default=True)
    min_workers = models.PositiveSmallIntegerField(default=0, help_text="Workers kept running without questions.")
    max_workers = models.PositiveSmallIntegerField(default=1)
    idle_s = models.PositiveIntegerField(default=600, help_text="Seconds without a question after which one may end.")
    batch_only = models.BooleanField(
        default=False, help_text="Nodes cannot reach the relay: each answer comes back whole, as the result of a task."
    )
    pause_from = models.DateTimeField(null=True, blank=True, help_text="Maintenance: workers are told to end then.")
    pause_until = models.DateTimeField(null=True, blank=True, help_text="When workers may be started again.")

    class Meta:
        ordering = ["name"]
        verbose_name = "campus endpoint"

    def __str__(self) -> str:
        return self.label


class HpcKey(models.Model):
    """One key. `activated` is empty while it is accepted but not yet used; `retired` ends it for good."""

    endpoint = models.ForeignKey(HpcEndpoint, models.CASCADE, related_name="keys")
    kid = models.CharField(max_length=16, unique=True)
    purpose = models.CharField(max_length=8, choices=Purpose)
    secret = models.TextField(editable=False)
    created = models.DateTimeField(default=timezone.now, editable=False)
    activated = models.DateTimeField(null=True, blank=True, editable=False)
    last_used = models.DateTimeField(null=True, blank=True, editable=False)
    retired = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ["endpoint", "purpose", "id"]
        verbose_name = "campus key"

    def __str__(self) -> str:
        return f"{self.kid} ({self.purpose} of {self.endpoint_id})"


class HpcMailbox(models.Model):
    """The channel of one resident worker. `epoch` counts the dispatchers that held it: each has sequences of its own."""

    endpoint = models.ForeignKey(HpcEndpoint, models.CASCADE, related_name="mailboxes")
    cid = models.CharField(max_length=32, unique=True)
    salt_c = models.CharField(max_length=64)
    kid = models.CharField(max_length=16)
    relay = models.CharField(max_length=300)
    epoch = models.PositiveIntegerField(default=0)
    last_seq = models.BigIntegerField(default=0, help_text="The last frame that was stored.")
    job_id = models.CharField(max_length=100, blank=True, default="")
    opened = models.DateTimeField(default=timezone.now)
    closed = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        indexes = [models.Index(fields=["endpoint"], condition=Q(closed=None), name="hpc_open_mailboxes")]

    def __str__(self) -> str:
        return f"mailbox {self.pk} of {self.endpoint_id}"
