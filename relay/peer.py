"""One connection as the hub sees it. Pure."""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import TYPE_CHECKING

from hpc_worker.wire import Close

if TYPE_CHECKING:
    from relay.channel import Channel


class Stage(Enum):
    FRESH = "fresh"
    PARKED = "parked"
    OPEN = "open"
    ENDED = "ended"


class Role(StrEnum):
    NONE = "none"
    CONSUMER = "consumer"
    PRODUCER = "producer"


class Outcome(StrEnum):
    """How a connection ended. Exactly one is given to each."""

    DONE = "done"
    LEFT = "left"
    MALFORMED = "malformed"
    DENIED = "denied"
    VERSION = "version"
    NO_CHANNEL = "no_channel"
    TIMEOUT = "timeout"
    REPLACED = "replaced"
    FINISHED = "finished"
    STALE_ATTEMPT = "stale_attempt"
    FRAME_SIZE = "frame_size"
    GAP = "gap"
    SLOW_CONSUMER = "slow_consumer"
    LIMIT = "limit"
    RESTARTING = "restarting"


OUTCOME_OF: dict[Close, Outcome] = {code: Outcome[code.name] for code in Close}


class Conn:
    """A socket's place in the hub. Only the hub writes to it."""

    __slots__ = (
        "ack_due",
        "address",
        "bytes",
        "channel",
        "cid",
        "close_code",
        "deadline",
        "frames",
        "group",
        "head_sent",
        "held",
        "kid",
        "last",
        "last_take",
        "nonces",
        "outcome",
        "role",
        "sent",
        "since",
        "stage",
        "texts",
        "told",
        "waiting",
    )

    def __init__(self, address: str, group: str, now: float) -> None:
        self.address = address
        self.group = group
        self.since = now
        self.stage = Stage.FRESH
        self.role = Role.NONE
        self.kid = ""
        self.channel: Channel | None = None
        self.cid = b""
        self.nonces: tuple[bytes, ...] = ()
        self.deadline = 0.0
        self.texts: list[str] = []
        self.ack_due = -1
        self.told = 0
        self.last = 0
        self.sent = 0
        self.head_sent = False
        self.waiting = False
        self.held = False
        self.last_take = now
        self.frames = 0
        self.bytes = 0
        self.outcome: Outcome | None = None
        self.close_code = 0
