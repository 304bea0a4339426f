"""The one seam where foreign errors become ours: exceptions of httpx and openai, HTTP statuses, faults in a stream.

| what the server or the network did             | ours                                                        |
|------------------------------------------------|-------------------------------------------------------------|
| 401, 402, 403                                  | `UpstreamAuthError`, saying whose key or credit             |
| 400, 413, 422 that speak of the context window | `ContextTooLong`                                            |
| 408, 429, 5xx                                  | `UpstreamBusy` with its Retry-After                         |
| other 4xx                                      | `UpstreamRefused`                                           |
| a time limit of the network library            | `UpstreamTimeout` (`UpstreamBusy` if our own pool was full) |
| not reachable, wrong address, TLS, proxy       | `UpstreamError`                                             |
| the connection or the stream broke             | `StreamBroken`                                              |
"""

from __future__ import annotations

import email.utils
import html
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import httpx
import httpx2

from hpc_worker.sse import Fault
from routing.types import Tier
from stream_site.errors import (
    ContextTooLong,
    StreamBroken,
    UpstreamAuthError,
    UpstreamBusy,
    UpstreamError,
    UpstreamRefused,
    UpstreamTimeout,
)

MAX_WORDS = 240
MAX_RETRY_AFTER_S = 86_400.0
SERVER = {Tier.LOCAL: "The local model server", Tier.HPC: "The campus model server", Tier.CLOUD: "The cloud provider"}

# openai 3 is built on httpx2, Ollama's client on httpx; their trees are twins. OSError: TLS and sockets below them.
NETWORK_ERRORS: tuple[type[Exception], ...] = (
    httpx.HTTPError,
    httpx.InvalidURL,
    httpx.CookieConflict,
    httpx.StreamError,
    httpx2.HTTPError,
    httpx2.InvalidURL,
    httpx2.CookieConflict,
    httpx2.StreamError,
    OSError,
)
_POOL_FULL = (httpx.PoolTimeout, httpx2.PoolTimeout)
_NO_CONNECTION_IN_TIME = (httpx.ConnectTimeout, httpx2.ConnectTimeout)
_TIMEOUT = (httpx.TimeoutException, httpx2.TimeoutException, TimeoutError)
_UNREACHABLE = (
    httpx.ConnectError,
    httpx.ProxyError,
    httpx2.ConnectError,
    httpx2.ProxyError,
    ConnectionRefusedError,
)
_BROKEN = (
    httpx.NetworkError,
    httpx.RemoteProtocolError,
    httpx.DecodingError,
    httpx2.NetworkError,
    httpx2.RemoteProtocolError,
    httpx2.DecodingError,
    OSError,
)
_STATUS = (httpx.HTTPStatusError, httpx2.HTTPStatusError)

_CONTEXT = re.compile(
    r"context_length_exceeded|exceed_context_size|context[ _-]?(?:length|size|window)|exceeds? (?:the )?(?:available )?"
    r"context|prompt is too long|input is too long|too many (?:input )?tokens|max_model_len|maximum input length",
    re.IGNORECASE,
)
_MODERATION = re.compile(r"moderation|flagged|content policy", re.IGNORECASE)
_SECRET = re.compile(r"\b(?:sk|pk|key|hf|gsk)[-_][\w*.-]{4,}|\bBearer\s+\S+", re.IGNORECASE)
_TAGS = re.compile(r"<(?:script|style)\b.*?</(?:script|style)>|<[a-z/!][^<>]{0,2000}>", re.IGNORECASE | re.DOTALL)


def from_exception(error: BaseException, tier: Tier, *, began: bool) -> UpstreamError:
    """Return a foreign exception as ours. `began`: the response's headers had arrived."""
    server = SERVER[tier]
    if isinstance(error, UpstreamError):
        return error
    cause = error.__cause__
    if isinstance(cause, NETWORK_ERRORS):  # openai wraps them
        return from_exception(cause, tier, began=began)
    response = getattr(error, "response", None)
    if isinstance(error, _STATUS) or isinstance(getattr(response, "status_code", None), int):
        return _from_response(error, response, tier)
    if isinstance(error, _POOL_FULL):
        return UpstreamBusy(f"Every connection from here to {_lower(server)} is in use.")
    if isinstance(error, _NO_CONNECTION_IN_TIME):
        return UpstreamTimeout(f"{server} could not be reached in time.", todo="Try again, or pick another tier.")
    if isinstance(error, _TIMEOUT) or "Timeout" in type(error).__name__:
        return UpstreamTimeout(f"{server} did not answer in time.", todo="Try again, or pick another tier.")
    if isinstance(error, _UNREACHABLE):
        return UpstreamError(
            f"{server} cannot be reached.", todo="Ask an administrator whether it is running, or pick another tier."
        )
    if isinstance(error, _BROKEN):
        if began:
            return StreamBroken(f"The connection to {_lower(server)} broke in the middle of the answer.")
        return UpstreamError(f"{server} closed the connection without an answer.")
    if type(error).__name__ == "APIConnectionError":
        return UpstreamError(f"{server} cannot be reached.")
    return UpstreamError(
        f"The request to {_lower(server)} could not be made ({type(error).__name__}).",
        todo="Ask an administrator to check the address and the key of this tier.",
    )


def from_status(status: int, headers: Mapping[str, str], body: str, tier: Tier) -> UpstreamError:
    """Return an HTTP error answer as ours. Of the body, a short cleaned message is shown, never more."""
    message, codes = _read_body(body)
    return _from_parts(status, f"{codes} {message}", clean(message), retry_after(headers), tier)


