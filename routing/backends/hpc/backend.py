"""The campus tier: a question is sealed, offered to a worker by the dispatcher, and answered through a relay."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass

from hpc_worker.bodies import Fin
from relay.subscription import Ending, Timers
from routing.backends.hpc import directory
from routing.backends.hpc.channel import JobChannel, Over, make_offer
from routing.backends.hpc.desk import Desk, Status, unix_now
from routing.backends.hpc.directory import Campus
from routing.backends.hpc.fins import ending_error, fin_events
from routing.backends.openai_compat import PASSED_ON
from routing.backends.streaming import guard_policy
from routing.types import BackendEvent, ModelCall, StateNote, TextDelta, Tier, ToolDelta
from stream_site.database import in_database
from stream_site.errors import StreamBroken, UpstreamError, UpstreamTimeout

LOOK_EVERY_S = 0.5
DISPATCHER_WAIT_S = 15.0  # a stack that has just started brings its dispatcher last
LEAVE_S = 15.0  # a job that nobody reads any more is watched so long for a worker to cancel
CLOSE_S = 2.0
CAMPUS_LIFE_S = 5.0

log = logging.getLogger("stream.backends")


@dataclass(frozen=True)
class HpcLimits:
    """Seconds: until a worker takes the question, from there to the first text, and between texts."""

    worker_s: float = 300.0
    first_text_s: float = 120.0
    between_text_s: float = 45.0
    total_s: float = 900.0
    relay_s: float = 20.0


class Watch:
    """The clock of one answer: which stage it is in, and the words when that stage takes too long."""

    def __init__(self, limits: HpcLimits, campus: Campus) -> None:
        self._limits, self.campus = limits, campus
        self._began = self._since = time.monotonic()
        self.begun = self.text_seen = self.piece_seen = False
        self.status: Status | None = None
        self._dispatcher_seen = self._began

    def worker_came(self) -> None:
        self.begun, self._since = True, time.monotonic()

    def piece_came(self, *, text: bool) -> None:
        self.piece_seen, self._since = True, time.monotonic()
        self.text_seen |= text

    def look(self, status: Status | None) -> StateNote:
        """Take how the endpoint stands; return what to tell the person who waits."""
        self.status = status
        if status is None:
            return StateNote("submitted", "waiting for the campus dispatcher")
        self._dispatcher_seen = time.monotonic()
        if status.ready:
            ahead = max(0, status.waiting - 1)
            return StateNote("queued", f"{ahead} ahead" if ahead else "")
        return StateNote("queued", status.step or status.why)

    def check(self) -> None:
        """Raise `UpstreamTimeout` or `UpstreamError` when the present stage took too long."""
        now, limits = time.monotonic(), self._limits
        waited = now - self._since
        if not self.begun and now - self._dispatcher_seen >= DISPATCHER_WAIT_S:
            raise UpstreamError(
                "The campus dispatcher is not running, so no worker could be asked.",
                todo="Ask an administrator to start `manage.py hpc_dispatcher`, or pick another tier.",
            )
        if not self.begun and waited >= limits.worker_s:
            why = f" {self.status.why}" if self.status and self.status.why else ""
            raise UpstreamTimeout(
                f"No worker of {self.campus.label} took the question within {limits.worker_s:g} s.{why}",
                todo="Try again later, or pick another tier.",
            )
        if self.begun and not self.piece_seen and waited >= limits.first_text_s:
            raise UpstreamTimeout(
                f"A campus worker took the question but sent no text within {limits.first_text_s:g} s.",
                todo="Try again, or pick another tier.",
            )
        if self.piece_seen and waited >= limits.between_text_s:
            raise StreamBroken(f"The campus worker sent no more text for {limits.between_text_s:g} s.")


class HpcBackend:
    """`Backend` of the campus tier. `find`: model name -> its endpoint; `note_used`: a content key was used. Both sync."""

    tier = Tier.HPC

    def __init__(
        self,
        redis_url: str,
        limits: HpcLimits,
        find: Callable[[str], Campus] = directory.campus_for,
        note_used: Callable[[str], None] = directory.note_key_used,
    ) -> None:
        self._desk = Desk(redis_url)
        self._limits = limits
        self._find = find
        self._note_used = note_used
        self._known: dict[str, tuple[float, Campus]] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    async def stream(self, call: ModelCall) -> AsyncGenerator[BackendEvent, None]:
        """Yield the events of one answer. Raises `UpstreamError`."""
        guard_policy(self.tier, call)
        campus = await self._campus(call.model.name)
        limits = self._limits
        offer = make_offer(campus, request_of(call), int(limits.total_s))
        timers = Timers(first_frame_s=limits.worker_s + DISPATCHER_WAIT_S, unreachable_s=limits.relay_s)
        channel = JobChannel(campus, offer, timers)
        task = asyncio.create_task(channel.run(), name="campus channel")
        try:
            yield StateNote("submitted")
            await _attached(channel, task, limits.relay_s)
            watch = Watch(limits, campus)
            note = watch.look(await self._desk.submit(campus.name, offer, unix_now() + limits.worker_s))
            yield note
            async with aclosing(self._answer(channel, watch, note)) as events:
                async for event in events:
                    yield event
        finally:
            leaving = asyncio.create_task(self._leave(campus, channel, task), name="campus leaving")
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _answer(self, channel: JobChannel, watch: Watch, note: StateNote) -> AsyncGenerator[BackendEvent, None]:
        name = watch.campus.name
        while True:
            item = await channel.next(LOOK_EVERY_S)
            if channel.begun.is_set() and not watch.begun:
                watch.worker_came()
                await self._desk.say(name, "begun", channel.cid)
            if item is None:
                watch.check()
                if not watch.begun and (seen := watch.look(await self._desk.status(name))) != note:
                    note = seen
                    yield note
            elif isinstance(item, Fin):
                for event in fin_events(item, text_seen=watch.text_seen):
                    yield event
                return
            elif isinstance(item, Over):
                raise ending_error(item.ending, channel.seal.fault, text_seen=watch.text_seen)
            elif isinstance(item, StateNote):
                watch.check()
                if item != note and not watch.piece_seen:
                    note = item
                    yield item
            else:
                watch.piece_came(text=isinstance(item, (TextDelta, ToolDelta)))
                yield item

    async def _leave(self, campus: Campus, channel: JobChannel, task: asyncio.Task[Ending]) -> None:
        """Cancel a job that has no end yet, tell the dispatcher that its place is free, let the channel end."""
        try:
            await channel.leave()
            with suppress(UpstreamError):
                await self._desk.say(campus.name, "done", channel.cid)
            if not channel.begun.is_set() and not task.done():
                begun = asyncio.create_task(channel.begun.wait())
                await asyncio.wait({begun, task}, timeout=LEAVE_S, return_when=asyncio.FIRST_COMPLETED)
                begun.cancel()
                await channel.leave()
            await asyncio.wait({task}, timeout=LEAVE_S if channel.begun.is_set() else 0)
            if channel.seal.kid:
                await in_database(self._note_used, channel.seal.kid)
        finally:
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSE_S)

    async def _campus(self, model: str) -> Campus:
        now = time.monotonic()
        held = self._known.get(model)
        if held is None or now - held[0] > CAMPUS_LIFE_S:
            held = (now, await in_database(self._find, model))
            self._known[model] = held
        return held[1]

    async def warm(self) -> None:
        """Make the connection to the key-value server."""
        with suppress(UpstreamError):
            await self._desk.status("warm")

    async def close(self) -> None:
        """Let jobs that were left be cancelled at their workers, then close connections."""
        leaving = set(self._leaving)
        if leaving:
            await asyncio.wait(leaving, timeout=CLOSE_S)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        await self._desk.close()


def request_of(call: ModelCall) -> bytes:
    """Return the JSON of a chat completion without model and stream: the worker says those."""
    body: dict[str, object] = {
        "messages": [{"role": message.role, "content": message.text} for message in call.messages],
        "max_tokens": call.max_tokens,
    }
    if call.temperature is not None:
        body["temperature"] = call.temperature
    body.update({name: call.extra[name] for name in PASSED_ON if name in call.extra})
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


async def _attached(channel: JobChannel, task: asyncio.Task[Ending], timeout_s: float) -> None:
    """Wait until the channel exists at the relay: before that, no worker may be sent to it."""
    attached = asyncio.create_task(channel.consumer.attached.wait())
    try:
        await asyncio.wait({attached, task}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            raise ending_error(task.result(), channel.seal.fault, text_seen=False)
        if not attached.done():
            raise UpstreamError("The relay to the campus cannot be reached.", todo="Try again, or pick another tier.")
    finally:
        attached.cancel()
