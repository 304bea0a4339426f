"""`manage.py hpc_keys`: make, rotate, activate, retire and list the keys of campus endpoints.

Secrets are printed by `new`, `rotate` and `print` only, as lines for the worker's and the relay's configuration.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.core.management.base import BaseCommand, CommandError, CommandParser

from routing.hpc_keys import (
    accepted_keys,
    active_key,
    key_activate,
    key_create,
    key_retire,
    keys_ensure,
    ring_text,
)
from routing.hpc_models import Control, HpcEndpoint, HpcKey, Purpose
from routing.hpc_secrets import reseal_secret
from stream_site.errors import StreamError

_LINES = (
    ("worker", "STREAM_E2E_KEYS", Purpose.E2E),
    ("worker", "STREAM_PRODUCER_KEYS", Purpose.PRODUCER),
    ("relay", "RELAY_PRODUCER_KEYS", Purpose.PRODUCER),
    ("relay", "RELAY_CONSUMER_KEYS", Purpose.CONSUMER),
)


class Command(BaseCommand):
    help = "Make, rotate and list the keys of campus endpoints."

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True)
        new = acts.add_parser("new", help="make an endpoint (if it is not there) and the keys it lacks; print them")
        new.add_argument("endpoint")
        new.add_argument("--control", choices=[c.value for c in Control], default=Control.GLOBUS.value)
        new.add_argument("--model", default="", help="the name its model server gives the model")
        new.add_argument("--globus-endpoint", type=UUID, help="the id that `globus-compute-endpoint list` shows there")
        rotate = acts.add_parser("rotate", help="make another key; it is accepted, and used after `activate`")
        rotate.add_argument("endpoint")
        rotate.add_argument("purpose", choices=[p.value for p in Purpose])
        acts.add_parser("print", help="print the lines for worker and relay again").add_argument("endpoint")
        for name, words in (("activate", "use a key for new work"), ("retire", "accept a key no more")):
            acts.add_parser(name, help=words).add_argument("kid")
        acts.add_parser("list", help="list keys with their last use, without secrets")
        acts.add_parser("reseal", help="seal all keys with the first of STREAM_KEY_ENCRYPTION_KEY")

    def handle(self, *args: Any, act: str, **options: Any) -> None:
        try:
            getattr(self, f"do_{act}")(**options)
        except StreamError as error:
            raise CommandError(f"{error.happened} {error.todo}") from None

    def do_new(
        self, *, endpoint: str, control: str, model: str, globus_endpoint: UUID | None = None, **options: Any
    ) -> None:
        found = HpcEndpoint.objects.filter(name=endpoint).first()
        if found is None:
            if not model:
                raise CommandError(
                    f"There is no endpoint {endpoint}. To make it, say which model it runs: --model NAME"
                )
            found = HpcEndpoint(name=endpoint, label=endpoint, control=control, model=model)
        if globus_endpoint is not None:
            found.globus_endpoint = globus_endpoint
        found.full_clean()
        found.save()
        keys_ensure(endpoint=found)
        self._print(found)

    def do_rotate(self, *, endpoint: str, purpose: str, **options: Any) -> None:
        found = self._endpoint(endpoint)
        key = key_create(endpoint=found, purpose=Purpose(purpose))
        self._print(found)
        self.stdout.write(
            f"\nGive these lines to worker and relay and restart them; then run `manage.py hpc_keys activate {key.kid}`."
        )

    def do_print(self, *, endpoint: str, **options: Any) -> None:
        self._print(self._endpoint(endpoint))

    def do_activate(self, *, kid: str, **options: Any) -> None:
        self.stdout.write(f"{key_activate(kid=kid).kid} is used for new work.")

    def do_retire(self, *, kid: str, **options: Any) -> None:
        self.stdout.write(f"{key_retire(kid=kid).kid} is retired. Answers that still run with it end as damaged.")

    def do_list(self, **options: Any) -> None:
        for endpoint in HpcEndpoint.objects.prefetch_related("keys"):
            self.stdout.write(f"{endpoint.name} ({endpoint.control}, {'on' if endpoint.enabled else 'off'})")
            for key in endpoint.keys.all():
                self.stdout.write(f"  {key.kid:<12} {key.purpose:<9} {self._state(endpoint, key)}")

    def do_reseal(self, **options: Any) -> None:
        for key in HpcKey.objects.all():
            key.secret = reseal_secret(key.secret)
            key.save(update_fields=["secret"])
        self.stdout.write(f"{HpcKey.objects.count()} keys are sealed with the first key of the settings.")

    def _state(self, endpoint: HpcEndpoint, key: HpcKey) -> str:
        active = active_key(endpoint, Purpose(key.purpose))
        state = "retired" if key.retired else "in use" if active and active.pk == key.pk else "accepted"
        used = f", last used {key.last_used:%Y-%m-%d %H:%M} UTC" if key.last_used else ""
        return f"{state}, made {key.created:%Y-%m-%d}{used}"

    def _print(self, endpoint: HpcEndpoint) -> None:
        self.stdout.write(f"# {endpoint.name}: these are secrets. Keep them in files with mode 600.")
        for who, name, purpose in _LINES:
            self.stdout.write(f"{name}={ring_text(accepted_keys(endpoint, purpose))}    # {who}")

    def _endpoint(self, name: str) -> HpcEndpoint:
        found = HpcEndpoint.objects.filter(name=name).first()
        if found is None:
            raise CommandError(
                f"There is no endpoint {name}. Make it with `manage.py hpc_keys new {name} --model NAME`."
            )
        return found
