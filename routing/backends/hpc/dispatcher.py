"""The one dispatcher of an endpoint: takes sealed offers, keeps workers warm, and places each offer with one of them.

| an offer                                   | what happens                                                   |
|--------------------------------------------|----------------------------------------------------------------|
| a worker has a free place                  | it goes to the worker with the most                            |
| workers are busy                           | it waits; another worker is started, up to `max_workers`       |
| no worker is up, and one is being started  | it waits `TASK_AFTER_S`, then gets a task of its own           |
| its `until` has passed, or it is `done`    | it is dropped: nobody waits for it                             |
| its worker is lost before it began         | it is placed again, to be won before the model is asked        |
| it is not `done` long after its deadline   | its place is free again: whoever asked was killed              |

A lease at the key-value server makes it single; mailboxes are in the database, so that a successor takes them over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hpc_worker.bodies import BodyError, Offer, load_offer
from routing.backends.hpc.control import ControlError, ControlPlane, JobHandle, JobMode, JobState, WorkerJob
from routing.backends.hpc.desk import LEASE_S, Desk, Status, offer_message, unix_now
from routing.backends.hpc.directory import Campus
from routing.backends.hpc.mailbox import MailboxLine, mailbox_close, mailbox_open, mailboxes_close, mailboxes_take_over
from stream_site.database import in_database
from stream_site.errors import UpstreamError

TICK_S = 0.25
LOOK_S = 1.0
TASK_AFTER_S = 5.0
RELAY_S = 10.0
RETRY_FIRST_S, RETRY_MOST_S = 2.0, 60.0
_OVER = (JobState.ENDED, JobState.FAILED)
_STEP = {JobState.SUBMITTED: "a worker was asked for", JobState.QUEUED: "a worker waits for a node"}

log = logging.getLogger("stream.hpc")


class LeaseLost(Exception):
    """Another dispatcher has the endpoint, or the key-value server was away for too long."""


class Dispatcher:
    """Run one endpoint until cancelled. A dispatcher that loses its lease lets go and waits for another."""

    def __init__(self, campus: Campus, desk: Desk, control: ControlPlane) -> None:
        self._campus = campus
        self._desk = desk
        self._control = control
        self._lines: list[MailboxLine] = []
        self._waiting: OrderedDict[bytes, tuple[Offer, float, float]] = OrderedDict()  # cid -> offer, until, since
        self._begun: set[bytes] = set()
        self._tasks: dict[bytes, JobHandle] = {}
        self._states: dict[MailboxLine, JobState] = {}
        self._why = ""
        self._retry_at, self._retry_s = 0.0, RETRY_FIRST_S
        self._looked_at = self._renewed_at = 0.0

    async def run(self) -> None:
        """Hold the lease and serve, again after it was lost."""
        while True:
            token = await self._lease()
            log.info("%s: this dispatcher has the lease", self._campus.name)
            try:
                async with asyncio.TaskGroup() as group:
                    await self._take_over(group)
                    try:
                        await self._serve(group, token)
                    finally:
                        for line in self._lines:
                            line.stop()
            except* LeaseLost:
                log.warning("%s: the lease was lost; waiting for another", self._campus.name)
            finally:
                self._lines.clear()
                with suppress(UpstreamError):
                    await self._desk.lease_release(self._campus.name, token)

    async def _lease(self) -> str:
        while True:
            with suppress(UpstreamError):
                if token := await self._desk.lease_take(self._campus.name):
                    self._renewed_at = time.monotonic()
                    return token
            await asyncio.sleep(1.0)

    async def _take_over(self, group: asyncio.TaskGroup) -> None:
        """Attach to the mailboxes that a predecessor held: their workers go on, but for those of the demonstration."""
        if self._campus.is_demo:
            await in_database(mailboxes_close, self._campus)
        for record in await in_database(mailboxes_take_over, self._campus):
            self._add(group, MailboxLine(self._campus, record))

    def _add(self, group: asyncio.TaskGroup, line: MailboxLine) -> None:
        self._lines.append(line)
        line.start(group)

    async def _serve(self, group: asyncio.TaskGroup, token: str) -> None:
        while True:
            try:
                message = await self._desk.take(self._campus.name, TICK_S)
                if message is not None:
                    self._read(message)
                await self._renew(token)
                await self._look(group)
                await self._place()
            except UpstreamError as error:
                log.warning("%s: %s", self._campus.name, error.happened)
                if time.monotonic() - self._renewed_at > LEASE_S:
                    raise LeaseLost from error
                await asyncio.sleep(0.5)

    async def _renew(self, token: str) -> None:
        now = time.monotonic()
        if now - self._renewed_at < LEASE_S / 4:
            return
        if not await self._desk.lease_renew(self._campus.name, token):
            raise LeaseLost
        self._renewed_at = now

    # -- messages

    def _read(self, message: Mapping[str, Any]) -> None:
        if message["t"] == "offer":
            self._read_offer(message)
            return
        cid = bytes.fromhex(message["cid"])
        self._waiting.pop(cid, None)
        if message["t"] == "begun":
            self._begun.add(cid)
            return
        self._begun.discard(cid)
        self._tasks.pop(cid, None)
        for line in self._lines:
            line.forget(cid)

    def _read_offer(self, message: Mapping[str, Any]) -> None:
        try:
            offer = load_offer(message)
        except BodyError as error:
            log.warning("%s: an offer could not be read: %s", self._campus.name, error)
            return
        placed = offer.cid in self._tasks or any(offer.cid in line.jobs for line in self._lines)
        if not placed and offer.cid not in self._begun:
            self._waiting.setdefault(offer.cid, (offer, float(message["until"]), time.monotonic()))

    # -- workers

    async def _look(self, group: asyncio.TaskGroup) -> None:
        """Once a second, and at once while offers wait without any worker: see to the workers."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S and (self._lines or not self._waiting):
            return
        self._looked_at = now
        for line in list(self._lines):
            if line.handle is not None:
                self._states[line] = await asyncio.to_thread(line.handle.state)
            line.forget_overdue()
            if line.ended or self._states.get(line) in _OVER:
                await self._lost(line)
        await self._keep_warm(group, now)
        await self._desk.publish(self._campus.name, self._status())

    async def _lost(self, line: MailboxLine) -> None:
        """Let go of a worker that ended; what it had not begun is placed again."""
        self._lines.remove(line)
        line.stop()
        await in_database(mailbox_close, line.record)
        state = self._states.pop(line, None)
        log.info("%s: a worker ended (%s)", self._campus.name, state or "its mailbox was lost")
        for cid, offer in reversed(line.jobs.items()):
            if cid not in self._begun:
                until = unix_now() + offer.deadline_s
                self._waiting[cid] = (replace(offer, again=True), until, time.monotonic())
                self._waiting.move_to_end(cid, last=False)
        if line.alive is None:  # it never came up
            self._failed_to_start(line.why)

    def _failed_to_start(self, why: str) -> None:
        log.warning("%s: %s Trying again in %.0f s.", self._campus.name, why, self._retry_s)
        self._why = why
        self._retry_at = time.monotonic() + self._retry_s
        self._retry_s = min(RETRY_MOST_S, self._retry_s * 2)

    async def _keep_warm(self, group: asyncio.TaskGroup, now: float) -> None:
        campus = self._campus
        ready = [line for line in self._lines if line.is_ready]
        if ready:
            self._why, self._retry_s = "", RETRY_FIRST_S
        coming = any(line.is_coming for line in self._lines)
        busy = bool(self._waiting) and not any(line.free for line in ready)
        wanted = len(self._lines) < campus.min_workers or busy
        if wanted and not coming and len(self._lines) < campus.max_workers and now >= self._retry_at:
            await self._start_worker(group)
        for line in ready:
            idle = not line.jobs and now - line.idle_since >= campus.idle_s
            if idle and line.handle is not None and len(self._lines) > campus.min_workers:
                log.info("%s: a worker was idle for %d s and is ended", campus.name, campus.idle_s)
                await asyncio.to_thread(line.handle.cancel)
                return

    async def _start_worker(self, group: asyncio.TaskGroup) -> None:
        line = MailboxLine(self._campus, await in_database(mailbox_open, self._campus))
        self._add(group, line)
        if not await line.attached(RELAY_S):
            await self._drop(line, "The relay to the campus cannot be reached, so no worker was started.")
            return
        try:
            line.handle = await asyncio.to_thread(self._control.start, WorkerJob(JobMode.RESIDENT, line.arguments))
        except ControlError as error:
            await self._drop(line, f"{error.happened} {error.todo}")
            return
        log.info("%s: a worker was asked for: %s", self._campus.name, line.handle.id)

    async def _drop(self, line: MailboxLine, why: str) -> None:
        line.stop()
        self._lines.remove(line)
        await in_database(mailbox_close, line.record)
        self._failed_to_start(why)

    # -- placing

    async def _place(self) -> None:
        now = time.monotonic()
        for cid, (offer, until, since) in list(self._waiting.items()):
            line = max(self._lines, key=lambda known: known.free, default=None)
            if unix_now() >= until:
                del self._waiting[cid]
            elif line is not None and line.free:
                del self._waiting[cid]
                await line.send(offer)
            elif not any(known.is_ready for known in self._lines) and now - since >= TASK_AFTER_S:
                await self._start_task(offer)

    async def _start_task(self, offer: Offer) -> None:
        """Answer one offer with a task of its own, as no resident worker is up."""
        arguments = {name: value for name, value in offer_message(offer, 0).items() if name not in ("t", "until")}
        try:
            handle = await asyncio.to_thread(self._control.start, WorkerJob(JobMode.TASK, arguments))
        except ControlError as error:
            self._why = f"{error.happened} {error.todo}"
            return
        log.info("%s: a question got a task of its own: %s", self._campus.name, handle.id)
        del self._waiting[offer.cid]
        self._tasks[offer.cid] = handle

    def _status(self) -> Status:
        ready = [line for line in self._lines if line.is_ready]
        coming = [line for line in self._lines if line.is_coming]
        step = _STEP.get(self._states.get(coming[0], JobState.RUNNING), "a worker is starting") if coming else ""
        where = f" ({self._control.name})" if step and self._campus.is_demo else ""
        return Status(
            ready=len(ready),
            starting=len(coming),
            free=sum(line.free for line in ready),
            waiting=len(self._waiting),
            step=step + where,
            why=self._why,
        )
