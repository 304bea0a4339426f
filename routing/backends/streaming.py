"""Turn the bytes of one answer into events, within its time limits. Shared by the HTTP backends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable
from typing import Protocol, TypeVar

from hpc_worker.sse import Fault, FinishItem, Item, Reasoning, Text, ToolPiece, UsageItem
from routing.backends.config import BackendConfig
from routing.backends.errors_map import NETWORK_ERRORS, SERVER, from_fault
from routing.types import (
    BackendEvent,
    DataPolicy,
    Finish,
    ModelCall,
    ReasoningDelta,
    TextDelta,
    Tier,
    ToolDelta,
    Usage,
    UsageReport,
)
from stream_site.errors import AccessError, UpstreamTimeout

# A server that said how its answer ended may still send the usage; it is not worth a long wait.
AFTER_FINISH_S = 5.0
# Shorter than what servers keep idle connections for (llama.cpp 5 s): a question must not meet one that just closed.
KEEPALIVE_S = 2.0
_ENDED_BADLY: tuple[type[Exception], ...] = (UpstreamTimeout, *NETWORK_ERRORS)

T = TypeVar("T")

log = logging.getLogger("stream.backends")


class StreamReader(Protocol):
    """What reads one format: `OpenAIStreamReader` or `OllamaStreamReader`."""

    over: bool
    ignored_frames: int

    @property
    def finish_seen(self) -> bool: ...
    @property
    def stray_closings(self) -> int: ...
    def feed(self, data: bytes) -> list[Item]: ...
    def close(self) -> list[Item]: ...


def guard_policy(tier: Tier, call: ModelCall) -> None:
    """Raise `AccessError` when the call may not leave the campus. The second check, next to the socket."""
    if tier is Tier.CLOUD and call.data_policy is not DataPolicy.PUBLIC:
        raise AccessError(
            "This conversation is limited to the campus, so it was not sent to the cloud.",
            kept="Your question is saved, and nothing left the campus.",
            todo="Pick Local or Campus HPC.",
        )


class Clock:
    """The time limits of one request. Knows how far it got, so that each timeout has its own words."""

    def __init__(self, config: BackendConfig) -> None:
        self._limits = config.timeouts
        self._server = SERVER[config.tier]
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + self._limits.total_s
        self.headers_seen = False
        self.piece_seen = False

    async def wait(self, awaitable: Awaitable[T], *, finished: bool = False) -> T:
        """Await the next bytes (or the headers). Raises `UpstreamTimeout`."""
        limit = self._limits.between_bytes_s if self.piece_seen else self._limits.first_byte_s
        if finished:
            limit = min(limit, AFTER_FINISH_S)
        deadline = min(self._loop.time() + limit, self._end)
        try:
            async with asyncio.timeout_at(deadline) as scope:
                return await awaitable
        except TimeoutError:
            if not scope.expired():
                raise
            raise self._too_slow(limit, total=deadline == self._end) from None

    def _too_slow(self, limit: float, *, total: bool) -> UpstreamTimeout:
        if total:
            words = f"did not end its answer within {self._limits.total_s:g} s"
        elif self.piece_seen:
            words = f"stopped in the middle of the answer for {limit:g} s"
        elif self.headers_seen:
            words = f"took the question but sent no text within {limit:g} s"
        else:
            words = f"did not react to the question within {limit:g} s"
        kept, todo = "", "Try again, or pick another tier."
        if self.piece_seen:
            kept, todo = "What arrived is saved.", "Continue from here, or try again."
        return UpstreamTimeout(f"{self._server} {words}.", kept=kept, todo=todo)


async def read_answer(
    chunks: AsyncIterator[bytes], reader: StreamReader, clock: Clock, tier: Tier
) -> AsyncGenerator[BackendEvent, None]:
    """Yield the events of one answer, `Finish` last. Raises `UpstreamError`; network errors pass through untranslated.

    Once the server has said how its answer ended, a timeout or a broken connection only costs the usage.
    """
    text_seen = False
    while not reader.over:
        try:
            data = await clock.wait(anext(chunks, None), finished=reader.finish_seen)
        except _ENDED_BADLY:
            if not reader.finish_seen:
                raise
            data = None
        for item in reader.close() if data is None else reader.feed(data):
            if isinstance(item, Fault):
                raise from_fault(item, tier, text_seen=text_seen)
            if isinstance(item, (Text, Reasoning, ToolPiece)):
                clock.piece_seen = True
                text_seen = text_seen or not isinstance(item, Reasoning)
            if isinstance(item, FinishItem):
                _report(reader, tier)
            yield to_event(item)


def _report(reader: StreamReader, tier: Tier) -> None:
    """Log what was odd about a stream that still gave an answer, for whoever runs the server."""
    if reader.ignored_frames:
        log.warning("%s: %d frames could not be read and were left out", SERVER[tier], reader.ignored_frames)
    if reader.stray_closings:
        log.warning("%s: a model closes <think> without opening it; flag it starts_in_reasoning", SERVER[tier])


def to_event(item: Item) -> BackendEvent:
    """Return a reader's item as an event of `routing.types`."""
    if isinstance(item, Text):
        return TextDelta(item.text)
    if isinstance(item, Reasoning):
        return ReasoningDelta(item.text)
    if isinstance(item, ToolPiece):
        return ToolDelta(item.index, item.id, item.name, item.arguments)
    if isinstance(item, FinishItem):
        return Finish(item.reason)
    if isinstance(item, UsageItem):
        return UsageReport(
            Usage(
                prompt=item.prompt,
                completion=item.completion,
                cached=item.cached,
                reasoning=item.reasoning,
                cost_micro=item.cost_micro,
                estimated=item.estimated,
                generation_id=item.generation_id,
            )
        )
    raise TypeError(f"no event for {type(item).__name__}")
