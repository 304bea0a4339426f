"""What a job on the endpoint meets: a real relay, the scripted model server, and the worker's settings file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from hpc_worker.bodies import Offer
from routing.backends.hpc.control import JobMode, WorkerJob
from tests.fixtures_upstream import UpstreamControl
from tests.integration.hpc_worker.consumer import Consumer
from tests.integration.hpc_worker.test_worker import environ
from tests.integration.relay.peers import RelayProcess

# The SDK's AMQP library leaves the closing of a socket pair to the garbage collector.
GLOBUS = [pytest.mark.globus, pytest.mark.filterwarnings("ignore::ResourceWarning")]


@dataclass
class Campus:
    relay: RelayProcess
    settings: Path


def write_settings(path: Path, relay_url: str, upstream: UpstreamControl) -> None:
    """Write worker.ini as the kit's example has it: private, with the keys in it."""
    path.touch(mode=0o600)
    lines = [f"{name.lower()} = {value}" for name, value in environ(relay_url, upstream).items()]
    path.write_text("[worker]\n" + "\n".join(lines) + "\n")


def mailbox_job(mailbox: Consumer) -> WorkerJob:
    arguments = {
        "relay": mailbox.url,
        "kid": mailbox.scope.kid,
        "cid": mailbox.scope.cid.hex(),
        "attempt": mailbox.scope.attempt,
        "salt_c": mailbox.salt_c.hex(),
    }
    return WorkerJob(JobMode.RESIDENT, arguments)


def job_for(offer: Offer, mode: JobMode) -> WorkerJob:
    arguments = {
        "relay": offer.relay,
        "kid": offer.kid,
        "cid": offer.cid.hex(),
        "attempt": offer.attempt,
        "salt_c": offer.salt_c.hex(),
        "deadline_s": offer.deadline_s,
        "prompt": offer.prompt.hex(),
    }
    return WorkerJob(mode, arguments)
