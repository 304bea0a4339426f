"""How an answer of the campus ended, in the platform's words: the worker's FIN, or the channel's outcome. Pure.

| FIN error                                     | ours, before text   | after text     |
|-----------------------------------------------|---------------------|----------------|
| unreachable, worker                           | `UpstreamError`     | `StreamBroken` |
| timeout                                       | `UpstreamTimeout`   | `StreamBroken` |
| refused                                       | `UpstreamRefused`   | `StreamBroken` |
| credentials                                   | `UpstreamAuthError` | `StreamBroken` |
| busy, draining                                | `UpstreamBusy`      | `StreamBroken` |
| broken and every other                        | `UpstreamError`     | `StreamBroken` |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpc_worker import bodies
from hpc_worker.bodies import Fin
from relay.subscription import Ending, Outcome
from routing.backends.errors_map import clean
from routing.types import BackendEvent, Finish, Usage, UsageReport
from stream_site.errors import (
    StreamBroken,
    StreamDamaged,
    UpstreamAuthError,
    UpstreamBusy,
    UpstreamError,
    UpstreamRefused,
    UpstreamTimeout,
)

_REASON = {"stop": "stop", "length": "length", "tool": "tool_calls", "content_filter": "content_filter"}
_ERRORS: Mapping[str, type[UpstreamError]] = {
    "timeout": UpstreamTimeout,
    "refused": UpstreamRefused,
    "credentials": UpstreamAuthError,
    "busy": UpstreamBusy,
    "draining": UpstreamBusy,
}
_FAULTS = {
    "wrong_key": "The worker holds another end-to-end key than this site under the same name.",
    "unknown_kid": "The worker used an end-to-end key that this site does not know or has withdrawn.",
    "forged": "A part of the answer was altered on its way and was refused.",
    "padding": "A part of the answer was altered on its way and was refused.",
    "count": "A part of the answer is missing at its end.",
    "sequence": "Another worker tried to go on in the middle of the answer and was refused.",
}
_REFUSED = {
    "unknown_kid": ("The worker on the campus does not have this site's end-to-end key.", "keys"),
    "relay_not_allowed": (
        "The worker on the campus may not use this site's relay: its settings do not name it.",
        "Ask an administrator to add the relay to STREAM_RELAY_URLS_ALLOWED of the worker.",
    ),
    "prompt_forged": ("The question could not be opened on the campus: key or text was altered on the way.", "keys"),
    "prompt_padding": ("The question could not be opened on the campus: it was altered on the way.", "keys"),
}
_OUTCOMES = {
    "unreachable": (
        "A worker ran on the campus, and its node could not reach the relay.",
        "The HPC administrator lets nodes reach the relay, or an administrator sets the endpoint to batch only.",
    ),
    "denied": ("The relay does not admit the worker: it does not know its producer key.", "keys"),
    "version": ("Worker and relay speak different versions of the protocol.", "Update the older of the two."),
    "deadline": ("A worker ran on the campus, and nobody took its answer in time.", "Try again, or pick another tier."),
}
_QUIET = frozenset({"delivered", "replaced", "finished", "stale_attempt"})
_KEYS_TODO = "Ask an administrator to compare the keys (`manage.py hpc_keys list`); another tier may answer meanwhile."
_ELSEWHERE = "Try again, or pick another tier."


def usage_of(usage: bodies.Usage) -> Usage:
    return Usage(
        prompt=usage.prompt,
        completion=usage.completion,
        cached=usage.cached,
        reasoning=usage.reasoning,
        estimated=usage.estimated,
    )


def fin_events(fin: Fin, *, text_seen: bool) -> Iterator[BackendEvent]:
    """Yield the usage, then the finish of an answer that has one. Raises `UpstreamError`."""
    if fin.usage is not None:
        yield UsageReport(usage_of(fin.usage))
    reason = _REASON.get(fin.finish)
    if reason is None:
        raise fin_error(fin, text_seen=text_seen)
    yield Finish(reason)


def fin_error(fin: Fin, *, text_seen: bool) -> UpstreamError:
    """Return what went wrong at the worker."""
    said = clean(fin.detail or f"The worker ended the answer ({fin.error or fin.finish}).")
    if text_seen:
        return StreamBroken(f"The campus stopped in the middle of the answer: {said}")
    return _ERRORS.get(fin.error, UpstreamError)(f"The campus could not answer: {said}", todo=_ELSEWHERE)


def damage(fault: str, reason: str, *, text_seen: bool) -> UpstreamError:
    """Return what a frame or a transcript that is not genuine means. Another key, before any, is a matter of setup."""
    what = fault_words(fault) or f"A part of the answer was not genuine ({clean(reason)})."
    if fault in ("wrong_key", "unknown_kid"):
        return StreamDamaged(what, todo=_KEYS_TODO) if text_seen else UpstreamError(what, todo=_KEYS_TODO)
    return StreamDamaged(what) if text_seen else StreamDamaged(what, kept="Your question is saved.", todo=_ELSEWHERE)


def fault_words(fault: str) -> str:
    """Return what a refused frame means, in a sentence; empty for a fault without words of its own."""
    return _FAULTS.get(fault, "")


def refused_words(code: str) -> tuple[str, str]:
    """Return what a worker's refusal of an offer means, and what to do."""
    happened, todo = _REFUSED.get(code, (f"The worker on the campus refused the question ({clean(code)}).", _ELSEWHERE))
    return happened, _KEYS_TODO if todo == "keys" else todo


def outcome_words(outcome: str) -> tuple[str, str]:
    """Return what the end of a task without a transcript means, and what to do; empty when all is well."""
    if outcome in _QUIET:
        return "", ""
    named = clean(outcome) or "no reason given"
    happened, todo = _OUTCOMES.get(outcome, (f"The task on the campus ended without an answer ({named}).", _ELSEWHERE))
    return happened, _KEYS_TODO if todo == "keys" else todo


def ending_error(ending: Ending, fault: str, *, text_seen: bool) -> UpstreamError:
    """Return what a channel's end without FIN means."""
    if ending.outcome is Outcome.DAMAGED:
        return damage(fault, ending.reason, text_seen=text_seen)
    if text_seen:
        return StreamBroken("The campus worker went silent in the middle of the answer.")
    if ending.outcome is Outcome.FAILED:
        return UpstreamError(f"The relay to the campus did not serve us: {ending.reason}.", todo=_ELSEWHERE)
    return UpstreamError("The campus worker went away before it wrote anything.", todo=_ELSEWHERE)
