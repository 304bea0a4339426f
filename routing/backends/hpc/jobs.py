"""What the parts of one dispatcher share: its seat at an endpoint, and the jobs it was given. No I/O."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from hpc_worker.bodies import Offer
from routing.backends.hpc.control import ControlPlane, JobState
from routing.backends.hpc.desk import Desk
from routing.backends.hpc.directory import Campus

OVER = (JobState.ENDED, JobState.FAILED)
STATE_EVERY_S = 1.0
RESULT_S = 10.0
_REMEMBERED = 4096


@dataclass(frozen=True)
class Seat:
    """One endpoint, and what serves it while the lease is held."""

    campus: Campus
    desk: Desk
    control: ControlPlane
    group: asyncio.TaskGroup


@dataclass
class Job:
    """One offer that nobody has begun to answer. `text`: the message it came in; `until`: Unix time."""

    offer: Offer
    text: str
    until: float
    since: float = field(default_factory=time.monotonic)
    given: bool = False
    retry_at: float = 0.0

    def offer_again(self) -> None:
        """Give it out once more. Whoever had it may be at work, so the relay will decide who asks the model."""
        self.given = False
        self.offer = replace(self.offer, again=True)


class Jobs:
    """Jobs by cid, oldest first; and the cids of those that were begun or are over, so that none is offered anew."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[bytes, Job] = OrderedDict()
        self._past: OrderedDict[bytes, None] = OrderedDict()

    def add(self, job: Job) -> bool:
        """Take a job in; False: it is known, or was begun before."""
        cid = job.offer.cid
        if cid in self._jobs or cid in self._past:
            return False
        self._jobs[cid] = job
        return True

    def pop(self, cid: bytes) -> Job | None:
        """Let go of a job for good."""
        self._past[cid] = None
        if len(self._past) > _REMEMBERED:
            self._past.popitem(last=False)
        return self._jobs.pop(cid, None)

    def get(self, cid: bytes) -> Job | None:
        return self._jobs.get(cid)

    def waiting(self) -> list[Job]:
        return [job for job in self._jobs.values() if not job.given]

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def texts(self) -> set[str]:
        return {job.text for job in self._jobs.values()}
