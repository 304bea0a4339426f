"""The one dispatcher of an endpoint: takes sealed offers, keeps workers warm, and places each offer with one of them.

| an offer                                       | what happens                                                       |
|------------------------------------------------|--------------------------------------------------------------------|
| a worker has a free place                      | it goes to the worker with the most                                |
| workers are busy                               | it waits; another worker is started, up to `max_workers`           |
| one is being started                           | it waits `TASK_AFTER_S`, then gets a task of its own               |
| none may be started (`max_workers`, a failure) | it gets a task of its own at once                                  |
| nodes cannot reach the relay (`batch_only`)    | it gets a batch task at once                                       |
| its `until` has passed, or it is `done`        | it is dropped: nobody waits for it                                 |
| its worker refuses it                          | its reader is told why                                             |
| its worker is lost before it began             | it is offered again                                                |
| its dispatcher is lost before it began         | it is offered again by the successor                               |

An offer that is made again says so: then a worker asks the model only when the relay gave it the job, so that no answer
is generated twice. A lease at the key-value server makes the dispatcher single; mailboxes are in the database, so that
a successor takes them over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress

from django.db import Error as DatabaseError

from hpc_worker.bodies import BodyError, load_offer
from routing.backends.hpc.control import ControlPlane, JobMode
from routing.backends.hpc.desk import LEASE_S, Desk, JobNote, Status, Taken, unix_now
from routing.backends.hpc.directory import Campus
from routing.backends.hpc.fins import refused_words
from routing.backends.hpc.jobs import Job, Jobs, Seat
from routing.backends.hpc.mailbox import MailboxLine
from routing.backends.hpc.tasks import Tasks
from routing.backends.hpc.workers import Workers
from stream_site.errors import UpstreamError

TICK_S = 0.25
LOOK_S = 1.0
TASK_AFTER_S = 5.0
RECALL_S = 10.0

log = logging.getLogger("stream.hpc")


class LeaseLost(Exception):
    """Another dispatcher has the endpoint, or the key-value server was away for too long."""


class Dispatcher:
    """Run one endpoint until cancelled. A dispatcher that loses its lease lets go and waits for another."""

    def __init__(self, campus: Campus, desk: Desk, control: ControlPlane) -> None:
        self._campus = campus
        self._desk = desk
        self._control = control
        self._session: Session | None = None

    async def run(self) -> None:
        """Hold the lease and serve, again after it was lost."""
        while True:
            token = await self._lease()
            log.info("%s: this dispatcher has the lease", self._campus.name)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._hold(token), name="lease")
                    self._session = Session(Seat(self._campus, self._desk, self._control, group))
                    await self._session.serve()
            except* LeaseLost:
                log.warning("%s: the lease was lost; waiting for another", self._campus.name)
            except* DatabaseError as errors:
                log.warning("%s: the database does not answer: %s", self._campus.name, errors.exceptions[0])
                await asyncio.sleep(1.0)
            finally:
                self._session = None
                with suppress(UpstreamError):
                    await self._desk.lease_release(self._campus.name, token)

    async def end_workers(self) -> None:
        """Tell the workers to end: the endpoint was switched off."""
        if self._session is not None:
            await self._session.workers.end_all("switched off")

    async def _lease(self) -> str:
        while True:
            with suppress(UpstreamError):
                if token := await self._desk.lease_take(self._campus.name):
                    return token
            await asyncio.sleep(1.0)

    async def _hold(self, token: str) -> None:
        """Renew the lease, whatever the others wait for. Raises `LeaseLost`."""
        renewed_at = time.monotonic()
        while True:
            await asyncio.sleep(LEASE_S / 4)
            try:
                if not await self._desk.lease_renew(self._campus.name, token):
                    raise LeaseLost
                renewed_at = time.monotonic()
            except UpstreamError as error:
                log.warning("%s: %s", self._campus.name, error.happened)
                if time.monotonic() - renewed_at > LEASE_S:
                    raise LeaseLost from error


class Session:
    """One dispatcher's time with the lease."""

    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._name = seat.campus.name
        self._desk = seat.desk
        self._jobs = Jobs()
        self._tasks = Tasks(seat, self._jobs)
        self.workers = Workers(seat)
        self._looked_at = float("-inf")
        self._recall_at: float | None = time.monotonic()

    async def serve(self) -> None:
        """Serve until cancelled. Nothing here waits long: whatever does is a task of its own."""
        await self.workers.take_over()
        try:
            while True:
                try:
                    await self._turn()
                except UpstreamError as error:
                    log.warning("%s: %s", self._name, error.happened)
                    self._recall_at = time.monotonic() + RECALL_S  # a message may have been moved and not have come
                    await asyncio.sleep(0.5)
        finally:
            for line in self.workers.lines:
                line.stop()

    async def _turn(self) -> None:
        if self._recall_at is not None and time.monotonic() >= self._recall_at:
            await self._recall()
        taken = await self._desk.take(self._name, TICK_S)
        if taken is not None:
            await self._read(taken)
        await self._look()
        await self._hear_refusals()
        await self._place()

    # -- messages

    async def _recall(self) -> None:
        """Read what was taken from the inbox and is not known here: a predecessor's, or of a broken connection."""
        known = self._jobs.texts()
        for taken in await self._desk.taken(self._name):
            if taken.text not in known:
                await self._read(taken, again=True)
        self._recall_at = None

    async def _read(self, taken: Taken, *, again: bool = False) -> None:
        if taken.message["t"] == "offer":
            if self._read_offer(taken, again=again):
                return
        else:
            cid = bytes.fromhex(taken.message["cid"])
            await self._tasks.drop(cid)
            if taken.message["t"] == "done":
                self._tasks.forget(cid)
                for line in self.workers.lines:
                    line.forget(cid)
        await self._desk.forget(self._name, taken.text)

    def _read_offer(self, taken: Taken, *, again: bool) -> bool:
        """Take an offer in; False: it is none, or a repeated one."""
        try:
            job = Job(load_offer(taken.message), taken.text, float(taken.message["until"]))
        except (BodyError, KeyError, TypeError, ValueError) as error:
            log.warning("%s: an offer could not be read: %s", self._name, error)
            return False
        if again:
            job.offer_again()
        return self._jobs.add(job)

    # -- workers

    async def _look(self) -> None:
        """Once a second, and at once while offers wait without any worker: see to the workers."""
        now, waiting = time.monotonic(), self._jobs.waiting()
        if now - self._looked_at < LOOK_S and (self.workers.lines or self.workers.is_one_coming or not waiting):
            return
        self._looked_at = now
        paused = bool(self._seat.campus.paused_words(unix_now()))
        for cid in await self.workers.look(len(waiting), paused=paused):
            job = self._jobs.get(cid)
            if job is not None:
                job.offer_again()
        await self._desk.publish(self._name, self._status())

    async def _hear_refusals(self) -> None:
        for line in self.workers.lines:
            while line.refused:
                cid, code = line.refused.pop(0)
                line.forget(cid)
                happened, todo = refused_words(code)
                log.warning("%s: a worker refused an offer: %s", self._name, code)
                await self._tell(cid, JobNote(JobMode.RESIDENT, line.record.job_id, error=happened, todo=todo))

    async def _tell(self, cid: bytes, note: JobNote) -> None:
        """Tell a job's reader that it will not be answered."""
        await self._tasks.note(cid, note)
        await self._tasks.drop(cid)

    # -- placing

    async def _place(self) -> None:
        campus, now = self._seat.campus, time.monotonic()
        for job in self._jobs.waiting():
            if unix_now() >= job.until:
                await self._tasks.drop(job.offer.cid)
            elif words := campus.paused_words(unix_now()):
                await self._tell(job.offer.cid, JobNote(error=words, todo="Try again later, or pick another tier."))
            elif (line := self.workers.freest()) is not None and not campus.batch_only:
                await self._send(line, job)
            elif self._tasks.has_room and now >= job.retry_at and self._wants_task(job, now):
                self._tasks.start(job)

    def _wants_task(self, job: Job, now: float) -> bool:
        if self._seat.campus.batch_only:
            return True
        workers = self.workers
        if workers.ready:
            return False
        return now - job.since >= TASK_AFTER_S or workers.is_hopeless

    async def _send(self, line: MailboxLine, job: Job) -> None:
        job.given = True
        await line.send(job.offer)
        named = line.record.job_id or f"mailbox {line.record.pk}"
        await self._desk.note(self._name, job.offer.cid, JobNote(JobMode.RESIDENT, named))

    def _status(self) -> Status:
        ready, waiting = self.workers.ready, self._jobs.waiting()
        return Status(
            ready=len(ready),
            starting=int(self.workers.is_one_coming),
            free=sum(line.free for line in ready),
            waiting=len(waiting),
            step=self.workers.step,
            why=self.workers.why or self._tasks.why,
        )
