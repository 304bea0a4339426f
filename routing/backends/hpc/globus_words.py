"""Words for what goes wrong between us, the Globus services and an endpoint. The one seam for their exceptions.

| what                                       | found by                                 | again |
|--------------------------------------------|------------------------------------------|-------|
| credential expired or refused              | 401, or any 4xx of the token endpoint    | no    |
| endpoint offline                           | 409                                      | no    |
| function, endpoint unknown or not allowed  | 403, 404                                 | no    |
| too large                                  | 413                                      | no    |
| too many requests, service failing         | 429, 5xx                                 | yes   |
| no connection, reply lost                  | NetworkError                             | yes, when doing it twice is harmless |
| worker: not installed, not configured, ... | last line of its traceback               | no    |
"""

from __future__ import annotations

import re
from concurrent.futures import CancelledError

from routing.backends.hpc.control import ControlError, ControlHealth

REAUTHORISE = (
    "The HPC tier needs re-authorisation: an administrator makes a new secret for the Globus client and sets "
    "GLOBUS_COMPUTE_CLIENT_ID and GLOBUS_COMPUTE_CLIENT_SECRET. Other tiers work meanwhile."
)
OFFLINE_TODO = "Ask the HPC administrator to run `globus-compute-endpoint start` there. Other tiers work meanwhile."
_LATER = "Try again in a minute, or pick another tier."
_BY_STATUS = {
    401: ("Globus no longer accepts the credential of the campus tier.", REAUTHORISE),
    403: (
        "Globus does not let us run the worker on this endpoint: the function is not on its list, or the endpoint "
        "is not shared with our identity.",
        "The HPC administrator adds the function id to `allowed_functions` of the endpoint; "
        "`manage.py hpc_check` prints it.",
    ),
    404: (
        "Globus does not know the endpoint or the function.",
        "Compare the endpoint's id with `globus-compute-endpoint list` there, and GLOBUS_COMPUTE_FUNCTION_ID with "
        "`manage.py hpc_check`.",
    ),
    409: ("The HPC endpoint is offline.", OFFLINE_TODO),
    413: ("The job is larger than Globus Compute takes.", "Shorten the conversation, or pick another tier."),
    422: ("Globus did not understand the request.", "Compare the versions in docs/globus.md with those installed."),
    423: ("The endpoint is locked: it is being started or stopped.", _LATER),
    429: ("Globus takes no more requests from us for a moment.", _LATER),
}
_JOB_REFUSED = re.compile(r"JobRefused: (?P<said>.*)")
# What a worker's own last line says. First match wins.
_BY_TRACEBACK = (
    (
        re.compile(r"No module named '(hpc_worker|cryptography|websockets|httpx)"),
        "The worker's package is not installed in the environment of the endpoint's workers.",
        "The HPC administrator runs `pip install ./hpc_worker` there, in the Python of `worker_init`.",
    ),
    (
        re.compile(r"ConfigError: (?P<said>.*)"),
        "{said}",
        "The HPC administrator completes the worker's environment file (docs/globus.md).",
    ),
    (
        _JOB_REFUSED,
        "The worker refused the job: {said}",
        "Compare the relays and key ids of the platform with those in the worker's environment file.",
    ),
    (
        re.compile(r"(Deserialization|SerializationError|[Uu]nmarshal|UnpicklingError|_pickle|\bdill\b|bad marshal)"),
        "The endpoint could not read the job: its Globus Compute or Python differs too much from ours.",
        "Install the same globus-compute version on both sides and restart the endpoint (docs/globus.md).",
    ),
    (
        re.compile(r"WorkerLost|ManagerLost|worker_lost"),
        "The worker's process died, or its batch job was ended by the scheduler.",
        "Look at the endpoint's log. Often: out of memory, walltime, or Python versions that differ.",
    ),
)


class Refused(ControlError):
    """Asking again changes nothing until someone acts. `by_worker`: the worker's own code for what it refused."""

    retryable = False
    by_worker = ""


def translate(error: BaseException) -> ControlError:
    """Return `error` of the Globus packages as one of ours."""
    from globus_compute_sdk.errors import TaskExecutionFailed, VersionMismatch
    from globus_sdk import AuthAPIError, GlobusAPIError, NetworkError

    if isinstance(error, ControlError):
        return error
    if isinstance(error, AuthAPIError) and error.http_status < 500 and error.http_status != 429:
        return Refused(*_BY_STATUS[401][:1], todo=REAUTHORISE, upstream_status=error.http_status)
    if isinstance(error, GlobusAPIError):
        return _of_status(error.http_status)
    if isinstance(error, NetworkError):
        return ControlError("The Globus services could not be reached, or their reply was lost.", todo=_LATER)
    if isinstance(error, TaskExecutionFailed):
        return of_traceback(error.remote_data)
    if isinstance(error, VersionMismatch):
        return Refused(
            "Globus no longer supports our version of globus-compute-sdk.",
            todo="An administrator updates STREAM's requirements. Other tiers work meanwhile.",
        )
    if isinstance(error, CancelledError):
        return ControlError("The connection to Globus was closed while the job waited in it.", todo=_LATER)
    return ControlError(
        f"The connection for results of Globus Compute ended ({type(error).__name__}). "
        "A worker that was started may still be running.",
        todo=_LATER,
    )


def _of_status(status: int) -> ControlError:
    if status in _BY_STATUS:
        happened, todo = _BY_STATUS[status]
        kind = ControlError if status in (423, 429) else Refused
        return kind(happened, todo=todo, upstream_status=status)
    if status < 500:
        return Refused(
            f"Globus refused the request ({status}).",
            todo="Look at the log, and compare versions with docs/globus.md.",
            upstream_status=status,
        )
    return ControlError(f"The Globus services fail ({status}).", todo=_LATER, upstream_status=status)


def of_traceback(text: str) -> ControlError:
    """Return what a worker's failure says. Only a known sentence or an exception's name is passed on, never data."""
    for pattern, happened, todo in _BY_TRACEBACK:
        found = pattern.search(text)
        if found:
            said = found.groupdict().get("said", "")[:600].strip().rstrip(".") + "."
            error = Refused(happened.format(said=said), todo=todo)
            error.by_worker = said.rstrip(".") if pattern is _JOB_REFUSED else ""
            return error
    lines = [line for line in text.strip().splitlines() if line.strip()]
    kind = re.match(r"[\w.]+", lines[-1].strip()) if lines else None
    return ControlError(
        f"The worker failed on the endpoint ({kind.group() if kind else 'no reason given'}).",
        todo="The HPC administrator finds the reason in the endpoint's log under the job's id.",
    )


def health_of(error: ControlError) -> ControlHealth:
    """Return `error` as the state of the control plane."""
    return ControlHealth(online=False, why=error.happened, todo=error.todo)
