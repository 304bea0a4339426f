"""Walk the way to the campus GPUs hop by hop, and say in words which one fails. What `manage.py hpc_check` prints.

Each hop is a small callable, so that parts which know the relay and the keys add theirs. A hop after one that failed
is not asked: its answer would blame the wrong part.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from routing.backends.hpc.control import ControlError, JobMode, WorkerJob
from routing.backends.hpc.globus import GlobusControl
from routing.backends.hpc.globus_words import Refused

WORKER_STARTS_S = 600.0
# No worker has this key: it starts, reads its settings and refuses, before it dials anything.
PROBE_KID = "hpc-check"


class Verdict(StrEnum):
    OK = "ok"
    FAILS = "FAILS"
    UNASKED = "not asked"


@dataclass(frozen=True)
class Finding:
    verdict: Verdict
    said: str = ""
    todo: str = ""


@dataclass(frozen=True)
class Hop:
    """One part of the way. `ask` returns a sentence when it is well. Raises `ControlError`, or another of our errors."""

    name: str
    ask: Callable[[], str]


def walk(hops: Iterable[Hop]) -> Iterator[tuple[Hop, Finding]]:
    """Ask each hop until one fails; yield what each says."""
    failed = ""
    for hop in hops:
        if failed:
            yield hop, Finding(Verdict.UNASKED, f"Not asked: “{failed}” comes before it.")
            continue
        try:
            yield hop, Finding(Verdict.OK, hop.ask())
        except ControlError as error:
            failed = hop.name
            yield hop, Finding(Verdict.FAILS, error.happened, error.todo)


def globus_hops(control: GlobusControl, function_id: str) -> list[Hop]:
    """Return the hops from here to a worker that starts."""
    return [
        Hop("credential and endpoint", lambda: _health(control)),
        Hop("function", lambda: _function(control, function_id)),
        Hop("worker", lambda: _worker(control)),
    ]


def settings_hop(values: dict[str, str]) -> Hop:
    """Return the hop that looks whether all of `values` (name: value) are set."""

    def ask() -> str:
        missing = [name for name, value in values.items() if not value]
        if missing:
            raise ControlError(
                f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not set.",
                todo="Make a client at app.globus.org/settings/developers and set both (docs/globus.md).",
            )
        return f"{' and '.join(values)} are set."

    return Hop("settings", ask)


def _health(control: GlobusControl) -> str:
    health = control.health()
    if not health.online:
        raise ControlError(health.why, todo=health.todo)
    return "Globus accepts the credential, and the endpoint is online."


def _function(control: GlobusControl, configured: str) -> str:
    allowed = control.allowed()
    found = control.function_id()
    if not allowed:
        raise ControlError(
            f"The endpoint does not list the worker's function {found}.",
            todo=f"The HPC administrator adds {found} to `allowed_functions` in config.yaml and restarts the endpoint"
            + ("." if configured else f"; set GLOBUS_COMPUTE_FUNCTION_ID={found} here, or it is another each time."),
        )
    if not configured:
        return f"Registered now as {found}. Set GLOBUS_COMPUTE_FUNCTION_ID={found}."
    return f"The endpoint runs {found}."


def _worker(control: GlobusControl) -> str:
    probe = {"relay": "wss://hpc-check.invalid/v1", "kid": PROBE_KID, "cid": secrets.token_hex(16), "attempt": 1}
    handle = control.start(WorkerJob(JobMode.RESIDENT, {**probe, "salt_c": secrets.token_hex(32)}))
    try:
        handle.result(WORKER_STARTS_S)
    except Refused as error:
        if error.by_worker == "unknown_kid":
            return "A worker started on the cluster, and its settings are complete."
        raise
    except TimeoutError:
        raise ControlError(
            f"The job is {handle.state()} at the endpoint and no worker started within {WORKER_STARTS_S:.0f} s.",
            todo="Look at `squeue` and at the endpoint's log: is a node free, does the user endpoint start?",
        ) from None
    raise ControlError("The worker took a job that no worker can take.", todo="Compare the versions on both sides.")
