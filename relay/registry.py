"""All channels of one relay process, the tombstones of finished ones, and the room that is left. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from relay.channel import Channel
from relay.limits import Limits, Tally
from relay.peer import Conn

REFUSE_ABOVE = 0.8
RESUME_BELOW = 0.95


class Registry:
    """Channels by id. `memory` is the bytes in all rings; whoever changes a ring tells it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.most_memory = limits.memory_bytes
        self._channels: dict[bytes, Channel] = {}
        self._tombstones: dict[bytes, float] = {}
        self.by_kid = Tally()
        self.waiting = Tally()
        self.memory = 0

    def get(self, cid: bytes) -> Channel | None:
        """Return the live channel, or None."""
        return self._channels.get(cid)

    def finished(self, cid: bytes, now: float) -> bool:
        """Say whether `cid` finished in the last minutes."""
        return self._tombstones.get(cid, now) > now

    def has_room(self, kid: str) -> bool:
        """Say whether `kid` may create one more channel."""
        most = self._limits
        return (
            len(self._channels) < most.channels
            and self.by_kid[kid] < most.channels_per_kid
            and self.waiting[kid] < most.waiting_per_kid
            and self.memory < REFUSE_ABOVE * most.memory_bytes
        )

    def create(self, cid: bytes, consumer: Conn, now: float) -> Channel:
        """Make a channel that waits for its producer."""
        channel = self._channels[cid] = Channel(cid, consumer, self._limits, now)
        self.by_kid[channel.consumer_kid] += 1
        self.waiting[channel.consumer_kid] += 1
        return channel

    def start_attempt(self, channel: Channel, attempt: int, kid: str) -> None:
        """Begin a producer's attempt on `channel`."""
        if not channel.attempt:
            self.waiting.down(channel.consumer_kid)
        self.memory -= channel.start_attempt(attempt, kid)

    def drop(self, channel: Channel) -> None:
        """Forget a channel and what it holds."""
        del self._channels[channel.cid]
        self.by_kid.down(channel.consumer_kid)
        if not channel.attempt:
            self.waiting.down(channel.consumer_kid)
        self.memory -= channel.bytes()

    def bury(self, cid: bytes, now: float) -> None:
        """Remember that `cid` finished. The oldest are forgotten first when there are too many."""
        self._tombstones.pop(cid, None)
        self._tombstones[cid] = now + self._limits.tombstone_s
        if len(self._tombstones) > self._limits.tombstones:
            del self._tombstones[next(iter(self._tombstones))]

    def sweep(self, now: float) -> None:
        """Forget tombstones whose time is over; they stand in order."""
        for cid, until in list(self._tombstones.items()):
            if until > now:
                return
            del self._tombstones[cid]

    @property
    def starved(self) -> bool:
        """True when all rings together have used up the memory they may."""
        return self.memory >= self.most_memory

    @property
    def relieved(self) -> bool:
        """True when enough is free again to let paused producers go on."""
        return self.memory < RESUME_BELOW * self.most_memory

    def __iter__(self) -> Iterator[Channel]:
        return iter(self._channels.values())

    def __len__(self) -> int:
        return len(self._channels)

    @property
    def tombstones(self) -> int:
        return len(self._tombstones)
