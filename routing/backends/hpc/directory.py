"""Which campus endpoints there are, with their keys opened. Sync, over the database; async callers cross once.

What it returns holds keys in clear and is never printed or logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from hpc_worker.keyring import Keyring, relay_name
from routing.hpc_keys import accepted_keys, active_key
from routing.hpc_models import HpcEndpoint, HpcKey, Purpose
from routing.hpc_secrets import open_secret
from stream_site.errors import UpstreamError

USED_EVERY = timedelta(minutes=1)


class CampusSetupError(UpstreamError):
    """An endpoint lacks something that an administrator must add."""

    code = "hpc_setup"
    retryable = False
    title = "The campus tier is not set up completely"


@dataclass(frozen=True, repr=False)
class Campus:
    """One endpoint, ready to be used. `relays`: URL -> the relay's name in the admission mac."""

    id: int
    name: str
    label: str
    control: str
    model: str
    relays: Mapping[str, str]
    content: Keyring
    producers: Keyring
    consumer: tuple[str, bytes]
    globus_endpoint: str = ""
    min_workers: int = 0
    max_workers: int = 1
    idle_s: int = 600
    batch_only: bool = False
    pause: tuple[float, float] = (0.0, 0.0)  # maintenance, Unix time

    def paused_words(self, now: float) -> str:
        """Return, during maintenance, until when it lasts; else nothing."""
        begins, ends = self.pause
        if not begins <= now < ends:
            return ""
        return f"{self.label} is being serviced until {datetime.fromtimestamp(ends, UTC):%Y-%m-%d %H:%M} UTC."

    @property
    def is_demo(self) -> bool:
        return self.control == "process"


def parse_relays(text: str) -> dict[str, str]:
    """Read `[name=]url[,...]`, as workers do. Raises `ValueError`."""
    found = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, url = entry.rpartition("=")
        found[url] = name or relay_name(url)
    return found


def enabled_endpoints() -> list[HpcEndpoint]:
    """Return the endpoints that may answer, with their keys."""
    return list(HpcEndpoint.objects.filter(enabled=True).prefetch_related("keys"))


def campus_of(endpoint: HpcEndpoint) -> Campus:
    """Return an endpoint with its keys opened. Raises `CampusSetupError`."""
    try:
        relays = parse_relays(endpoint.relays or ",".join(settings.RELAY_URLS))
    except ValueError as error:
        raise _lacks(endpoint, f"one of its relays cannot be used: {error}") from None
    if not relays:
        raise _lacks(endpoint, "it has no relay: set its relays, or RELAY_URLS")
    consumer = active_key(endpoint, Purpose.CONSUMER)
    if consumer is None:
        raise _lacks(endpoint, f"it has no keys: run `manage.py hpc_keys new {endpoint.name}`")
    return Campus(
        id=endpoint.pk,
        name=endpoint.name,
        label=endpoint.label,
        control=endpoint.control,
        model=endpoint.model,
        relays=relays,
        content=_ring(endpoint, Purpose.E2E),
        producers=_ring(endpoint, Purpose.PRODUCER),
        consumer=(consumer.kid, open_secret(consumer.secret)),
        globus_endpoint=str(endpoint.globus_endpoint or ""),
        min_workers=endpoint.min_workers,
        max_workers=endpoint.max_workers,
        idle_s=endpoint.idle_s,
        batch_only=endpoint.batch_only,
        pause=_pause(endpoint),
    )


def campuses() -> tuple[list[Campus], list[CampusSetupError]]:
    """Return every endpoint that may answer, and why others cannot."""
    found: list[Campus] = []
    wrong: list[CampusSetupError] = []
    for endpoint in enabled_endpoints():
        try:
            found.append(campus_of(endpoint))
        except CampusSetupError as error:
            wrong.append(error)
    return found, wrong


def campus_for(model: str) -> Campus:
    """Return the endpoint that runs `model`. Raises `CampusSetupError`."""
    endpoint = next((e for e in enabled_endpoints() if e.model == model), None)
    if endpoint is None:
        raise CampusSetupError(
            f"No campus endpoint that is switched on runs {model}.",
            todo="Pick another model or tier, or ask an administrator.",
        )
    return campus_of(endpoint)


def note_key_used(kid: str) -> None:
    """Remember that a worker used the content key `kid`, to the minute."""
    now = timezone.now()
    stale = Q(last_used=None) | Q(last_used__lt=now - USED_EVERY)
    HpcKey.objects.filter(stale, kid=kid).update(last_used=now)


def _pause(endpoint: HpcEndpoint) -> tuple[float, float]:
    if endpoint.pause_until is None:
        return 0.0, 0.0
    return endpoint.pause_from.timestamp() if endpoint.pause_from else 0.0, endpoint.pause_until.timestamp()


def _ring(endpoint: HpcEndpoint, purpose: Purpose) -> Keyring:
    keys = accepted_keys(endpoint, purpose)
    primary = active_key(endpoint, purpose)
    if primary is None:
        raise _lacks(endpoint, f"it has no key in use ({purpose.value}): run `manage.py hpc_keys new {endpoint.name}`")
    return Keyring(primary.kid, {key.kid: open_secret(key.secret) for key in keys})


def _lacks(endpoint: HpcEndpoint, what: str) -> CampusSetupError:
    return CampusSetupError(
        f"The campus endpoint {endpoint.label} cannot be used: {what}.",
        todo="Ask an administrator, or pick another tier.",
    )
