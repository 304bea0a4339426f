"""The worker: resident on a mailbox, or one task for one job. Async edge; `run` and `run_task` are the public doors.

Resident: a mailbox channel brings sealed job offers (CTRL kinds 16 and 18) and takes back ALIVE frames that say
capacity and queue. Each offer is answered on its own channel, on a parked socket if one is ready. A worker ends when
its walltime is near, on SIGTERM, when the mailbox says so (CANCEL), when another worker or attempt owns the mailbox, or
when no relay or no dispatcher has been there for a while, so that it never holds a node for nobody: it takes nothing
new, lets running answers end for `drain_s`, then ends the rest with FIN error=draining. What no relay took is returned,
sealed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hpc_worker import bodies, config
from hpc_worker.answer import AWAY_S, BATCH_AFTER_S, Answer, JobRefused, push_job
from hpc_worker.bodies import Alive, BodyError, Fin, Offer, OfferAssembler
from hpc_worker.config import Settings
from hpc_worker.loop import run as run_loop
from hpc_worker.model import ModelServer
from hpc_worker.parking import Lot
from hpc_worker.producer import Control
from hpc_worker.push import Parked, Pusher, PushJob, PushResult
from hpc_worker.waiting import within
from hpc_worker.wire import Kind

_LOG = logging.getLogger("hpc_worker")
_UNLIMITED_S = 30 * 86_400.0
_SEEN_OFFERS = 4096
_LAST_WORDS_S = 5.0
_ALONE_S = 300.0  # a dispatcher that restarts is back long before
_MOST_RETURNED = 4 * 1024 * 1024  # Globus Compute takes results up to 10 MB, and these are written in hex
_LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class Mailbox:
    """The channel that brings a resident worker its offers. Nothing in it is secret."""

    relay: str
    kid: str
    cid: bytes
    attempt: int
    salt_c: bytes

    @classmethod
    def load(cls, obj: Mapping[str, Any]) -> Mailbox:
        """Read a mailbox from task arguments. Raises `JobRefused`."""
        try:
            cid, salt_c = bytes.fromhex(obj["cid"]), bytes.fromhex(obj["salt_c"])
            return cls(str(obj["relay"]), str(obj["kid"]), cid, int(obj["attempt"]), salt_c)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise JobRefused("mailbox") from error

    def push_job(self, settings: Settings, deadline_s: float) -> PushJob:
        """Return what holding it open needs. Raises `JobRefused`."""
        offer = Offer(self.cid, self.attempt, self.salt_c, self.kid, self.relay, 1, b"")
        job = push_job(settings, offer, eager=False)
        return PushJob(job.relay_url, job.identity, job.key, job.salt_c, deadline_s)


class Resident:
    """Serve one mailbox until drained."""

    def __init__(self, settings: Settings, mailbox: Mailbox) -> None:
        self._settings = settings
        left = settings.walltime_s - settings.drain_s if settings.walltime_s else _UNLIMITED_S
        self._work_s = left
        self._mailbox = mailbox
        self._job = mailbox.push_job(settings, left + settings.drain_s)
        self._model = ModelServer(settings)
        self._offers = OfferAssembler()
        self._seen: OrderedDict[tuple[bytes, int], None] = OrderedDict()
        self._places = asyncio.Semaphore(settings.capacity)
        self._answers: dict[asyncio.Task[None], Answer] = {}
        self._drain = asyncio.Event()
        self._waiting = 0
        self._returned = 0
        self.transcripts: dict[str, str] = {}  # cid -> sealed transcript in hex: what no relay took
        key = settings.producer_keys.primary
        each = -(-settings.parked // max(1, len(settings.relays)))
        self._lots = {
            url: Lot(url, name, (key, settings.producer_keys.keys[key]), each) for url, name in settings.relays.items()
        }
        self.answered = 0

    async def run(self) -> str:
        """Serve until drained and return why it ended: a mailbox outcome, "drained", "unreachable" or "alone"."""
        try:
            async with Pusher(self._job, self._control, alive=self._alive) as pusher:
                if not await self._open(pusher):
                    return pusher.outcome or ("drained" if self._drain.is_set() else _lost(pusher))
                for lot in self._lots.values():
                    lot.fill()
                pusher.say_alive()
                outcome = await self._serve(pusher)
                await self._finish(pusher)
                return outcome
        finally:
            await self._end_all()

    async def _open(self, pusher: Pusher) -> bool:
        """Wait for the mailbox; SIGTERM ends the wait as well."""
        while not await pusher.won(_LOOK_EVERY_S):
            if pusher.outcome or self._drain.is_set() or pusher.alone_s >= _ALONE_S:
                return False
        return True

    async def _until_lost(self, pusher: Pusher) -> None:
        """Return when no relay, or nobody at the mailbox, has been there for too long."""
        while pusher.away_s < self._settings.away_s and pusher.alone_s < _ALONE_S:  # noqa: ASYNC110 - time is the event
            await asyncio.sleep(_LOOK_EVERY_S)

    def drain(self) -> None:
        """Take nothing new and end soon. Safe to call from a signal handler of the loop."""
        self._drain.set()

    async def _serve(self, pusher: Pusher) -> str:
        """Wait for the end of the working time. Offers come in by `_control`."""
        self._pusher = pusher
        drain = asyncio.create_task(self._drain.wait())
        stopped = asyncio.create_task(pusher.stopped())
        lost = asyncio.create_task(self._until_lost(pusher))
        tasks = {drain, stopped, lost}
        try:
            await asyncio.wait(tasks, timeout=self._work_s, return_when=asyncio.FIRST_COMPLETED)
            outcome = pusher.outcome or (_lost(pusher) if lost.done() else "drained")
        finally:
            for task in tasks:
                task.cancel()
        self._drain.set()
        if lost.done() and not lost.cancelled():
            _LOG.warning("nobody was there for too long (%s): the worker ends", outcome)
            pusher.give_up()
            for answer in self._answers.values():
                answer.give_up()
        return outcome

    async def _finish(self, pusher: Pusher) -> None:
        """Let the running answers end, then end the others, then close the mailbox with FIN."""
        if not pusher.outcome:
            pusher.say_alive()
        if self._answers:
            await asyncio.wait(set(self._answers), timeout=self._settings.drain_s)
        await self._end_all()
        if not pusher.outcome and not pusher.away_s:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(pusher.finish(Fin("stop")), _LAST_WORDS_S)

    async def _end_all(self) -> None:
        for answer in list(self._answers.values()):
            answer.stop(Fin("error", error="draining", detail="The worker had to end before the answer was complete."))
        if self._answers:
            await asyncio.wait(set(self._answers), timeout=_LAST_WORDS_S)
        for task in list(self._answers):
            task.cancel()
        if self._answers:
            await asyncio.wait(set(self._answers), timeout=_LAST_WORDS_S)
        await asyncio.gather(*(lot.close() for lot in self._lots.values()))
        await self._model.close()

    def _alive(self) -> Alive:
        running = len(self._answers) - self._waiting
        state = "draining" if self._drain.is_set() else "ready"
        free = max(0, self._settings.capacity - running)
        return Alive(state, capacity=free, queue=self._waiting, model=self._settings.model_name)

    def _control(self, control: Control) -> None:
        if control.kind is Kind.CANCEL:
            _LOG.info("the dispatcher ends this worker")
            self.drain()
        if control.kind not in (Kind.OFFER, Kind.OFFER_PART):
            return
        try:
            offer = self._offers.add(control.kind, control.body)
        except BodyError as error:
            _LOG.warning("an offer could not be read: %s", error)
            return
        if offer is not None:
            self._accept(offer)

    def _accept(self, offer: Offer) -> None:
        """Start one offer, once. Where the mailbox alone brings it, its answer may be eager."""
        name = (offer.cid, offer.attempt)
        if name in self._seen:
            return
        self._seen[name] = None
        if len(self._seen) > _SEEN_OFFERS:
            self._seen.popitem(last=False)
        try:
            answer = Answer(self._settings, self._model, offer, eager=not offer.again)
        except JobRefused as error:
            _LOG.warning("an offer was refused: %s", error.code)
            self._pusher.say(replace(self._alive(), refused=offer.cid.hex(), reason=error.code))
            return
        if self._drain.is_set():
            answer.stop(Fin("error", error="draining", detail="The worker is about to end; ask again."))
        task = asyncio.create_task(self._answer(answer, offer), name="answer")
        self._answers[task] = answer
        task.add_done_callback(self._answered)

    async def _answer(self, answer: Answer, offer: Offer) -> None:
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        try:
            parked: Parked | None = await self._lots[offer.relay].take()
            result = await answer.run(parked)
            _LOG.info("an answer ended: %s", result.outcome)
            self._keep(offer.cid, result)
        finally:
            self._places.release()

    def _keep(self, cid: bytes, result: PushResult) -> None:
        """Keep what no relay took, for the task's result."""
        size = len(result.transcript or b"")
        if result.transcript is None or self._returned + size > _MOST_RETURNED:
            return
        self._returned += size
        self.transcripts[cid.hex()] = result.transcript.hex()

    def _answered(self, task: asyncio.Task[None]) -> None:
        self._answers.pop(task, None)
        self.answered += 1
        if not task.cancelled() and task.exception() is not None:
            _LOG.error("a job failed inside the worker", exc_info=task.exception())