def from_fault(fault: Fault, tier: Tier, *, text_seen: bool) -> UpstreamError:
    """Return what went wrong inside a stream as ours. After text everything is `StreamBroken`."""
    server = SERVER[tier]
    if fault.kind == "said":
        said = clean(fault.words)
        if text_seen:
            return StreamBroken(f"{server} stopped in the middle of the answer: {said}", upstream_status=fault.status)
        if _CONTEXT.search(f"{fault.code} {fault.words}"):
            return _too_long(server, said, fault.status)
        if fault.status is not None and fault.status >= 400:
            return _from_parts(fault.status, f"{fault.code} {fault.words}", said, None, tier)
        if "overload" in fault.code or "rate_limit" in fault.code:
            return UpstreamBusy(f"{server} is busy: {said}")
        return UpstreamError(f"{server} reported an error: {said}")
    if fault.kind in ("early", "cut_tool"):
        return StreamBroken(f"{server} broke off: {fault.words}.")
    words = f"{server} sent something else than an answer: {fault.words}."
    if text_seen:
        return StreamBroken(words)
    return UpstreamError(words, todo="Ask an administrator to check the address of this tier, or pick another tier.")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the wait that `retry-after-ms` or `Retry-After` (seconds or HTTP date, RFC 9110 10.2.3) asks for."""
    lower = {name.lower(): value.strip() for name, value in headers.items()}
    for name, per_second in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            wait = float(lower.get(name, "")) / per_second
        except ValueError:
            continue
        if math.isfinite(wait):
            return min(max(wait, 0.0), MAX_RETRY_AFTER_S)
    then = _http_date(lower.get("retry-after", ""))
    if then is None:
        return None
    now = _http_date(lower.get("date", "")) or datetime.now(UTC)  # its own clock, if it tells it
    return min(max((then - now).total_seconds(), 0.0), MAX_RETRY_AFTER_S)


def clean(message: str) -> str:
    """Return a server's message fit for people and databases: no tags, no keys, one line, bounded, ending like a sentence."""
    plain = html.unescape(_TAGS.sub(" ", message[: 20 * MAX_WORDS]))
    plain = plain.encode("utf-8", "replace").decode().replace("\0", " ")
    plain = _SECRET.sub("[key]", " ".join(plain.split()))
    if len(plain) > MAX_WORDS:
        plain = plain[: MAX_WORDS - 1].rstrip() + "…"
    if not plain:
        return "no reason was given."
    return plain if plain[-1] in ".!?…" else plain + "."


def _http_date(value: str) -> datetime | None:
    try:
        then = email.utils.parsedate_to_datetime(value)
    except ValueError:
        return None
    return then if then.tzinfo else then.replace(tzinfo=UTC)


def _from_response(error: BaseException, response: Any, tier: Tier) -> UpstreamError:
    """Return an error that carries a response. Its body may never have been read."""
    try:
        body = response.text
    except (httpx.StreamError, httpx2.StreamError):
        body = json.dumps(getattr(error, "body", None))
    return from_status(response.status_code, response.headers, body, tier)


def _from_parts(status: int, evidence: str, said: str, wait_s: float | None, tier: Tier) -> UpstreamError:
    """`evidence`: everything the server said, codes too, to tell one reason from another."""
    server = SERVER[tier]
    if status in (401, 402, 403) and not (status == 403 and _MODERATION.search(evidence)):
        return _credentials(status, said, tier)
    if 400 <= status < 500 and status not in (408, 429) and _CONTEXT.search(evidence):
        return _too_long(server, said, status)
    if status in (408, 429) or status >= 500:
        words = "asks us to slow down" if status == 429 else "is not able to answer now"
        return UpstreamBusy(f"{server} {words} ({status}): {said}", retry_after_s=wait_s, upstream_status=status)
    if status >= 400:
        return UpstreamRefused(
            f"{server} refused the request ({status}): {said}",
            todo="Pick another model or tier, or ask an administrator to check the model's name.",
            upstream_status=status,
        )
    return UpstreamError(
        f"{server} answered with status {status}, which is no answer.",
        todo="Ask an administrator to check the address of this tier.",
        upstream_status=status,
    )


def _credentials(status: int, said: str, tier: Tier) -> UpstreamAuthError:
    server = SERVER[tier]
    if status == 402:
        happened = f"{server} says that the credit of this installation's account is used up (402): {said}"
        todo = "An administrator must add credit to that account; your own budget is not concerned. "
    elif status == 401:
        happened = f"{server} does not accept the key of this installation (401): {said}"
        todo = "An administrator must set a valid key for this tier; your own key and sign-in are not concerned. "
    else:
        happened = f"{server} does not let the key of this installation use this model (403): {said}"
        todo = "An administrator must allow the model for that key; your own key and sign-in are not concerned. "
    return UpstreamAuthError(happened, todo=todo + "Another tier may answer meanwhile.", upstream_status=status)


def _too_long(server: str, said: str, status: int | None) -> ContextTooLong:
    return ContextTooLong(f"{server} cannot take a conversation of this length: {said}", upstream_status=status)


def _read_body(body: str) -> tuple[str, str]:
    """Return (message, codes) of an error body: OpenAI's, OpenRouter's, FastAPI's `detail`, Ollama's, or plain text."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        return body, ""
    if isinstance(data, dict):
        data = data.get("error") or data.get("detail") or data
    if not isinstance(data, dict):
        return ("" if data is None else str(data)), ""
    message = data.get("message") or data.get("msg") or ""
    codes = " ".join(str(data[key]) for key in ("code", "type", "metadata") if data.get(key))
    return str(message), codes


def _lower(server: str) -> str:
    return server[0].lower() + server[1:]
