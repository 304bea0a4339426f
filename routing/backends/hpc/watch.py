"""The clock of one answer of the campus: which stage it is in, and the words when that stage takes too long."""

from __future__ import annotations

import time
from dataclasses import dataclass

from routing.backends.hpc.control import JobMode
from routing.backends.hpc.desk import JobNote, Status
from routing.backends.hpc.directory import Campus
from routing.types import StateNote
from stream_site.errors import StreamBroken, UpstreamError, UpstreamTimeout

DISPATCHER_WAIT_S = 15.0  # a stack that has just started brings its dispatcher last
TRANSCRIPT_WAIT_S = 60.0  # a task whose relay went away ends, and returns the rest of its answer
SPEAKS_EVERY_S = 12.0  # a worker with nothing to send speaks every 10 s


@dataclass(frozen=True)
class HpcLimits:
    """Seconds: until a worker takes the question, from there to the first text, and between texts."""

    worker_s: float = 300.0
    first_text_s: float = 120.0
    between_text_s: float = 45.0
    total_s: float = 900.0
    relay_s: float = 20.0


class Watch:
    """Told what comes; `check` raises when nothing comes for too long."""

    def __init__(self, limits: HpcLimits, campus: Campus) -> None:
        self._limits, self.campus = limits, campus
        self._began = self._since = self._heard = time.monotonic()
        self.begun = self.text_seen = self.piece_seen = False
        self.status: Status | None = None
        self.note = JobNote()
        self._dispatcher_seen = self._began

    def worker_came(self) -> None:
        self.begun, self._since = True, time.monotonic()

    def heard(self) -> None:
        """Note that the worker said something, if only that it is there."""
        self._heard = time.monotonic()

    def piece_came(self, *, text: bool) -> None:
        self.piece_seen, self._since = True, time.monotonic()
        self.text_seen |= text

    def look(self, status: Status | None, note: JobNote | None = None) -> StateNote:
        """Take how the endpoint and the job stand; return what to tell the person who waits."""
        self.status = status
        self.note = note or self.note
        if status is None:
            return StateNote("submitted", "waiting for the campus dispatcher")
        self._dispatcher_seen = time.monotonic()
        if self.note.state:
            return StateNote(self.note.state, self.note.detail)
        if status.ready:
            ahead = max(0, status.waiting - 1)
            return StateNote("queued", f"{ahead} ahead" if ahead else "")
        return StateNote("queued", status.step or status.why)

    def check(self) -> None:
        """Raise `UpstreamTimeout` or `UpstreamError` when the job failed, or the present stage took too long."""
        now, limits = time.monotonic(), self._limits
        self._check_note(now)
        waited = now - self._since
        if not self.begun and now - self._dispatcher_seen >= DISPATCHER_WAIT_S:
            raise UpstreamError(
                "The campus dispatcher is not running, so no worker could be asked.",
                todo="Ask an administrator to start `manage.py hpc_dispatcher`, or pick another tier.",
            )
        patience_s = limits.total_s if self.note.mode == JobMode.BATCH else limits.worker_s
        if not self.begun and waited >= patience_s:
            why = f" {self.status.why}" if self.status and self.status.why else ""
            raise UpstreamTimeout(
                f"No worker of {self.campus.label} took the question within {patience_s:g} s.{why}",
                todo="Try again later, or pick another tier.",
            )
        if self.begun and not self.piece_seen and waited >= limits.first_text_s:
            raise UpstreamTimeout(
                f"A campus worker took the question but sent no text within {limits.first_text_s:g} s.",
                todo="Try again, or pick another tier.",
            )
        silent_s = limits.between_text_s + (TRANSCRIPT_WAIT_S if self.may_return else 0.0)
        if self.piece_seen and waited >= silent_s:
            raise StreamBroken(f"The campus worker sent no more text for {silent_s:g} s.")

    @property
    def may_return(self) -> bool:
        """Whether the rest of the answer may still come as the result of a task."""
        return self.note.mode in (JobMode.TASK, JobMode.BATCH)

    def _check_note(self, now: float) -> None:
        """Raise what the dispatcher says of a failure, unless the worker is heard all the same."""
        note = self.note
        if not note.error or (self.begun and now - self._heard < SPEAKS_EVERY_S):
            return
        if self.text_seen:
            raise StreamBroken(f"The campus stopped in the middle of the answer: {note.error}")
        raise UpstreamError(note.error, todo=note.todo or "Try again, or pick another tier.")
