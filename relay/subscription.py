"""What a consumer of a channel says, gets told and promises. Pure types of `relay.client`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class Outcome(StrEnum):
    COMPLETE = "complete"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    DAMAGED = "damaged"
    FAILED = "failed"


@dataclass(frozen=True, repr=False)
class Subscription:
    """One channel as its consumer. `last` and `fin` say what is stored already; `name` defaults to the URL's host."""

    url: str
    kid: str
    key: bytes
    cid: bytes
    attempt: int = 1
    last: int = 0
    fin: bool = False
    mailbox: bool = False
    name: str = ""


@dataclass(frozen=True)
class Handlers(Generic[T]):
    """`open(frame)` verifies at once and in order, HEAD after each connect; `store(items)` makes durable."""

    open: Callable[[bytes], T]
    store: Callable[[Sequence[T]], Awaitable[None]]


@dataclass(frozen=True)
class Timers:
    """Seconds. `quiet_s` without a frame: connect again. `lost_s`: interrupted. `first_frame_s`: a cold start is long.

    `unreachable_s` is for a relay that never let us in: the caller may still choose another tier.
    """

    quiet_s: float = 45.0
    lost_s: float = 120.0
    first_frame_s: float = 300.0
    unreachable_s: float = 20.0
    cancel_s: float = 5.0
    connect_s: float = 5.0
    backoff_s: float = 2.0


@dataclass(frozen=True)
class Ending:
    """How a channel ended. `last` is the last sequence stored, `code` the relay's last close code or 0."""

    outcome: Outcome
    last: int
    reason: str = ""
    code: int = 0
