"""Write what `manage.py hpc_keys` and the demonstration need: endpoints and their keys. Sync services."""

from __future__ import annotations

import os
import secrets
from datetime import datetime

from django.db import transaction
from django.utils import timezone

from routing.hpc_models import Control, HpcEndpoint, HpcKey, Purpose
from routing.hpc_secrets import open_secret, seal_secret
from stream_site.errors import ConflictError, NotFound

_LETTER = {Purpose.E2E: "e", Purpose.PRODUCER: "p", Purpose.CONSUMER: "c"}


def key_create(*, endpoint: HpcEndpoint, purpose: Purpose) -> HpcKey:
    """Make a key. The first of its purpose is used at once, a later one only after `key_activate`."""
    with transaction.atomic():
        first = not endpoint.keys.filter(purpose=purpose, retired=None).exists()
        return HpcKey.objects.create(
            endpoint=endpoint,
            kid=f"{_LETTER[purpose]}-{secrets.token_hex(4)}",
            purpose=purpose,
            secret=seal_secret(os.urandom(32)),
            activated=timezone.now() if first else None,
        )


def keys_ensure(*, endpoint: HpcEndpoint) -> None:
    """Make the keys that an endpoint lacks."""
    for purpose in Purpose:
        if not endpoint.keys.filter(purpose=purpose, retired=None).exists():
            key_create(endpoint=endpoint, purpose=purpose)


def key_activate(*, kid: str) -> HpcKey:
    """Use `kid` for new work from now on. Raises `NotFound` or `ConflictError`."""
    key = _key(kid)
    if key.retired:
        raise ConflictError(f"The key {kid} is retired.", todo="Make a new one.")
    return _stamp(key, "activated")


def key_retire(*, kid: str) -> HpcKey:
    """Accept `kid` no more. Raises `NotFound`, or `ConflictError` while it is the one in use."""
    key = _key(kid)
    in_use = active_key(key.endpoint, Purpose(key.purpose))
    if in_use is not None and in_use.pk == key.pk:
        raise ConflictError(
            f"The key {kid} is the one in use.",
            todo="Make another with `hpc_keys rotate`, activate it, then retire this.",
        )
    return _stamp(key, "retired")


def _key(kid: str) -> HpcKey:
    key = HpcKey.objects.select_related("endpoint").filter(kid=kid).first()
    if key is None:
        raise NotFound(f"There is no key {kid}.", todo="See `manage.py hpc_keys list`.")
    return key


def _stamp(key: HpcKey, field: str) -> HpcKey:
    now: datetime = timezone.now()
    setattr(key, field, now)
    key.save(update_fields=[field])
    return key


def accepted_keys(endpoint: HpcEndpoint, purpose: Purpose) -> list[HpcKey]:
    """Return the keys that count, the one in use first, then the newest."""
    keys = [key for key in endpoint.keys.all() if key.purpose == purpose and not key.retired]
    oldest = datetime.min.replace(tzinfo=timezone.get_current_timezone())
    return sorted(keys, key=lambda key: (key.activated or oldest, key.pk), reverse=True)


def active_key(endpoint: HpcEndpoint, purpose: Purpose) -> HpcKey | None:
    """Return the key for new work: the one activated last."""
    return next((key for key in accepted_keys(endpoint, purpose) if key.activated), None)


def ring_text(keys: list[HpcKey]) -> str:
    """Return keys as `kid:hex64[,...]`, in clear: for a worker's or a relay's configuration only."""
    return ",".join(f"{key.kid}:{open_secret(key.secret).hex()}" for key in keys)


def demo_endpoint_ensure(*, relay: str, model: str) -> HpcEndpoint:
    """Make the demonstration endpoint and its keys, or point it at the present relay and model."""
    endpoint, _ = HpcEndpoint.objects.update_or_create(
        name="demo",
        defaults={"label": "Demo campus", "control": Control.PROCESS, "relays": relay, "model": model},
        create_defaults={
            "label": "Demo campus",
            "control": Control.PROCESS,
            "relays": relay,
            "model": model,
            "min_workers": 1,
        },
    )
    keys_ensure(endpoint=endpoint)
    return endpoint
