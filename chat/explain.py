"""One trace of a turn in lines: judge, policy, attempts, the campus's way, and the ledger, in the order of time. Reads only."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

from chat.models import Turn, TurnState
from chat.services import stored_events
from chat.steps import Step, steps_of_events
from routing.models import LedgerEntry
from routing.money import format_usd
from stream_site.errors import NotFound

Line = tuple[float | None, str]


def explain(turn_id: str) -> Iterator[str]:
    """Yield the lines. Neither question nor answer is shown. Raises `NotFound`."""
    turn = find(turn_id)
    running = turn.state != TurnState.ENDED
    yield f"turn {turn.id}: question {turn.position}, version {turn.version}, of {turn.owner.get_username()}"
    yield (
        f"asked {turn.created_at:%Y-%m-%d %H:%M:%S} UTC for tier {turn.tier_choice}"
        f"{' and model ' + turn.model_choice if turn.model_choice else ''}, texts {turn.conversation.data_policy}"
    )
    if running:
        yield f"{turn.state}, by {turn.runner or 'nobody yet'}; what is stored so far, without times:"
    steps = steps_of_events(stored_events(turn)) if running else turn.steps
    lines = [line for step in steps for line in step_lines(step, turn)]
    lines += [ledger_line(turn, entry) for entry in LedgerEntry.objects.filter(turn_id=turn.id).order_by("id")]
    for ms, words in in_order(lines):
        yield f"{'' if ms is None else f'{ms:,.0f} ms':>12}  {words}"
    if not running:
        yield f"{turn.outcome}: {turn.tier or 'no tier'} {turn.model}, {turn.attempts} attempts, {format_usd(turn.cost_micro)}"


def find(turn_id: str) -> Turn:
    """Return the turn with this id. Raises `NotFound`."""
    try:
        return Turn.objects.select_related("owner", "conversation").get(id=uuid.UUID(turn_id))
    except (ValueError, Turn.DoesNotExist):
        raise NotFound(f"There is no turn {turn_id}.", todo="Compare it with the `turn` of the log.") from None


def in_order(lines: list[Line]) -> list[Line]:
    """Return lines by time; one without a time stays behind the one that was before it."""
    placed, last = [], 0.0
    for ms, words in lines:
        last = last if ms is None else ms
        placed.append((last, (ms, words)))
    return [line for _, line in sorted(placed, key=lambda item: item[0])]


def step_lines(step: Step, turn: Turn) -> Iterator[Line]:
    """Yield what a step says; the decision of the policy is in the turn's route."""
    ms, what = step["ms"], step["what"]
    if what == "routed":
        for words in route_words(turn.route or {}):
            yield ms, words
        return
    yield ms, step_words(what, step)


def step_words(what: str, step: Step) -> str:
    facts = {name: value for name, value in step.items() if name not in ("ms", "what") and value not in ("", None)}
    match what:
        case "taken":
            return "taken by a runner"
        case "attempt":
            return f"attempt {facts.get('attempt')}: {facts.get('tier')} {facts.get('model')}"
        case "state":
            detail = facts.get("detail")
            return f"  {facts.get('state')}{f': {detail}' if detail else ''}"
        case "first text":
            return "  first text"
        case "way":
            return f"  by {facts.pop('of')}: {listed(facts)}"
        case "fallback":
            return f"  fell back from {facts.get('from')} to {facts.get('to')}: {facts.get('why')}"
        case _:
            return f"{what}: {listed(facts)}"


def route_words(route: dict[str, Any]) -> Iterator[str]:
    judged = route.get("judgement")
    if judged:
        sure = ", ".join(f"{name} {share:.2f}" for name, share in judged["probabilities"].items())
        yield f"judged {judged['complexity']} by {judged['source']} in {judged['took_ms']:.1f} ms ({sure}): {judged['reason']}"
    elif route:
        yield "not judged: the tier was chosen"
    if route:
        dropped = route["dropped_messages"]
        note = f"; {dropped} earlier messages left out" if dropped else ""
        yield f"routed to {route['tier']} {route['model']}: {route['reason']}{note}"
    for one in route.get("candidates", ()):
        verdict = "allowed" if one["allowed"] else f"not allowed: {one['why_not']}"
        bound = f"at most {format_usd(one['cost_micro'])}, wait {one['wait_s']:.1f} s"
        yield f"  candidate {one['tier']} {one['model']}: {verdict}; {bound}"
    if route.get("fallbacks"):
        yield f"  then: {', '.join(route['fallbacks'])}"


def ledger_line(turn: Turn, entry: LedgerEntry) -> Line:
    ms = (entry.created_at - turn.created_at).total_seconds() * 1000
    tokens = f", {entry.tokens_in} tokens in, {entry.tokens_out} out" if entry.kind == "settle" else ""
    note = f", {entry.note}" if entry.note else ""
    doubt = ", doubtful" if entry.degraded else ""
    source = f" ({entry.source})" if entry.kind == "settle" else ""
    amount = format_usd(abs(entry.amount_micro))
    return ms, f"ledger {entry.pk}: {entry.kind} {amount}{source} for attempt {entry.attempt}{tokens}{note}{doubt}"


def listed(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
