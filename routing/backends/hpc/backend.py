"""The campus tier: a question is sealed, offered to a worker by the dispatcher, and answered through a relay."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress

from hpc_worker.bodies import Fin
from relay.subscription import Ending, Outcome, Timers
from routing.backends.hpc import directory
from routing.backends.hpc.channel import JobChannel, Over, make_offer
from routing.backends.hpc.desk import Desk, unix_now
from routing.backends.hpc.directory import Campus
from routing.backends.hpc.fins import ending_error, fin_events
from routing.backends.hpc.watch import DISPATCHER_WAIT_S, TRANSCRIPT_WAIT_S, HpcLimits, Watch
from routing.backends.openai_compat import PASSED_ON
from routing.backends.streaming import guard_policy
from routing.types import BackendEvent, ModelCall, StateNote, TextDelta, Tier, ToolDelta, Trace
from stream_site.database import in_database
from stream_site.errors import UpstreamError

LOOK_EVERY_S = 0.5
LEAVE_S = 15.0  # a job that nobody reads any more is watched so long for a worker to cancel
CLOSE_S = 2.0
CAMPUS_LIFE_S = 5.0

log = logging.getLogger("stream.backends")


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
        if campus.batch_only:  # nothing may ever come over the relay
            timers = Timers(first_frame_s=limits.total_s, unreachable_s=limits.total_s)
        channel = JobChannel(campus, offer, timers)
        task = asyncio.create_task(channel.run(), name="campus channel")
        try:
            yield StateNote("submitted")
            if not campus.batch_only:
                await _attached(channel, task, limits.relay_s)
            watch = Watch(limits, campus)
            note = watch.look(await self._desk.submit(campus.name, offer, unix_now() + limits.worker_s))
            yield note
            reading = Reading(channel, task, watch, note)
            try:
                async with aclosing(self._answer(reading)) as events:
                    async for event in events:
                        yield event
            except UpstreamError:
                yield await self._facts(reading)
                raise
        finally:
            leaving = asyncio.create_task(self._leave(campus, channel, task), name="campus leaving")
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _answer(self, reading: Reading) -> AsyncGenerator[BackendEvent, None]:
        channel, watch = reading.channel, reading.watch
        while True:
            item = await channel.next(LOOK_EVERY_S)
            if item is not None:
                watch.heard()
            if channel.begun.is_set() and not watch.begun:
                watch.worker_came()
                await self._desk.say(watch.campus.name, "begun", channel.cid)
            if item is None:
                if note := await self._look(reading):
                    yield note
            elif isinstance(item, Fin):
                yield await self._facts(reading)
                for event in fin_events(item, text_seen=watch.text_seen):
                    yield event
                return
            elif isinstance(item, Over):
                reading.over(item.ending)
            elif isinstance(item, StateNote):
                watch.check()
                if item != reading.note and not watch.piece_seen:
                    reading.note = item
                    yield item
            else:
                watch.piece_came(text=isinstance(item, (TextDelta, ToolDelta)))
                yield item

    async def _look(self, reading: Reading) -> StateNote | None:
        """While nothing comes: see what the dispatcher knows. Return what is new for the person who waits."""
        watch = reading.watch
        status, found = await self._desk.look(watch.campus.name, reading.channel.cid)
        seen = watch.look(status, found)
        if found.transcript and not reading.merged:
            await reading.merge(found.transcript)
            return None
        reading.check()
        if watch.begun or seen == reading.note:
            return None
        reading.note = seen
        return seen

    async def _facts(self, reading: Reading) -> Trace:
        """Return what became known of the job's way."""
        channel, note = reading.channel, reading.watch.note
        if not note.mode:  # an answer that never paused was never looked after
            with suppress(UpstreamError):
                _, note = await self._desk.look(reading.watch.campus.name, channel.cid)
        facts = {
            "endpoint": reading.watch.campus.name,
            "mode": note.mode,
            "job": note.job,
            "relay": channel.relay,
            "relay_frames": channel.wire_frames,
            "relay_bytes": channel.wire_bytes,
            "merged": reading.merged,
        }
        return Trace("campus", facts)

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


class Reading:
    """One job as it is read: its channel, the clock, and what was told last."""

    def __init__(self, channel: JobChannel, task: asyncio.Task[Ending], watch: Watch, note: StateNote) -> None:
        self.channel, self.watch, self.note = channel, watch, note
        self.merged = False
        self._task = task
        self._ending: Ending | None = None
        self._ended_at = 0.0

    def over(self, ending: Ending) -> None:
        """Note that the channel ended without FIN; the rest may come as the result of a task. Raises `UpstreamError`."""
        self._ending, self._ended_at = ending, time.monotonic()
        if ending.outcome is Outcome.DAMAGED or self.merged or not self.watch.may_return:
            self._raise(ending)

    def check(self) -> None:
        """Raise `UpstreamError` when waiting has no more point."""
        if self._ending is not None and time.monotonic() - self._ended_at >= TRANSCRIPT_WAIT_S:
            self._raise(self._ending)
        if self._ending is None and not self.merged and self._task.done():
            self._task.result()  # a fault of ours
        self.watch.check()

    async def merge(self, transcript: str) -> None:
        """Take the returned rest of the answer instead of what may still come over the relay."""
        self.merged = True
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=CLOSE_S)
        self.channel.merge(bytes.fromhex(transcript))

    def _raise(self, ending: Ending) -> None:
        raise ending_error(ending, self.channel.seal.fault, text_seen=self.watch.text_seen)


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
