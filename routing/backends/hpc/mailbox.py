"""The dispatcher's end of one resident worker's mailbox: sealed offers out, what the worker says of itself in.

Records are in the database, because a sequence may never be used twice with the same salts: each dispatcher that takes a
mailbox over raises its `epoch` first, and seals from `epoch << 20` on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Sequence

from django.db.models import F
from django.utils import timezone

from hpc_worker import crypto
from hpc_worker.bodies import Alive, BodyError, Offer, dump_cancel
from hpc_worker.crypto import Opened
from hpc_worker.wire import FrameType, Kind
from relay import rendezvous
from relay.client import Consumer
from relay.subscription import Handlers, Subscription, Timers
from routing.backends.hpc import directory
from routing.backends.hpc.control import JobHandle
from routing.backends.hpc.directory import Campus
from routing.backends.hpc.fins import fault_words
from routing.backends.hpc.unseal import Unsealer
from routing.hpc_models import HpcMailbox
from stream_site.database import in_database

EPOCH_BITS = 20
MAX_EPOCH = (1 << 32 - EPOCH_BITS) - 2
START_S = 900.0  # a batch system may keep a worker waiting
TAKEOVER_S = 60.0
TAKEOVER_SPEAK_S = 15.0  # a worker that is still there speaks every 10 s
SILENT_S = 35.0  # one that was silent for so long gets no offers
DEAD_S = 60.0  # and after so long it is given up

log = logging.getLogger("stream.hpc")


def mailbox_open(campus: Campus) -> HpcMailbox:
    """Make the record of a new mailbox."""
    cid = os.urandom(16)
    return HpcMailbox.objects.create(
        endpoint_id=campus.id,
        cid=cid.hex(),
        salt_c=os.urandom(32).hex(),
        kid=campus.content.primary,
        relay=rendezvous.choose(cid, list(campus.relays)),
        epoch=1,
    )


def mailboxes_take_over(campus: Campus) -> list[HpcMailbox]:
    """Return the endpoint's open mailboxes, each with an epoch that nobody has used."""
    mine = HpcMailbox.objects.filter(endpoint_id=campus.id, closed=None)
    known = {"relay__in": list(campus.relays), "kid__in": list(campus.content), "epoch__lt": MAX_EPOCH}
    mine.exclude(pk__in=mine.filter(**known).values("pk")).update(closed=timezone.now())
    mine.update(epoch=F("epoch") + 1)
    return list(mine)


def mailboxes_close(campus: Campus) -> None:
    """Give up the endpoint's mailboxes: their workers ended with the dispatcher that made them."""
    HpcMailbox.objects.filter(endpoint_id=campus.id, closed=None).update(closed=timezone.now())


def mailbox_close(record: HpcMailbox) -> None:
    """Note that nobody is at a mailbox any more; not when another dispatcher has taken it over."""
    HpcMailbox.objects.filter(pk=record.pk, epoch=record.epoch).update(closed=timezone.now())


def mailbox_job(record: HpcMailbox, job_id: str) -> None:
    """Remember the control plane's name for the worker at a mailbox."""
    HpcMailbox.objects.filter(pk=record.pk).update(job_id=job_id[:100])


def _mailbox_stored(record: HpcMailbox, seq: int) -> None:
    HpcMailbox.objects.filter(pk=record.pk, last_seq__lt=seq).update(last_seq=seq)