def _lost(pusher: Pusher) -> str:
    return "unreachable" if pusher.away_s else "alone"


def run(mailbox: Mapping[str, Any], settings: Settings | None = None) -> dict[str, Any]:
    """Run a resident worker in this process; return {"outcome": why it ended, "transcripts": {cid: hex}}.

    A transcript is the sealed rest of an answer that no relay took. `mailbox` has relay, kid, cid, attempt, salt_c (hex).
    Without `settings` they are read from the environment.
    Raises `ConfigError` or `JobRefused` before anything is connected.
    """
    known = settings if settings is not None else config.read(os.environ)
    return run_loop(_run(known, Mailbox.load(mailbox)))


async def _run(settings: Settings, mailbox: Mailbox) -> dict[str, Any]:
    resident = Resident(settings, mailbox)
    loop = asyncio.get_running_loop()
    # a task of Globus Compute may run outside the main thread, where signals cannot be handled
    with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
        loop.add_signal_handler(signal.SIGTERM, resident.drain)
    outcome = await resident.run()
    return {"outcome": outcome, "transcripts": resident.transcripts}


def run_task(offer: Mapping[str, Any], settings: Settings | None = None) -> dict[str, Any]:
    """Answer one job as one task and return {"outcome": ..., "transcript": hex or None}.

    `offer` is like an OFFER body with "prompt", the sealed prompt in hex. The transcript is sealed. With "batch": true
    the model is asked also when no relay can be reached, and the whole answer is in the transcript; that gives up what
    the relay does against a task that was started twice.
    Raises `ConfigError` or `JobRefused` before anything is connected.
    """
    known = settings if settings is not None else config.read(os.environ)
    try:
        job = bodies.load_offer(offer)
    except BodyError as error:
        raise JobRefused("offer") from error
    result = run_loop(_run_task(known, job, batch=offer.get("batch") is True))
    return {"outcome": result.outcome, "transcript": result.transcript.hex() if result.transcript else None}


async def _run_task(settings: Settings, offer: Offer, *, batch: bool) -> PushResult:
    model = ModelServer(settings)
    try:
        away_s = BATCH_AFTER_S if batch else AWAY_S
        return await Answer(settings, model, offer, eager=False, batch=batch, away_s=away_s).run()
    finally:
        await model.close()
