"""What a control plane is: it starts workers and says what became of them. It never carries a secret or a clear prompt.

Sync: the real one lives in threads of one dispatcher process. Implementations: `process` (demo) and `globus`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from stream_site.errors import UpstreamError


class JobMode(StrEnum):
    """`resident`: `hpc_worker.worker.run(arguments)`; `task` and `batch`: `hpc_worker.worker.run_task(arguments)`."""

    RESIDENT = "resident"
    TASK = "task"
    BATCH = "batch"


class JobState(StrEnum):
    SUBMITTED = "submitted"
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"


@dataclass(frozen=True)
class WorkerJob:
    """One worker to start. `arguments` is JSON and all of it may be read by the control plane's operator."""

    mode: JobMode
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class ControlHealth:
    """Whether workers can be started now, and in words why not and what to do."""

    online: bool
    why: str = ""
    todo: str = ""


class ControlError(UpstreamError):
    """The control plane could not start a worker: words say which part failed and what to do next."""

    code = "hpc_control"
    title = "The campus GPUs could not be asked"


class JobHandle(Protocol):
    """One started worker."""

    @property
    def id(self) -> str:
        """The control plane's own name for the job, for logs and support."""
        ...

    def state(self) -> JobState: ...

    def result(self, timeout_s: float) -> Any:
        """Return what the worker's function returned. Raises `ControlError`, or `TimeoutError` after `timeout_s`."""
        ...

    def cancel(self) -> None:
        """Ask for the job's end. A job that has ended is left alone."""
        ...


class ControlPlane(Protocol):
    name: str

    def start(self, job: WorkerJob) -> JobHandle:
        """Start a worker. Raises `ControlError`."""
        ...

    def health(self) -> ControlHealth:
        """Ask, within a few seconds, whether workers can be started."""
        ...

    def close(self) -> None:
        """Let go of connections and threads. Jobs go on."""
        ...
