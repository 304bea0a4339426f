"""Render every error, once, for every door: dictionary (WebSocket, turn record), JSON API, OpenAI-compatible API."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from typing import Any

from stream_site.errors import InternalError, StreamError

log = logging.getLogger("stream.errors")


@dataclass(frozen=True)
class ErrorWords:
    """What a person reads. `ref` is a short reference for support, also in the log."""

    code: str
    title: str
    happened: str
    kept: str
    todo: str
    retryable: bool
    ref: str
    field: str = ""
    retry_after_s: float | None = None

    def as_dict(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "title": self.title,
            "happened": self.happened,
            "kept": self.kept,
            "todo": self.todo,
            "retryable": self.retryable,
            "ref": self.ref,
            "field": self.field,
            "retry_after_s": self.retry_after_s,
        }


def translate(error: BaseException) -> StreamError:
    """Return `error` if it is ours, else an `InternalError` in generic words, caused by it: `words` logs the cause."""
    if isinstance(error, StreamError):
        return error
    internal = InternalError("The server met an error it did not expect.")
    internal.__cause__ = error
    return internal


def words(error: BaseException) -> ErrorWords:
    """Render `error` as words with a fresh reference; log it once under that reference."""
    ours = translate(error)
    ref = secrets.token_hex(4)
    if isinstance(ours, InternalError):
        log.error("error %s unexpected", ref, exc_info=ours.__cause__ or ours)
    else:
        log.info("error %s code=%s %s", ref, ours.code, ours.happened)
    return ErrorWords(
        code=ours.code,
        title=ours.title,
        happened=ours.happened,
        kept=ours.kept,
        todo=ours.todo,
        retryable=ours.retryable,
        ref=ref,
        field=ours.field,
        retry_after_s=ours.retry_after_s,
    )


def http_shape(error: BaseException) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Return (status, headers, JSON body) for our own REST and page fetches."""
    ours = translate(error)
    w = words(error)
    headers = {"Retry-After": str(int(w.retry_after_s + 0.999))} if w.retry_after_s else {}
    return ours.http_status, headers, {"error": w.as_dict()}


def openai_shape(error: BaseException) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Return (status, headers, JSON body) in OpenAI's error form, https://platform.openai.com/docs/guides/error-codes."""
    ours = translate(error)
    w = words(error)
    headers = {"Retry-After": str(int(w.retry_after_s + 0.999))} if w.retry_after_s else {}
    message = " ".join((w.happened, w.kept, w.todo))
    body = {"error": {"message": message, "type": ours.openai_type, "param": w.field or None, "code": w.code}}
    return ours.http_status, headers, body
