"""The runner: takes turns and answers them, many at once, on one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from channels.layers import get_channel_layer
from django.conf import settings
from django.db import Error as DatabaseError
from redis.exceptions import RedisError

from chat import services
from chat.live import RUNNERS, ring
from chat.runner.turn_task import TurnTask
from routing.engine import Engine
from stream_site.database import in_database

log = logging.getLogger("stream.runner")


@dataclass(frozen=True)
class RunnerConf:
    """Seconds, but for `concurrency`: turns at once."""

    concurrency: int
    lease_s: float
    poll_s: float
    drain_s: float
    store_interval_s: float
    coalesce_interval_s: float


def runner_conf() -> RunnerConf:
    return RunnerConf(
        concurrency=settings.RUNNER_CONCURRENCY,
        lease_s=settings.RUNNER_LEASE_S,
        poll_s=settings.RUNNER_POLL_S,
        drain_s=settings.RUNNER_DRAIN_S,
        store_interval_s=settings.STORE_INTERVAL_S,
        coalesce_interval_s=settings.COALESCE_INTERVAL_S,
    )


class Runner:
    """`run` serves until cancelled, then drains: running answers get `drain_s` to end, the rest is kept and marked."""

    def __init__(self, engine: Engine, conf: RunnerConf | None = None) -> None:
        self.engine = engine
        self.conf = conf or runner_conf()
        self.name = f"r-{secrets.token_hex(8)}"
        self.running: dict[uuid.UUID, tuple[TurnTask, asyncio.Task[None]]] = {}
        self.bell = asyncio.Event()
        self.draining = False

    # ── the three loops ───────────────────────────────────────────────────

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._warm())
                group.create_task(self._forever(self._claim_once, self._wait_bell))
                group.create_task(self._forever(self._renew_once, self._wait_renewal))
                group.create_task(self._forever(self._hear_once, None))
        finally:
            await self.drain()

    async def _warm(self) -> None:
        """Load weights and libraries before the first question; one that comes earlier waits for its own part only."""
        try:
            await self.engine.warm()
        except Exception:
            log.exception("not everything could be made ready")

    async def _forever(self, once: Callable[[], Awaitable[None]], wait: Callable[[], Awaitable[None]] | None) -> None:
        """Do `once` again and again. A database or broker that is away is said once a second, and waited for."""
        while not self.draining:
            try:
                await once()
                if wait:
                    await wait()
            except (DatabaseError, OSError, RedisError) as error:
                log.warning("%s: %s; trying again", once, error)
                await asyncio.sleep(1)

    async def _claim_once(self) -> None:
        self.bell.clear()
        free = self.conf.concurrency - len(self.running)
        if free > 0:
            for claim in await in_database(
                services.turns_claim, runner=self.name, most=free, lease_s=self.conf.lease_s
            ):
                self.start(claim)

    async def _wait_bell(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.conf.poll_s):
                await self.bell.wait()

    async def _renew_once(self) -> None:
        claims = [(task.claim.turn.id, task.claim.fence) for task, _ in self.running.values()]
        lost, stopped = await in_database(services.leases_renew, claims=claims, lease_s=self.conf.lease_s)
        for turn_id in lost:
            self._end(turn_id, lost=True)
        for turn_id in stopped:
            self._end(turn_id)

    async def _wait_renewal(self) -> None:
        """Half a second while answers run: so long may a Stop take whose ring was lost."""
        await asyncio.sleep(0.5 if self.running else self.conf.poll_s)

    async def _hear_once(self) -> None:
        """Hear rings for runners: `turn.queued` and `turn.stop`."""
        layer = get_channel_layer()
        if layer is None:
            await asyncio.sleep(3600)
            return
        channel = await layer.new_channel()
        await layer.group_add(RUNNERS, channel)
        try:
            while not self.draining:
                message = await layer.receive(channel)
                if message["type"] == "turn.stop":
                    self._end(uuid.UUID(message["turn"]))
                else:
                    self.bell.set()
        finally:
            with contextlib.suppress(OSError, RedisError):
                await layer.group_discard(RUNNERS, channel)

    # ── turns ─────────────────────────────────────────────────────────────

    @property
    def claim_for_start(self) -> tuple[str, float] | None:
        """What `turn_start` needs to give the turn to this runner at once, or None when it has no place."""
        if self.draining or len(self.running) >= self.conf.concurrency:
            return None
        return self.name, self.conf.lease_s

    def start(self, claim: services.Claim) -> None:
        """Answer a claimed turn, in a task of its own."""
        turn_task = TurnTask(self.engine, claim, self.conf.store_interval_s, self.conf.coalesce_interval_s)
        task = asyncio.create_task(turn_task.run(), name=f"turn-{claim.turn.id}")
        self.running[claim.turn.id] = (turn_task, task)
        task.add_done_callback(lambda done: self._ended(claim.turn.id, done))

    def stop(self, turn_id: uuid.UUID) -> bool:
        """Stop a turn of this runner now; return whether it was one."""
        return self._end(turn_id)

    def _end(self, turn_id: uuid.UUID, *, lost: bool = False) -> bool:
        held = self.running.get(turn_id)
        if held is None:
            return False
        turn_task, _ = held
        turn_task.stop(lost=lost)
        return True

    def _ended(self, turn_id: uuid.UUID, task: asyncio.Task[None]) -> None:
        self.running.pop(turn_id, None)
        self.bell.set()
        if not task.cancelled() and task.exception():
            log.error(
                "turn %s ended by an error of ours; the sweeper will close it", turn_id, exc_info=task.exception()
            )

    async def drain(self) -> None:
        """Let running answers end, at most `drain_s`; then interrupt them: their text is kept and marked."""
        self.draining = True
        self.bell.set()
        tasks = [task for _, task in self.running.values()]
        if not tasks:
            return
        await asyncio.wait(tasks, timeout=self.conf.drain_s)
        for turn_task, _ in list(self.running.values()):
            turn_task.stop(shutdown=True)
        await asyncio.wait(tasks, timeout=5)


async def ring_runners(message_type: str, turn_id: uuid.UUID) -> None:
    """Tell runners in other processes that a turn is queued or to be stopped."""
    await ring(RUNNERS, {"type": message_type, "turn": str(turn_id)})
