"""One turn being answered: engine events in; numbered events out, live at once and to the store in batches."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

from django.db import Error as DatabaseError
from django.utils import timezone

from chat import ending, services
from chat.live import conversation_group, ring
from chat.models import Turn
from chat.runner.eventlog import Event, EventLog
from chat.runner.money import LedgerPurse
from chat.selectors import answer_request, done_event
from chat.steps import Steps
from routing.engine import Answering, Attempt, AttemptStarted, Ended, Engine, EngineEvent, FellBack, Routed
from routing.types import Outcome, ReasoningDelta, StateNote, TextDelta, Usage
from stream_site.database import in_database
from stream_site.error_shapes import translate, words
from stream_site.errors import StreamBroken

log = logging.getLogger("stream.runner")
FINISH_TRIES = 8
CLOSE_TIMEOUT_S = 5.0


class TurnTask:
    """`run` answers the turn and always stores its end, also after `stop`; nobody cancels it from outside."""

    def __init__(
        self, engine: Engine, claim: services.Claim, store_interval_s: float, coalesce_interval_s: float
    ) -> None:
        self.engine = engine
        self.claim = claim
        self.store_interval_s = store_interval_s
        self.events = EventLog(coalesce_interval_s)
        self.group = conversation_group(claim.turn.conversation_id)
        self.answer: list[str] = []
        self.reasoning: list[str] = []
        self.route: dict[str, Any] | None = None
        self.answering: Answering | None = None
        self.first_text_ms: int | None = None
        self.steps = Steps(claim.turn.created_at)
        self.unpublished: list[Event] = []
        self.unstored: list[Event] = []
        self.news = asyncio.Event()
        self.stopped = asyncio.Event()
        self.lost = False
        self.shutdown = False

    def stop(self, *, lost: bool = False, shutdown: bool = False) -> None:
        """End the answer now. `lost`: another runner has the turn. `shutdown`: this process ends."""
        self.lost |= lost
        self.shutdown |= shutdown
        self.stopped.set()

    async def run(self) -> None:
        async with self._outlets():
            ended = await self._answer()
        if self.lost:
            return
        turn = await self._finish(ended)
        if turn is not None:
            await self._publish([*self.unpublished, done_event(turn)])

    # ── answering ─────────────────────────────────────────────────────────

    async def _answer(self) -> Ended:
        """Consume the engine until its end or `stop`. Return how it ended."""
        consume = asyncio.create_task(self._consume())
        stop = asyncio.create_task(self.stopped.wait())
        try:
            await asyncio.wait({consume, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not consume.done():
                consume.cancel()
                await asyncio.wait({consume}, timeout=CLOSE_TIMEOUT_S)
                return self._stopped_how()
            return consume.result()
        except Exception as error:  # noqa: BLE001 - the edge: whatever happened, the turn gets its one outcome
            return Ended(Outcome.INTERRUPTED if self._visible else Outcome.FAILED, error=translate(error))
        finally:
            stop.cancel()

    @property
    def _visible(self) -> bool:
        return bool(self.answer or self.reasoning)

    def _stopped_how(self) -> Ended:
        if not self.shutdown:
            return Ended(Outcome.CANCELLED)
        error = StreamBroken(
            "The server was restarted while it wrote the answer.",
            kept="What arrived is saved." if self._visible else "Your question is saved.",
            todo="Continue from here, or try again." if self._visible else "Try again.",
        )
        return Ended(Outcome.INTERRUPTED if self._visible else Outcome.FAILED, error=error)

    async def _consume(self) -> Ended:
        self.steps.add("taken")
        request = await in_database(answer_request, self.claim.turn)
        if request.ask.partial:
            self.answer.append(request.ask.partial)
            self._add("delta", text=request.ask.partial)
        self.answering = self.engine.answer(request, LedgerPurse(self.claim.turn))
        async with aclosing(self.answering.stream()) as events:
            async for event in events:
                if isinstance(event, Ended):
                    return event
                self._take(event)
        raise StreamBroken("The answer ended without an end.")

    def _take(self, event: EngineEvent) -> None:
        self.steps.take(event)
        match event:
            case TextDelta(text):
                self._first_text()
                self.answer.append(text)
                self._add("delta", text=text)
            case ReasoningDelta(text):
                self._first_text()
                self.reasoning.append(text)
                self._add("reasoning", text=text)
            case Routed(decision):
                self.route = decision.as_dict()
                self._add("route", route=self.route)
            case AttemptStarted(number, model):
                self._add("attempt", attempt=number, tier=model.tier.value, model=model.name, model_label=model.label)
            case StateNote(state, detail):
                self._add("state", state=state, detail=detail)
            case FellBack(failed, following, error):
                why = words(error).happened
                self._add("fallback", **{"from": failed.tier.value, "to": following.tier.value, "why": why})

    def _first_text(self) -> None:
        if self.first_text_ms is None:
            self.first_text_ms = int((timezone.now() - self.claim.turn.created_at).total_seconds() * 1000)

    # ── events out ────────────────────────────────────────────────────────

    def _add(self, kind: str, **fields: Any) -> None:
        self._out(self.events.add(time.monotonic(), kind, **fields))
        self.news.set()

    def _out(self, events: list[Event]) -> None:
        self.unpublished += events
        self.unstored += events

    @asynccontextmanager
    async def _outlets(self) -> AsyncIterator[None]:
        """Publish and store while the body runs; on leaving, nothing waits to be joined."""
        tasks = [asyncio.create_task(self._publish_loop()), asyncio.create_task(self._store_loop())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._out(self.events.flush(time.monotonic()))

    async def _publish_loop(self) -> None:
        """Publish what is due, in order; what comes during a slow publication goes out in one message after it."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.events.due_in(time.monotonic())):
                    await self.news.wait()
            self.news.clear()
            now = time.monotonic()
            if self.events.due_in(now) == 0:
                self._out(self.events.flush(now))
            if self.unpublished:
                batch, self.unpublished = self.unpublished, []
                await self._publish(batch)

    async def _publish(self, events: list[Event]) -> None:
        turn = self.claim.turn
        await ring(
            self.group, {"type": "turn.events", "turn": str(turn.id), "fence": self.claim.fence, "events": events}
        )

    async def _store_loop(self) -> None:
        while True:
            await asyncio.sleep(self.store_interval_s)
            if self.unstored:
                await self._store()

    async def _store(self) -> None:
        batch = list(self.unstored)
        try:
            held = await in_database(
                services.events_append, turn_id=self.claim.turn.id, fence=self.claim.fence, events=batch
            )
        except DatabaseError as error:
            log.warning("events of turn %s wait for the database: %s", self.claim.turn.id, error)
            return
        del self.unstored[: len(batch)]
        if not held:
            self.stop(lost=True)

    # ── the end ───────────────────────────────────────────────────────────

    async def _finish(self, ended: Ended) -> Turn | None:
        """Store the end; a database that is away is waited for, about half a minute. Then the sweeper closes the turn."""
        end = self._turn_end(ended)
        for tried in range(FINISH_TRIES):
            try:
                return await in_database(ending.turn_finish, claim=self.claim, end=end)
            except DatabaseError as error:
                log.warning("the end of turn %s waits for the database: %s", self.claim.turn.id, error)
                await asyncio.sleep(min(8, 0.25 * 2**tried))
        return None

    def _turn_end(self, ended: Ended) -> ending.TurnEnd:
        attempts = self.answering.attempts if self.answering else []
        last = attempts[-1] if attempts else None
        usage = last.billable() if last else Usage()
        self.steps.end(ended, usage)
        return ending.TurnEnd(
            outcome=ended.outcome,
            answer="".join(self.answer),
            reasoning="".join(self.reasoning),
            error=words(ended.error).as_dict() if ended.error else None,
            route=self.route,
            model=last.model if last else None,
            usage=usage,
            bills=[bill(attempt) for attempt in attempts],
            first_text_ms=self.first_text_ms,
            events_end=self.events.last_seq + 1,
            steps=self.steps.all,
        )


def bill(attempt: Attempt) -> ending.Bill:
    usage = attempt.billable()
    ran = attempt.sent and bool(usage.prompt or usage.completion or usage.cost_micro)
    return ending.Bill(attempt.number, attempt.model, usage, ran)
