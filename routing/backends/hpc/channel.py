"""One job's channel as the platform sees it: sealed frames in, backend events out, in order and each once.

A frame is handed on the moment it is opened; it is acknowledged when the reader has taken it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass

from hpc_worker import bodies, crypto
from hpc_worker.bodies import Alive, Fin, Offer
from hpc_worker.crypto import Opened
from hpc_worker.wire import FrameType, Kind
from relay import rendezvous
from relay.client import Consumer
from relay.subscription import Ending, Handlers, Outcome, Subscription, Timers
from routing.backends.hpc.directory import Campus
from routing.backends.hpc.unseal import Unsealer
from routing.types import BackendEvent, ReasoningDelta, StateNote, TextDelta, ToolDelta

TAKEN_AHEAD = 64  # items the reader may be behind before acknowledging waits for it


@dataclass(frozen=True)
class Over:
    """The channel ended; without a `Fin` before it, that is a failure."""

    ending: Ending


Item = BackendEvent | Fin | Over


def make_offer(campus: Campus, request: bytes, deadline_s: int) -> Offer:
    """Return a new job: fresh cid and salt, the prompt sealed once under them, the relay chosen by the cid."""
    cid, salt_c, kid = os.urandom(16), os.urandom(32), campus.content.primary
    scope = crypto.Scope(kid, cid, 1)
    prompt = crypto.seal_request(campus.content.keys[kid], scope, salt_c, request)
    return Offer(cid, 1, salt_c, kid, rendezvous.choose(cid, list(campus.relays)), deadline_s, prompt)


class JobChannel:
    """The consumer of one job. `run` it as a task and read `next` until a `Fin` or `Over`."""

    def __init__(self, campus: Campus, offer: Offer, timers: Timers) -> None:
        scope = crypto.Scope(offer.kid, offer.cid, offer.attempt)
        self.seal = Unsealer(campus.content, scope, offer.salt_c)
        kid, key = campus.consumer
        line = Subscription(offer.relay, kid, key, offer.cid, attempt=offer.attempt, name=campus.relays[offer.relay])
        self.consumer: Consumer[Opened | None] = Consumer(line, Handlers(self._open, self._store), timers)
        self.cid = offer.cid
        self.relay = line.name
        self.begun = asyncio.Event()
        self.fin_seen = False
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self._taken = asyncio.Event()
        self._left = False
        self._last = 0  # the sequence of the last frame that was opened
        self._frames = self._bytes = 0
        self.wire_frames = self.wire_bytes = 0

    async def run(self) -> Ending:
        """Consume to the end."""
        ending = await self.consumer.run()
        self._items.put_nowait(Over(ending))
        return ending

    async def next(self, timeout_s: float) -> Item | None:
        """Return the next item, None when there was none in time."""
        if self._items.empty():
            try:
                async with asyncio.timeout(timeout_s):
                    item = await self._items.get()
            except TimeoutError:
                return None
        else:
            item = self._items.get_nowait()
        if self._items.qsize() <= TAKEN_AHEAD:
            self._taken.set()
        return item

    async def leave(self) -> None:
        """Read no more: what still comes is acknowledged and dropped. Tell the worker to stop, if it has begun."""
        self._left = True
        self._taken.set()
        if self.seal.is_ready and not self.fin_seen:
            await self.consumer.cancel(self.seal.seal(Kind.CANCEL, bodies.dump_cancel("reader_left")))

    # -- frames

    def merge(self, transcript: bytes) -> None:
        """Take the sealed rest of an answer; what came over the relay before is left out. `run` must have ended."""
        try:
            for record in self.seal.open_rest(transcript):
                if record.seq > self._last + 1:
                    self.seal.fault = "count"
                    raise ValueError(f"frames {self._last + 1} to {record.seq - 1} are missing")
                if record.seq == self._last + 1:
                    self._items.put_nowait(self._read(Opened(record.type, record.seq, record.kind, record.body)))
                    self._last = record.seq
        except ValueError as error:
            self._items.put_nowait(Over(Ending(Outcome.DAMAGED, self._last, str(error))))
            return
        if not self.fin_seen:
            self._items.put_nowait(Over(Ending(Outcome.INTERRUPTED, self._last, "the returned answer has no end")))

    def _open(self, frame: bytes) -> Opened | None:
        opened = self.seal.open(frame)
        self.wire_frames += 1
        self.wire_bytes += len(frame)
        if opened is None:
            self.begun.set()
        else:
            self._last = opened.seq
            self._items.put_nowait(self._read(opened))
        return opened

    async def _store(self, items: Sequence[Opened | None]) -> None:
        while self._items.qsize() > TAKEN_AHEAD and not self._left:
            self._taken.clear()
            await self._taken.wait()

    def _read(self, opened: Opened) -> Item:
        if opened.type is FrameType.FIN:
            return self._fin(opened.body)
        if opened.type is FrameType.ALIVE:
            return StateNote(Alive.load(opened.body).state)
        self._frames += 1
        self._bytes += len(opened.body)
        if opened.kind is Kind.TEXT:
            return TextDelta(_storable(opened.body.decode()))
        if opened.kind is Kind.REASONING:
            return ReasoningDelta(_storable(opened.body.decode()))
        return _tool(opened.body)

    def _fin(self, body: bytes) -> Fin:
        fin = Fin.load(body)
        said = (fin.data_frames, fin.data_bytes)
        if said not in ((None, None), (self._frames, self._bytes)):
            self.seal.fault = "count"
            raise ValueError(f"{self._frames} frames came, {fin.data_frames} were sent")
        self.fin_seen = True
        return fin


def _tool(body: bytes) -> ToolDelta:
    try:
        said = json.loads(body.decode())
    except RecursionError:
        said = None
    if type(said) is not dict or type(said.get("index")) is not int:
        raise ValueError("a tool call that cannot be read")
    return ToolDelta(said["index"], *(_storable(str(said.get(name, ""))) for name in ("id", "name", "arguments")))


def _storable(text: str) -> str:
    """Return text as a database takes it. Our worker sends no other; who holds a worker's key may."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")
