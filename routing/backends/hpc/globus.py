"""The control plane on Globus Compute: start a worker on an HPC endpoint, through the real SDK, and follow it.

    start ──accepted──▶ queued ──▶ running ──▶ ended
      │                   │           │
      └── ControlError    └───────────┴──▶ failed     also by our own deadline: a future of the SDK may never complete

`start` returns when the service has accepted the task. A submit whose reply was lost may have been accepted: it is sent
again with the same channel and attempt, and the relay lets one of two workers in. A batch job has no relay to do that,
so it is not sent twice. There is no cancel at Globus: a worker ends when its channel at the relay does.

Sync; importing the SDK takes about a second and starts a thread, so that is left to the first use.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from routing.backends.hpc.control import ControlError, ControlHealth, JobHandle, JobMode, JobState, WorkerJob
from routing.backends.hpc.globus_executor import Destination, GuardedExecutor
from routing.backends.hpc.globus_identity import Identity
from routing.backends.hpc.globus_job import FUNCTION_NAME, FUNCTION_SOURCE, pack
from routing.backends.hpc.globus_words import OFFLINE_TODO, Refused, health_of, translate

if TYPE_CHECKING:
    from globus_compute_sdk import Client
    from globus_compute_sdk.sdk.asynchronous.compute_future import ComputeFuture

_LOG = logging.getLogger(__name__)
ATTEMPTS = 3
FIRST_PAUSE_S = 0.3
STAGE_EVERY_S = 5.0
_RUNNING = frozenset({"running", "execution-start", "execution-end"})
_STAGE_WORDS = {
    JobState.SUBMITTED: "It was accepted, and the endpoint did not take it.",
    JobState.QUEUED: "It was waiting on the endpoint, most likely for the scheduler to give it a node.",
    JobState.RUNNING: "It was running.",
}


@dataclass(frozen=True)
class Deadlines:
    """Seconds after which we end what the SDK would wait for without end."""

    submit_s: float = 30.0
    job_s: Mapping[JobMode, float] = field(
        default_factory=lambda: {
            JobMode.RESIDENT: 14 * 86_400.0,  # Globus forgets a task after two weeks
            JobMode.TASK: 1_800.0,
            JobMode.BATCH: 3_600.0,
        }
    )


class GlobusJob:
    """A task at Globus Compute. `id` is its task id there."""

    def __init__(self, future: ComputeFuture, client: Client, limit_s: float) -> None:
        self.id = str(future.task_id)
        self._future = future
        self._client = client
        self._limit_s = limit_s
        self._started = time.monotonic()
        self._stage = JobState.SUBMITTED
        self._stage_at = self._started - STAGE_EVERY_S + 1.0
        self._cancelled = False
        self._over = Event()
        future.add_done_callback(lambda _: self._over.set())

    def state(self) -> JobState:
        """Return how far it is. Asks the service, a few seconds at most, when that was not done lately."""
        if self._cancelled:
            return JobState.ENDED
        if self._future.done():
            ok = not self._future.cancelled() and self._future.exception() is None
            return JobState.ENDED if ok else JobState.FAILED
        if self._left_s() <= 0:
            return JobState.FAILED
        self._look()
        return self._stage

    def result(self, timeout_s: float) -> Any:
        self._over.wait(max(0.0, min(timeout_s, self._left_s())))
        if self._cancelled:
            raise ControlError("The job was given up.", todo="Its worker ends when its channel at the relay does.")
        if not self._future.done():
            if self._left_s() > 0:
                raise TimeoutError(f"Task {self.id} is not done after {timeout_s:g} s.")
            raise self._overdue()
        try:
            return self._future.result()
        except (Exception, CancelledError) as error:
            _LOG.warning("task %s failed: %s", self.id, type(error).__name__)
            raise translate(error) from error

    def cancel(self) -> None:
        """Give the job up here. Globus cannot end a task: its worker ends when its channel at the relay does."""
        if not self._future.done():
            # The SDK's future is left alone: its thread for results dies of a task that fails after a cancel.
            self._cancelled = True
            self._over.set()

    def _left_s(self) -> float:
        return self._started + self._limit_s - time.monotonic()

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._stage_at < STAGE_EVERY_S:
            return
        self._stage_at = now
        from globus_sdk import GlobusError

        try:
            status = self._client._compute_web_client.v2.get_task(self.id).data.get("status", "")
        except GlobusError as error:
            _LOG.info("the stage of task %s is unknown: %s", self.id, translate(error).happened)
            return
        if status in _RUNNING:
            self._stage = JobState.RUNNING
        elif status.startswith("waiting") or status == "pending":
            self._stage = JobState.QUEUED

    def _overdue(self) -> ControlError:
        return ControlError(
            f"The job had no end within {self._limit_s:g} s. {_STAGE_WORDS[self._stage]}",
            todo="Try again, or pick another tier. `manage.py hpc_check` says which part does not answer.",
        )


class GlobusControl:
    """Start workers on one endpoint in one name. Thread-safe; one of these per identity and endpoint in a process."""

    name = "globus"

    def __init__(
        self,
        identity: Identity,
        destination: Destination,
        *,
        function_id: str = "",
        deadlines: Deadlines | None = None,
    ) -> None:
        self.executor = GuardedExecutor(identity, destination)
        self._identity = identity
        self._endpoint_id = destination.endpoint_id
        self._deadlines = deadlines or Deadlines()
        self._function_id = function_id
        self._registering = Lock()

    def start(self, job: WorkerJob) -> JobHandle:
        """Start a worker; return when the service has accepted it. Raises `ControlError`."""
        argument = pack(job)
        deadline = time.monotonic() + self._deadlines.submit_s
        for attempt in range(1, ATTEMPTS + 1):
            left_s = max(1.0, deadline - time.monotonic())
            try:
                future = self.executor.submit(self.function_id(), argument, left_s)
                return GlobusJob(future, self.executor.client(), self._deadlines.job_s[job.mode])
            except TimeoutError:
                raise ControlError(
                    f"Globus Compute did not accept the job within {self._deadlines.submit_s:g} s.",
                    todo="Try again in a minute, or pick another tier.",
                ) from None
            except Exception as error:
                said = translate(error)
                _LOG.warning("submit %d as %s failed: %s", attempt, self._identity.name, said.happened)
                if not self._again(said, error, job.mode, attempt) or time.monotonic() > deadline:
                    raise said from error
            time.sleep(FIRST_PAUSE_S * 2**attempt * (0.5 + random.random()))
        raise AssertionError("the last attempt returns or raises")

    def function_id(self) -> str:
        """Return the id of our function at Globus: the configured one, or one registered now, once per process.

        An endpoint with `allowed_functions` knows only one that was registered before it was configured.
        """
        with self._registering:
            if not self._function_id:
                self._function_id = self.executor.client().register_source_code(
                    FUNCTION_SOURCE, FUNCTION_NAME, description="Starts a worker of STREAM."
                )
                _LOG.info("registered the worker's function as %s", self._function_id)
            return self._function_id

    def allowed(self) -> bool:
        """Return whether the endpoint's list, if it has one, has our function. Raises `ControlError`."""
        try:
            listed = self.executor.client().get_allowed_functions(self._endpoint_id)
            return not listed.get("restricted") or self.function_id() in (listed.get("functions") or [])
        except Exception as error:
            raise translate(error) from error

    def health(self) -> ControlHealth:
        """Ask whether the credential is good and the endpoint online. No exception: what fails is in the words."""
        try:
            client = self.executor.client()
            client.version_check()
            status = client.get_endpoint_status(self._endpoint_id)
        except Exception as error:  # noqa: BLE001 - translated
            return health_of(translate(error))
        if status.get("status") != "online":
            return ControlHealth(online=False, why="The HPC endpoint is offline.", todo=OFFLINE_TODO)
        return ControlHealth(online=True)

    def close(self) -> None:
        self.executor.close()

    @staticmethod
    def _again(said: ControlError, error: BaseException, mode: JobMode, attempt: int) -> bool:
        if isinstance(said, Refused) or attempt == ATTEMPTS:
            return False
        # Anything else may have happened after the service had accepted the job.
        surely_not_accepted = said.upstream_status in (423, 429) or isinstance(error, CancelledError)
        return surely_not_accepted or mode is not JobMode.BATCH