class MailboxLine:
    """One resident worker. `jobs`: when what was offered to it, and has not ended, is given up, by cid.

    `refused` collects (cid, code) of offers that it will not answer, for the dispatcher to take.
    """

    def __init__(self, campus: Campus, record: HpcMailbox, handle: JobHandle | None = None) -> None:
        self.record = record
        self.handle = handle
        self.alive: Alive | None = None
        self.jobs: dict[bytes, float] = {}
        self.refused: list[tuple[bytes, str]] = []
        self.idle_since = time.monotonic()
        self.ended = False
        self.told_to_end_at: float | None = None
        self.lost_words = ""  # what the control plane says of its end
        self._places = 0
        self._heard = time.monotonic()
        self._made = time.monotonic()
        self._task: asyncio.Task[None] | None = None
        cid, salt_c = bytes.fromhex(record.cid), bytes.fromhex(record.salt_c)
        self._seal = Unsealer(
            campus.content, crypto.Scope(record.kid, cid, 1), salt_c, (record.epoch << EPOCH_BITS) + 1
        )
        kid, key = campus.consumer
        line = Subscription(
            record.relay, kid, key, cid, last=record.last_seq, mailbox=True, name=campus.relays[record.relay]
        )
        first_s = START_S if record.epoch == 1 else TAKEOVER_S
        self._consumer: Consumer[Opened | None] = Consumer(
            line, Handlers(self._seal.open, self._store), Timers(first_frame_s=first_s)
        )

    @property
    def arguments(self) -> dict[str, object]:
        """What the worker needs to serve this mailbox. Nothing in it is secret."""
        r = self.record
        return {"relay": r.relay, "kid": r.kid, "cid": r.cid, "attempt": 1, "salt_c": r.salt_c}

    @property
    def why(self) -> str:
        """Why it never came up, as far as the channel knows."""
        return fault_words(self._seal.fault) or self.lost_words or "A campus worker ended before it was ready."

    @property
    def is_ready(self) -> bool:
        well = not self.ended and self.told_to_end_at is None and self.silent_s < SILENT_S
        return well and self._seal.is_ready and self.alive is not None and self.alive.state == "ready"

    @property
    def silent_s(self) -> float:
        """For how long a worker that was there has said nothing."""
        return time.monotonic() - self._heard if self.alive is not None else 0.0

    @property
    def next_sequence(self) -> int:
        """The sequence of the next CTRL frame."""
        return self._seal.next_control

    @property
    def is_coming(self) -> bool:
        """Whether a worker may still come up: one of ours, or a predecessor's that has had little time to speak."""
        if self.ended or self.alive is not None:
            return False
        return self.handle is not None or time.monotonic() - self._made < TAKEOVER_SPEAK_S

    @property
    def free(self) -> int:
        """Places for offers now; 0 when it takes none."""
        if not self.is_ready:
            return 0
        # what it said to be free counted what ran then; the most it ever said is all it has
        return max(0, self._places - len(self.jobs))

    def start(self, group: asyncio.TaskGroup) -> None:
        """Hold the channel until it ends, as a task of `group`."""
        self._task = group.create_task(self._run(), name=f"mailbox {self.record.pk}")

    def stop(self) -> None:
        """Let go of the channel. Its record stays open: a successor may take it over."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            ending = await self._consumer.run()
            log.info("mailbox %s ended: %s %s", self.record.pk, ending.outcome, ending.reason)
        except BodyError as error:
            log.warning("mailbox %s: its worker says what nobody understands: %s", self.record.pk, error)
        finally:
            self.ended = True

    async def attached(self, timeout_s: float) -> bool:
        """Say whether the channel exists at the relay within `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._consumer.attached.wait()
        except TimeoutError:
            return False
        return True

    async def send(self, offer: Offer) -> None:
        """Offer a job to the worker."""
        self.jobs[offer.cid] = time.monotonic() + offer.deadline_s
        for kind, body in offer.dump():
            await self._consumer.send_ctrl(self._seal.seal(kind, body))

    async def tell_to_end(self, reason: str) -> bool:
        """Tell the worker to take nothing new, to end its answers and itself. False: it has not come up yet."""
        if self.ended or not self._seal.is_ready:
            return False
        if self.told_to_end_at is None:
            self.told_to_end_at = time.monotonic()
            await self._consumer.send_ctrl(self._seal.seal(Kind.CANCEL, dump_cancel(reason)))
        return True

    def forget(self, cid: bytes) -> None:
        """Note that a job has ended."""
        if self.jobs.pop(cid, None) is not None and not self.jobs:
            self.idle_since = time.monotonic()

    def forget_old(self) -> None:
        """Note that jobs are over whose reader died: nobody says so, but their time is up."""
        now = time.monotonic()
        for cid in [cid for cid, until in self.jobs.items() if until <= now]:
            self.forget(cid)

    async def _store(self, items: Sequence[Opened | None]) -> None:
        frames = [item for item in items if item is not None]
        if not frames:
            return
        self._heard = time.monotonic()
        first = self.alive is None
        for frame in frames:
            if frame.type is FrameType.ALIVE:
                self.alive = Alive.load(frame.body)
                self._places = max(self._places, self.alive.capacity or 0)
                if self.alive.refused:
                    self.refused.append((bytes.fromhex(self.alive.refused), self.alive.reason))
        await in_database(_mailbox_stored, self.record, frames[-1].seq)
        if first:
            await in_database(directory.note_key_used, self._seal.kid)
