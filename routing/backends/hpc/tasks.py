"""Jobs that get a task of their own: no resident worker is up, or nodes cannot reach the relay (batch).

| the task                                   | what the reader is told                                      |
|--------------------------------------------|--------------------------------------------------------------|
| cannot be started, and never will          | the control plane's words, at once                           |
| cannot be started now                      | why; it is tried again, or a worker that came up takes it    |
| is submitted, waits for a node, runs       | so                                                           |
| ends with a transcript                     | the transcript: it is merged into what came over the relay   |
| ends or fails without an answer            | the words of the worker or the control plane                 |
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from hpc_worker.bodies import Offer
from routing.backends.hpc.control import ControlError, JobHandle, JobMode, JobState, WorkerJob
from routing.backends.hpc.desk import JobNote, offer_message
from routing.backends.hpc.fins import outcome_words
from routing.backends.hpc.jobs import OVER, RESULT_S, STATE_EVERY_S, Job, Jobs, Seat
from stream_site.errors import UpstreamError

TASKS_MOST = 32
TRY_AGAIN_S = 5.0
NOTE_TRIES = 5
_STATES = {
    JobState.SUBMITTED: ("submitted", "a task of its own was asked for"),
    JobState.QUEUED: ("queued", "its task waits for a node"),
    JobState.RUNNING: ("node", "its task runs on a node"),
}

log = logging.getLogger("stream.hpc")


class Tasks:
    """The tasks of one endpoint that are under way."""

    def __init__(self, seat: Seat, jobs: Jobs) -> None:
        self._seat = seat
        self._jobs = jobs
        self._mode = JobMode.BATCH if seat.campus.batch_only else JobMode.TASK
        self._running: dict[bytes, asyncio.Task[None]] = {}
        self.why = ""

    @property
    def has_room(self) -> bool:
        return len(self._running) < TASKS_MOST

    def start(self, job: Job) -> None:
        """Give `job` a task of its own, in the background."""
        job.given = True
        cid = job.offer.cid
        task = self._seat.group.create_task(self._run(job), name=f"task {cid.hex()[:8]}")
        self._running[cid] = task
        task.add_done_callback(lambda done: self._running.pop(cid, None) if self._running.get(cid) is done else None)

    def forget(self, cid: bytes) -> None:
        """Follow a task no more: its job is over, or nobody waits for it."""
        task = self._running.pop(cid, None)
        if task is not None:
            task.cancel()

    async def _run(self, job: Job) -> None:
        try:
            handle = await asyncio.to_thread(self._seat.control.start, WorkerJob(self._mode, task_arguments(job.offer)))
        except ControlError as error:
            await self._not_started(job, error)
            return
        self.why = ""
        log.info("%s: a question got a task of its own: %s", self._seat.campus.name, handle.id)
        await self._follow(job.offer.cid, handle)

    async def _not_started(self, job: Job, error: ControlError) -> None:
        self.why = f"{error.happened} {error.todo}"
        log.warning("%s: no task for a question: %s", self._seat.campus.name, self.why)
        if error.retryable:
            job.retry_at = time.monotonic() + TRY_AGAIN_S
            job.offer_again()  # the service may have accepted it all the same
            return
        await self.note(job.offer.cid, JobNote(self._mode, error=error.happened, todo=error.todo))
        await self.drop(job.offer.cid)

    async def drop(self, cid: bytes) -> None:
        """Let go of a job: its reader knows why, or nobody waits for it."""
        job = self._jobs.pop(cid)
        if job is not None:
            await self._seat.desk.forget(self._seat.campus.name, job.text)

    async def _follow(self, cid: bytes, handle: JobHandle) -> None:
        said = None
        while (state := await asyncio.to_thread(handle.state)) not in OVER:
            if state is not said:
                said = state
                await self.note(cid, JobNote(self._mode, handle.id, *_STATES[state]))
            await asyncio.sleep(STATE_EVERY_S)
        try:
            result = await asyncio.to_thread(handle.result, RESULT_S)
            note = self._note_of(handle.id, result)
        except ControlError as error:
            note = JobNote(self._mode, handle.id, error=error.happened, todo=error.todo)
        except TimeoutError:
            note = JobNote(self._mode, handle.id, error="The task on the campus ended without a result.")
        if note is not None:
            await self.note(cid, note)
        await self.drop(cid)

    def _note_of(self, job_id: str, result: Any) -> JobNote | None:
        """Return what the reader must know; nothing when the relay has delivered the answer, or another task has it."""
        found = result if isinstance(result, dict) else {}
        if transcript := found.get("transcript"):
            return JobNote(self._mode, job_id, transcript=str(transcript))
        happened, todo = outcome_words(str(found.get("outcome", "")))
        return JobNote(self._mode, job_id, error=happened, todo=todo) if happened else None

    async def note(self, cid: bytes, note: JobNote) -> None:
        """Say it, through a short absence of the key-value server."""
        for tried in range(NOTE_TRIES):
            try:
                await self._seat.desk.note(self._seat.campus.name, cid, note)
                return
            except UpstreamError as error:
                log.warning("%s: %s", self._seat.campus.name, error.happened)
                await asyncio.sleep(0.2 * 2**tried)


def task_arguments(offer: Offer) -> dict[str, Any]:
    """Return an offer as the arguments of a task, which always wins its channel before it asks the model."""
    return {name: value for name, value in offer_message(offer, 0).items() if name not in ("t", "until", "again")}
