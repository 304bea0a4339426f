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


def fault_words(fault: str) -> str:
    """Return what a refused frame means, in a sentence; empty for a fault without words of its own."""
    return _FAULTS.get(fault, "")


def ending_error(ending: Ending, fault: str, *, text_seen: bool) -> UpstreamError:
    """Return what a channel's end without FIN means."""
    if ending.outcome is Outcome.DAMAGED:
        what = fault_words(fault) or f"A part of the answer was not genuine ({ending.reason})."
        todo = _KEYS_TODO if fault in ("wrong_key", "unknown_kid") else ""
        if text_seen:
            return StreamBroken(what, kept="What arrived before that is saved.", todo=todo)
        return UpstreamError(what, todo=todo or _ELSEWHERE)
    if text_seen:
        return StreamBroken("The campus worker went silent in the middle of the answer.")
    if ending.outcome is Outcome.FAILED:
        return UpstreamError(f"The relay to the campus did not serve us: {ending.reason}.", todo=_ELSEWHERE)
    return UpstreamError("The campus worker went away before it wrote anything.", todo=_ELSEWHERE)
