"""One pairing of a producer and a consumer. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from relay.limits import Limits, Pace
from relay.peer import Conn
from relay.ring import Ring


class Channel:
    """Frames on their way from producer to consumer (`ring`) and back (`control`), and who is connected.

    `attempt` is 0 until a producer has opened.
    """

    __slots__ = (
        "acked",
        "attempt",
        "cid",
        "consumer",
        "consumer_kid",
        "consumer_since",
        "control",
        "control_seq",
        "created",
        "fin_seq",
        "full_since",
        "head",
        "instance",
        "mailbox",
        "pace",
        "producer",
        "producer_kid",
        "ring",
        "traffic",
    )

    def __init__(self, cid: bytes, consumer: Conn, limits: Limits, now: float) -> None:
        self.cid = cid
        self.consumer: Conn | None = None
        self.consumer_kid = consumer.kid
        self.consumer_since = now
        self.producer: Conn | None = None
        self.producer_kid = ""
        self.instance = b""
        self.attempt = 0
        self.mailbox = False
        self.head = b""
        # A relay that restarted knows nothing: the consumer's word says where the stream goes on.
        self.ring = Ring(limits.ring_bytes, limits.ring_frames, consumer.last)
        self.acked = consumer.last
        self.fin_seq = 0
        self.control = Ring(limits.control_bytes, limits.control_frames)
        self.control_seq = 0
        self.pace = Pace(limits)
        self.created = now
        self.traffic = now
        self.full_since: float | None = None

    def connections(self) -> Iterator[Conn]:
        """Yield everyone connected."""
        if self.consumer is not None:
            yield self.consumer
        if self.producer is not None:
            yield self.producer

    def bytes(self) -> int:
        """Return the bytes held in both directions."""
        return self.ring.bytes + self.control.bytes

    def start_attempt(self, attempt: int, kid: str) -> int:
        """Begin a producer's attempt; a second one forgets the first one's frames. Returns the bytes freed."""
        freed = 0
        if self.attempt:
            freed = self.ring.reset(0) + self.control.reset(0)
            self.control_seq = self.acked = self.fin_seq = 0
            self.head = b""
        self.attempt = attempt
        self.producer_kid = kid
        return freed

    def expired(self, now: float, limits: Limits) -> bool:
        """Say whether nobody consumes it any more or its life is over. Traffic renews a mailbox's life."""
        if self.consumer is None and now - self.consumer_since >= limits.without_consumer_s:
            return True
        return now - (self.traffic if self.mailbox else self.created) >= limits.channel_life_s

    def stalled(self, now: float, limits: Limits) -> bool:
        """Say whether the ring has been full for long while its consumer, which may acknowledge, took nothing."""
        if self.consumer is None or self.full_since is None or self.consumer.held:
            return False
        return now - max(self.full_since, self.consumer.last_take) >= limits.stalled_consumer_s
