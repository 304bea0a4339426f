"""The resident workers of one endpoint: started when they are wanted, kept warm, told to end when they are not.

A worker ends by a sealed message in its mailbox, so that it works on a cluster too, where no task can be cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import time

from routing.backends.hpc.control import ControlError, JobMode, JobState, WorkerJob
from routing.backends.hpc.desk import JobNote
from routing.backends.hpc.jobs import OVER, RESULT_S, STATE_EVERY_S, Seat
from routing.backends.hpc.mailbox import (
    DEAD_S,
    MailboxLine,
    mailbox_close,
    mailbox_job,
    mailbox_open,
    mailboxes_close,
    mailboxes_take_over,
)
from stream_site.database import in_database
from stream_site.errors import UpstreamError

RELAY_S = 10.0
END_WAIT_S = 150.0  # its longest drain by default, and a little
RETRY_FIRST_S, RETRY_MOST_S = 2.0, 60.0
_STEP = {JobState.SUBMITTED: "a worker was asked for", JobState.QUEUED: "a worker waits for a node"}

log = logging.getLogger("stream.hpc")


class Workers:
    """`lines`: one for each worker, coming, ready or ending."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self.lines: list[MailboxLine] = []
        self._states: dict[MailboxLine, JobState] = {}
        self._starting = False
        self._retry_at, self._retry_s = 0.0, RETRY_FIRST_S
        self.why = ""

    async def take_over(self) -> None:
        """Attach to the mailboxes that a predecessor held: their workers go on, but for those of the demonstration."""
        campus = self._seat.campus
        if campus.is_demo:
            await in_database(mailboxes_close, campus)
        for record in await in_database(mailboxes_take_over, campus):
            self._add(MailboxLine(campus, record))

    @property
    def ready(self) -> list[MailboxLine]:
        return [line for line in self.lines if line.is_ready]

    @property
    def is_one_coming(self) -> bool:
        return self._starting or any(line.is_coming for line in self.lines)

    @property
    def is_hopeless(self) -> bool:
        """Whether none will come soon: none is allowed, or the last start failed and is not repeated yet."""
        failed = time.monotonic() < self._retry_at
        return not self._seat.campus.max_workers or (failed and not self.is_one_coming)

    @property
    def step(self) -> str:
        """How far the one is that is being started, in words."""
        coming = [line for line in self.lines if line.is_coming]
        if not coming:
            return ""
        where = f" ({self._seat.control.name})" if self._seat.campus.is_demo else ""
        return _STEP.get(self._states.get(coming[0], JobState.RUNNING), "a worker is starting") + where

    def freest(self) -> MailboxLine | None:
        """Return the worker with the most free places, if it has one."""
        line = max(self.lines, key=lambda known: known.free, default=None)
        return line if line is not None and line.free else None

    async def look(self, waiting: int, *, paused: bool) -> list[bytes]:
        """See to the workers; return the cids that a lost one had not begun. Call it about once a second."""
        lost: list[bytes] = []
        for line in list(self.lines):
            line.forget_old()
            if line.told_to_end_at is not None and time.monotonic() - line.told_to_end_at >= END_WAIT_S:
                log.warning("%s: a worker did not end when it was told to", self._seat.campus.name)
                line.ended = True
            if line.silent_s >= DEAD_S:
                log.warning("%s: a worker is silent and given up", self._seat.campus.name)
                line.ended = True
            if line.ended or self._states.get(line) in OVER:
                lost += await self._lost(line)
        if paused:
            await self.end_all("maintenance")
        else:
            await self._keep_warm(waiting)
        return lost

    async def end_all(self, reason: str) -> None:
        """Tell every worker to end."""
        for line in self.lines:
            await self._end(line, reason)

    async def _end(self, line: MailboxLine, reason: str) -> None:
        if not await line.tell_to_end(reason) and line.handle is not None:
            await asyncio.to_thread(line.handle.cancel)

    async def _lost(self, line: MailboxLine) -> list[bytes]:
        """Let go of a worker that ended."""
        self.lines.remove(line)
        line.stop()
        await in_database(mailbox_close, line.record)
        state = self._states.pop(line, None)
        log.info("%s: a worker ended (%s)", self._seat.campus.name, state or "its mailbox was lost")
        if line.alive is None:  # it never came up
            self._failed_to_start(line.why)
        return list(line.jobs)

    def _failed_to_start(self, why: str) -> None:
        log.warning("%s: %s Trying again in %.0f s.", self._seat.campus.name, why, self._retry_s)
        self.why = why
        self._retry_at = time.monotonic() + self._retry_s
        self._retry_s = min(RETRY_MOST_S, self._retry_s * 2)

    async def _keep_warm(self, waiting: int) -> None:
        campus, ready = self._seat.campus, self.ready
        if ready:
            self.why, self._retry_s = "", RETRY_FIRST_S
        wanted = len(self.lines) < campus.min_workers or (waiting and not any(line.free for line in ready))
        room = len(self.lines) < campus.max_workers and time.monotonic() >= self._retry_at
        if wanted and room and not self.is_one_coming and not campus.batch_only:
            self._starting = True
            self._seat.group.create_task(self._start(), name="worker start")
        if ready and len(self.lines) > campus.max_workers:
            log.info("%s: %d workers are allowed: one is told to end", campus.name, campus.max_workers)
            await self._end(min(ready, key=lambda line: len(line.jobs)), "not allowed")
            return
        for line in ready:
            idle = not line.jobs and time.monotonic() - line.idle_since >= campus.idle_s
            if idle and len(ready) > campus.min_workers:
                log.info("%s: a worker was idle for %d s and is told to end", campus.name, campus.idle_s)
                await self._end(line, "idle")
                return

    def _add(self, line: MailboxLine) -> None:
        self.lines.append(line)
        line.start(self._seat.group)

    async def _start(self) -> None:
        try:
            line = MailboxLine(self._seat.campus, await in_database(mailbox_open, self._seat.campus))
            self._add(line)
            if not await line.attached(RELAY_S):
                await self._drop(line, "The relay to the campus cannot be reached, so no worker was started.")
                return
            try:
                job = WorkerJob(JobMode.RESIDENT, line.arguments)
                line.handle = await asyncio.to_thread(self._seat.control.start, job)
            except ControlError as error:
                await self._drop(line, f"{error.happened} {error.todo}")
                return
            log.info("%s: a worker was asked for: %s", self._seat.campus.name, line.handle.id)
            await in_database(mailbox_job, line.record, line.handle.id)
            line.record.job_id = line.handle.id
            self._seat.group.create_task(self._follow(line), name=f"worker {line.record.pk}")
        finally:
            self._starting = False

    async def _drop(self, line: MailboxLine, why: str) -> None:
        line.stop()
        if line in self.lines:
            self.lines.remove(line)
        await in_database(mailbox_close, line.record)
        self._failed_to_start(why)

    async def _follow(self, line: MailboxLine) -> None:
        """Ask for a worker's state until it is over; hand on what it returned: answers that no relay took."""
        handle = line.handle
        if handle is None:
            return
        while (state := await asyncio.to_thread(handle.state)) not in OVER:
            self._states[line] = state
            await asyncio.sleep(STATE_EVERY_S)
        try:
            found = await asyncio.to_thread(handle.result, RESULT_S)
        except (ControlError, TimeoutError) as error:
            found = {}
            if isinstance(error, ControlError):
                line.lost_words = f"{error.happened} {error.todo}"
        for cid, transcript in (found.get("transcripts") or {}).items() if isinstance(found, dict) else ():
            note = JobNote(JobMode.RESIDENT, handle.id, transcript=str(transcript))
            try:
                await self._seat.desk.note(self._seat.campus.name, bytes.fromhex(cid), note)
            except UpstreamError as error:
                log.warning("%s: a returned answer was lost: %s", self._seat.campus.name, error.happened)
        if line in self.lines:
            self._states[line] = state
