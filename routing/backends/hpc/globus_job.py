"""What may be handed to Globus Compute: one function, and arguments in which nothing is readable that should not be.

The operator of the hosted service and of the endpoint can read all arguments. So only known names pass: addresses of a
relay channel, numbers, and a prompt that is sealed. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from routing.backends.hpc.control import ControlError, JobMode, WorkerJob

FUNCTION_NAME = "stream_worker"
# Registered as source: no bytecode, so Python and dill may differ between the platform and the endpoint.
FUNCTION_SOURCE = f'''\
def {FUNCTION_NAME}(job):
    """Run a worker of STREAM. Everything it does is in the package stream-hpc-worker on the node."""
    from hpc_worker import worker

    if job["mode"] == "resident":
        return worker.run(job["arguments"])
    return worker.run_task(job["arguments"])
'''

# The service takes 10 MB for all tasks of one request together, and quotes are escaped on the way.
MAX_ARGUMENTS_BYTES = 1_000_000
TASKS_PER_REQUEST = 8

_HEX = re.compile(r"(?:[0-9a-f]{2})+")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MAILBOX = {"relay": "url", "kid": "name", "cid": "hex", "attempt": "count", "salt_c": "hex"}
_OFFER = {**_MAILBOX, "deadline_s": "count", "prompt": "hex", "batch": "flag"}
_KINDS = {JobMode.RESIDENT: _MAILBOX, JobMode.TASK: _OFFER, JobMode.BATCH: _OFFER}


def pack(job: WorkerJob) -> dict[str, Any]:
    """Return the function's one argument as plain JSON data. Raises `ControlError` for what must not leave."""
    kinds = _KINDS[job.mode]
    for name, value in job.arguments.items():
        if name not in kinds:
            raise _refused(f"“{str(name)[:40]}” is not one of {', '.join(kinds)}")
        if not _fits(kinds[name], value):
            raise _refused(f"“{name}” is not of the kind “{kinds[name]}”")
    missing = [name for name in kinds if name not in job.arguments and kinds[name] != "flag"]
    if missing:
        raise _refused(f"{', '.join(missing)} is missing")
    size = len(json.dumps(dict(job.arguments), allow_nan=False))
    if size > MAX_ARGUMENTS_BYTES:
        raise ControlError(
            f"The job has {size:,} bytes of arguments and Globus Compute is given {MAX_ARGUMENTS_BYTES:,} at most.",
            todo="Shorten the conversation, or ask while a worker is running: it takes longer ones.",
        )
    mode = "resident" if job.mode is JobMode.RESIDENT else "task"
    return {"mode": mode, "arguments": _with_batch(job.mode, job.arguments)}


def _with_batch(mode: JobMode, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {**arguments, "batch": True} if mode is JobMode.BATCH else dict(arguments)


def _fits(kind: str, value: object) -> bool:
    if kind == "count":
        return type(value) is int and value >= 0
    if kind == "flag":
        return type(value) is bool
    if not isinstance(value, str):
        return False
    if kind == "hex":
        return _HEX.fullmatch(value) is not None
    if kind == "name":
        return _NAME.fullmatch(value) is not None
    return _is_relay(value)


def _is_relay(value: str) -> bool:
    try:
        parts = urlsplit(value)
        hidden = parts.username or parts.password or parts.query or parts.fragment
    except ValueError:
        return False
    return parts.scheme in ("ws", "wss") and bool(parts.hostname) and not hidden and len(value) <= 300


def _refused(why: str) -> ControlError:
    return ControlError(
        f"The job was not handed to Globus Compute, whose operators can read it: {why}.",
        todo="This is a fault of STREAM: tell its developers. Other tiers go on.",
    )
