"""Limits and timers of the relay, and the small counters that hold connections to them. Pure; time is passed in."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """Every number of docs/relay-protocol.md that a deployment may change. `_s` is seconds."""

    open_timeout_s: float = 5.0
    nonce_life_s: float = 60.0
    stalled_consumer_s: float = 30.0
    without_consumer_s: float = 120.0
    channel_life_s: float = 1800.0
    tombstone_s: float = 600.0
    drain_s: float = 10.0
    restart_after_ms: int = 3000
    unauthenticated: int = 200
    unauthenticated_per_address: int = 10
    failed_opens_per_minute: int = 5
    parked_per_kid: int = 32
    channels: int = 5000
    channels_per_kid: int = 200
    waiting_per_kid: int = 100
    tombstones: int = 20_000
    ring_bytes: int = MIB
    ring_frames: int = 4096
    control_bytes: int = MIB
    control_frames: int = 256
    memory_bytes: int = 512 * MIB
    frames_per_s: float = 500.0
    bytes_per_s: float = float(MIB)


class Pace:
    """Hold a channel to a rate by delay: one second of burst, then pauses. Never a drop.

    A generic cell rate algorithm with one clock for both limits: a frame costs the longer of its two shares.
    """

    __slots__ = ("_due", "_per_byte", "_per_frame")

    def __init__(self, limits: Limits) -> None:
        self._per_frame = 1.0 / limits.frames_per_s
        self._per_byte = 1.0 / limits.bytes_per_s
        self._due = 0.0

    def delay(self, size: int, now: float) -> float:
        """Count a frame of `size` bytes and return the seconds to stop reading, 0 for none."""
        by_size = size * self._per_byte
        cost = by_size if by_size > self._per_frame else self._per_frame
        due = self._due
        if due < now:
            due = now
        due += cost
        self._due = due
        over = due - now - 1.0
        return over if over > 0 else 0.0


class FailedOpens:
    """Count refused admissions an address in the last minute."""

    WINDOW_S = 60.0

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: dict[str, deque[float]] = {}

    def add(self, address: str, now: float) -> None:
        """Count one. Memory is bounded: at most `most` times are kept an address."""
        self._times.setdefault(address, deque(maxlen=self._most)).append(now)

    def blocked(self, address: str, now: float) -> bool:
        """Say whether `address` has used up its failures."""
        times = self._times.get(address)
        return times is not None and len(times) == self._most and now - times[0] < self.WINDOW_S

    def sweep(self, now: float) -> None:
        """Forget addresses whose last failure is over a minute old."""
        for address in [a for a, times in self._times.items() if now - times[-1] >= self.WINDOW_S]:
            del self._times[address]

    def __len__(self) -> int:
        return len(self._times)


class Tally(Counter[str]):
    """A counter that forgets names at zero, so that names from outside cannot fill memory."""

    def down(self, name: str) -> None:
        """Take one away."""
        self[name] -= 1
        if self[name] <= 0:
            del self[name]


def address_group(address: str) -> str:
    """Return what counts as one address for limits: an IPv4 address, or the /64 of an IPv6 address."""
    if ":" not in address or "." in address:
        return address
    left, _, right = address.partition("::")
    head = left.split(":") if left else []
    tail = right.split(":") if right else []
    groups = head + ["0"] * (8 - len(head) - len(tail)) + tail
    return ":".join(groups[:4])
