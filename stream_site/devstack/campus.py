"""The demonstration's campus: an endpoint with keys, a relay inside the web process, a second model server, a dispatcher.

Only the place is small: relay, worker, sealing and protocol are those of a real campus (docs/hpc.md).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from routing.hpc_keys import accepted_keys, demo_endpoint_ensure, ring_text
from routing.hpc_models import HpcEndpoint, Purpose
from stream_site.devstack import specs
from stream_site.devstack.local_model import EMBEDDED_MODEL
from stream_site.devstack.places import free_port, private_folder


@dataclass(frozen=True)
class DemoCampus:
    """What runs for it, in this order, and what the web process gets for its relay."""

    model: specs.Child
    dispatcher: specs.Child
    web_env: Mapping[str, str]


def is_wanted(admin: Mapping[str, str]) -> bool:
    """Say whether the administrator left the campus tier to the demonstration."""
    return admin.get("DEMO_CAMPUS", "1") != "0" and not admin.get("RELAY_URLS")


def demo_campus(site: specs.Site, env: Mapping[str, str]) -> DemoCampus | None:
    """Make the endpoint `demo` and its keys where they are missing; None when another endpoint is there, or none is
    wanted. Uses the database."""
    others = HpcEndpoint.objects.exclude(name="demo").filter(enabled=True).exists()
    if others or not is_wanted(os.environ):
        HpcEndpoint.objects.filter(name="demo").update(enabled=False)
        return None
    relay_name = f"{site.own_host}:{site.port}"
    endpoint = demo_endpoint_ensure(relay=f"ws://{relay_name}/relay/v1", model=EMBEDDED_MODEL)
    folder = site.var_dir / "relay"
    private_folder(folder)
    web_env = {
        "STREAM_EMBEDDED_RELAY": "1",
        "RELAY_NAME": relay_name,
        "RELAY_CONSUMER_KEYS_FILE": _key_file(folder, endpoint, Purpose.CONSUMER),
        "RELAY_PRODUCER_KEYS_FILE": _key_file(folder, endpoint, Purpose.PRODUCER),
    }
    port, key = free_port(), secrets.token_urlsafe(24)
    dispatcher_env = {**env, "HPC_DEMO_MODEL_URL": f"http://127.0.0.1:{port}/v1", "HPC_DEMO_MODEL_KEY": key}
    return DemoCampus(
        specs.model_server(site, port, key, name="campus-model"), specs.hpc_dispatcher(site, dispatcher_env), web_env
    )


def _key_file(folder: Path, endpoint: HpcEndpoint, purpose: Purpose) -> str:
    """Write the relay's admission keys where only this account reads them. A relay never gets a content key."""
    path = folder / f"{purpose.value}_keys"
    path.touch(mode=0o600)
    path.write_text(ring_text(accepted_keys(endpoint, purpose)) + "\n", encoding="ascii")
    return str(path)
