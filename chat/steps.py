"""What happened in a turn, with times, for `manage.py explain_turn`. No text of question or answer."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.utils import timezone

from routing.engine import AttemptStarted, Ended, EngineEvent, FellBack, Routed
from routing.types import ReasoningDelta, StateNote, TextDelta, Trace, Usage

Step = dict[str, Any]
STEPS_MOST = 200
_OF_EVENTS = ("attempt", "state", "fallback")


class Steps:
    """The steps of one turn. `ms` of each counts from `asked`."""

    def __init__(self, asked: datetime) -> None:
        self._asked = asked
        self._text_of = 0
        self._attempt = 0
        self.all: list[Step] = []

    def add(self, what: str, **facts: Any) -> None:
        """Note a step now. A turn with more than `STEPS_MOST` keeps its first ones and its end."""
        if len(self.all) >= STEPS_MOST and what != "ended":
            return
        ms = (timezone.now() - self._asked).total_seconds() * 1000
        self.all.append({"ms": round(ms, 1), "what": what, **facts})

    def take(self, event: EngineEvent) -> None:
        """Note what an event of the engine says."""
        match event:
            case TextDelta() | ReasoningDelta():
                if self._text_of != self._attempt:
                    self._text_of = self._attempt
                    self.add("first text", attempt=self._attempt)
            case Routed():
                self.add("routed")
            case AttemptStarted(number, model):
                self._attempt = number
                self.add("attempt", attempt=number, tier=model.tier.value, model=model.name)
            case StateNote(state, detail):
                self.add("state", state=state, detail=detail)
            case Trace(what, facts):
                self.add("way", of=what, **facts)
            case FellBack(failed, following, error):
                why = {"error": error.code, "why": error.happened}
                self.add("fallback", **{"from": failed.tier.value, "to": following.tier.value}, **why)

    def end(self, ended: Ended, usage: Usage) -> None:
        """Note how the turn ended and what its last attempt used."""
        error = {"error": ended.error.code, "why": ended.error.happened} if ended.error else {}
        tokens = {"tokens_in": usage.prompt, "tokens_out": usage.completion, "estimated": usage.estimated}
        self.add("ended", outcome=ended.outcome.value, finish=ended.finish, **tokens, **error)


def steps_of_events(events: Iterable[dict[str, Any]]) -> list[Step]:
    """Return what stored events tell of a turn whose runner died: the order, without times."""
    found = []
    for event in events:
        if event["kind"] in _OF_EVENTS:
            facts = {name: value for name, value in event.items() if name not in ("seq", "kind")}
            found.append({"ms": None, "what": event["kind"], **facts})
    return found[:STEPS_MOST]
