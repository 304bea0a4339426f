"""The error tree. Every error a person or a program can meet is one of these.

    StreamError
    ├── InputError        what was sent cannot be used            400
    │   └── ConflictError the same id was used for something else 409
    ├── AccessError       not signed in, or not yours             403
    │   ├── SignInNeeded                                          401
    │   └── NotFound      does not exist, or is not yours         404
    ├── QuotaError        a limit or a budget is reached          429
    │   └── BudgetError                                           402
    ├── RoutingError      no tier may or can answer               503
    │   └── TooLongError  the question fits no permitted window   413
    ├── UpstreamError     a model server failed                   502
    │   ├── UpstreamTimeout                                       504
    │   ├── UpstreamRefused    its 400, 404, 422: our request     502
    │   ├── UpstreamAuthError  its 401, 402, 403: whose key       502
    │   ├── UpstreamBusy       its 408, 429, 5xx                  503
    │   ├── ContextTooLong     the prompt is over its window      413
    │   └── StreamBroken       the stream ended or broke midway   502
    │       └── StreamDamaged  a part of it was altered           502
    ├── RelayError        the data plane failed                   502
    └── InternalError     anything unforeseen; logged with an id  500

`stream_site.error_shapes` renders them for pages, HTTP, WebSocket and the OpenAI-compatible API, and nothing else does.
A message says what happened, what was kept and what to do, in that order.
"""

from __future__ import annotations

from typing import ClassVar


class StreamError(Exception):
    """Base of all errors shown to people.

    `happened`, `kept` and `todo` are whole sentences. `code` is stable and documented in docs/errors.md.
    `retryable` means that the same request may succeed later without a change.
    """

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500
    ws_close: ClassVar[int] = 4500
    openai_type: ClassVar[str] = "server_error"
    retryable: ClassVar[bool] = False
    title: ClassVar[str] = "Something went wrong"
    default_kept: ClassVar[str] = "Nothing was changed and nothing was charged."
    default_todo: ClassVar[str] = "Try again."

    def __init__(
        self, happened: str, *, kept: str = "", todo: str = "", field: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(happened)
        self.happened = happened
        self.kept = kept or self.default_kept
        self.todo = todo or self.default_todo
        self.field = field
        self.retry_after_s = retry_after_s


class InputError(StreamError):
    code = "bad_input"
    http_status = 400
    ws_close = 4400
    openai_type = "invalid_request_error"
    title = "This cannot be used"
    default_todo = "Change it and send it again."


class ConflictError(InputError):
    code = "conflict"
    http_status = 409
    ws_close = 4409
    title = "This was used already"


class AccessError(StreamError):
    code = "forbidden"
    http_status = 403
    ws_close = 4403
    openai_type = "permission_error"
    title = "Not allowed"
    default_todo = "Ask your PI or an administrator."


class SignInNeeded(AccessError):
    code = "sign_in_needed"
    http_status = 401
    ws_close = 4401
    openai_type = "authentication_error"
    title = "Please sign in"
    default_kept = "What you typed is kept in this browser."
    default_todo = "Sign in again."


class NotFound(AccessError):
    code = "not_found"
    http_status = 404
    ws_close = 4404
    openai_type = "not_found_error"
    title = "Not found"
    default_todo = "Check the address, or start from your conversations."


class QuotaError(StreamError):
    code = "limit_reached"
    http_status = 429
    ws_close = 4429
    openai_type = "rate_limit_error"
    retryable = True
    title = "A limit is reached"
    default_todo = "Wait a little, then try again."


class BudgetError(QuotaError):
    code = "budget_reached"
    http_status = 402
    ws_close = 4402
    openai_type = "insufficient_quota"
    retryable = False
    title = "The budget does not cover this"
    default_todo = "Use a free tier, or ask your PI for more."


class RoutingError(StreamError):
    code = "no_tier"
    http_status = 503
    ws_close = 4503
    openai_type = "server_error"
    retryable = True
    title = "No tier can answer now"
    default_kept = "Your question is saved and nothing was charged."


class TooLongError(RoutingError):
    code = "too_long"
    http_status = 413
    ws_close = 4413
    openai_type = "invalid_request_error"
    retryable = False
    title = "The question is too long for every tier you may use"
    default_todo = "Shorten it, or pick a tier with a larger window."


class UpstreamError(StreamError):
    """A model server failed. `upstream_status` is its HTTP status, or None when there was none."""

    code = "upstream_failed"
    http_status = 502
    ws_close = 4502
    retryable = True
    title = "The model server failed"
    default_kept = "Your question is saved."

    def __init__(
        self,
        happened: str,
        *,
        kept: str = "",
        todo: str = "",
        field: str = "",
        retry_after_s: float | None = None,
        upstream_status: int | None = None,
    ) -> None:
        super().__init__(happened, kept=kept, todo=todo, field=field, retry_after_s=retry_after_s)
        self.upstream_status = upstream_status


class UpstreamTimeout(UpstreamError):
    code = "upstream_timeout"
    http_status = 504
    title = "The model server did not answer in time"


class UpstreamRefused(UpstreamError):
    code = "upstream_refused"
    retryable = False
    title = "The model server refused the request"


class UpstreamAuthError(UpstreamError):
    code = "upstream_credentials"
    retryable = False
    title = "The model server refused our credentials"
    default_todo = "Ask an administrator to check the key or the credit; another tier may answer meanwhile."


class UpstreamBusy(UpstreamError):
    code = "upstream_busy"
    http_status = 503
    title = "The model server is busy"
    default_todo = "Wait a little and try again, or pick another tier."


class ContextTooLong(UpstreamError):
    code = "context_too_long"
    http_status = 413
    openai_type = "invalid_request_error"
    retryable = False
    title = "The conversation is too long for this model"
    default_todo = "Pick a tier with a larger window, or start a new conversation."


class StreamBroken(UpstreamError):
    code = "stream_broken"
    title = "The answer stopped early"
    default_kept = "What arrived is saved."
    default_todo = "Continue from here, or try again."


class StreamDamaged(StreamBroken):
    """What came was altered or is incomplete on the way: nothing of that is shown, what came before it is kept."""

    code = "stream_damaged"
    title = "A part of the answer was altered on its way"
    default_kept = "What arrived before that is saved."


class RelayError(StreamError):
    code = "relay_failed"
    http_status = 502
    ws_close = 4502
    retryable = True
    title = "The connection to the campus GPUs failed"
    default_kept = "Your question is saved and nothing was charged."


class InternalError(StreamError):
    code = "internal"
    title = "Something went wrong on our side"
    default_todo = "Try again. If it happens again, give the reference below to support."
