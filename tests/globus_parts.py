"""What tests against the real Globus Compute endpoint need beside STREAM, and what to say when it is not there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.setting_names import ROOT

ENDPOINT_VENV = ROOT / ".venv-endpoint"
ENDPOINT = ENDPOINT_VENV / "bin" / "globus-compute-endpoint"
# The script in sbin of Debian changes to the user rabbitmq; the one behind it runs as whoever starts it.
_SERVERS = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")


def find_rabbitmq() -> Path | None:
    """Return RabbitMQ's start script: RABBITMQ_SERVER, else where packages put it."""
    for name in (os.environ.get("RABBITMQ_SERVER", ""), *_SERVERS):
        found = shutil.which(name) if name else None
        if found:
            return Path(found)
    return None


def missing_parts() -> str:
    """Return why tests with Globus Compute cannot run, in words, or nothing."""
    parts = []
    if not find_rabbitmq() or not shutil.which("epmd"):
        parts.append("RabbitMQ is not installed (Debian: apt-get install rabbitmq-server)")
    if not ENDPOINT.exists():
        parts.append("the endpoint daemon is not installed (make endpoint-venv)")
    if not parts:
        return ""
    return f"The tests with a real Globus Compute endpoint do not run: {' and '.join(parts)}."
