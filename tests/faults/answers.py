"""One answer through a hostile relay, and what must hold of what the platform handed on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from unittest import mock

from hpc_worker import handshake
from hpc_worker.bodies import Fin
from relay import client
from relay.subscription import Ending, Outcome, Timers
from routing.backends.hpc.channel import Item, JobChannel, Over
from routing.types import ReasoningDelta, StateNote, TextDelta, ToolDelta
from tests.faults.attacks import Hostile
from tests.faults.memory import Deadlock, Hang, Line
from tests.faults.streams import CAMPUS, Sealed, new_offer, seal_answer

# short ones: the time is skipped, but each try to connect again costs the machine some
TIMERS = Timers(quiet_s=5.0, lost_s=12.0, first_frame_s=12.0, unreachable_s=6.0, backoff_s=4.0)
MARKED = (Outcome.INTERRUPTED, Outcome.DAMAGED, Outcome.FAILED)
NEVER_S = 1e6


@dataclass
class Seen:
    """What came of one stream. `frames` are for the hostile relay's memory."""

    frames: list[bytes]
    ending: str = ""
    bytes: int = 0
    wrong_bytes: int = 0
    faults: list[str] = field(default_factory=list)
    moves: Counter[str] = field(default_factory=Counter)


@dataclass
class Read:
    """What the reader of a channel got."""

    items: list[Item]
    fin: Fin | None
    ending: Ending


class Relay:
    """Make the consumer's connections, each the next that `hostile` thinks of; in the end it refuses or is away for good."""

    def __init__(self, hostile: Hostile) -> None:
        self.hostile = hostile
        self.acks: list[int] = []
        self.lines = hostile.rng.choice((1, 1, 2, 3))
        self.away = hostile.rng.random() < 0.1

    async def connect(self, url: str, **options: object) -> Line:
        self.lines -= 1
        if self.lines < 0 and not self.away:
            return Line(iter([Hang(self.hostile.rng.choice((4401, 4410)))]), self._hear)
        if self.lines < 0 or self.hostile.rng.random() < 0.05:
            raise OSError("nobody listens")
        return Line(self.hostile.connection(self.acks[-1] if self.acks else 0), self._hear)

    def _hear(self, message: str | bytes) -> None:
        self.hostile.heard.append(message)
        if isinstance(message, str):
            said = handshake.parse_text(message)
            if isinstance(said, handshake.Ack):
                self.acks.append(said.n)


async def read(channel: JobChannel, rng: Random) -> Read:
    """Read a channel as the backend does, at times slowly, and cancel at times."""
    task = asyncio.create_task(channel.run())
    items: list[Item] = []
    leave_at = rng.randrange(12) if rng.random() < 0.1 else -1
    while True:
        if len(items) == leave_at:
            await channel.leave()
            return Read(items, None, await task)
        item = await channel.next(NEVER_S)
        if isinstance(item, Fin):
            return Read(items, item, await task)
        if isinstance(item, Over):
            return Read(items, None, await task)
        assert item is not None
        items.append(item)
        if rng.random() < 0.02:
            await asyncio.sleep(rng.choice((0.0, 0.05, 1.0)))


def play_answer(rng: Random, loop: asyncio.AbstractEventLoop, other: list[bytes]) -> Seen:
    """Play one answer and judge it."""
    offer = new_offer(rng)
    genuine = seal_answer(rng, offer)
    hostile = Hostile(rng, offer, genuine, other, Counter())
    relay = Relay(hostile)
    seen = Seen(genuine.frames, moves=hostile.moves)

    async def both() -> Read:
        return await read(JobChannel(CAMPUS, offer, TIMERS), rng)

    try:
        with mock.patch.object(client, "connect", relay.connect):
            got = loop.run_until_complete(both())
    except Deadlock:
        seen.ending = "hung"
        seen.faults.append("the reader waits for ever")
        return seen
    judge(seen, got, [genuine, *hostile.twins], relay.acks)
    return seen


def judge(seen: Seen, got: Read, sealed: Sequence[Sealed], acks: list[int]) -> None:
    """Compare what was handed on with what was sealed: a prefix of one producer's stream, and whole or marked."""
    items: list[Item] = [*got.items, *([got.fin] if got.fin else [])]
    said, same = max(
        ((stream.said, _common(items, stream.said)) for stream in sealed),
        key=lambda found: (found[1], found[0] == items),
    )
    outcome = got.ending.outcome
    seen.ending = outcome.value
    seen.bytes = sum(_size(item) for item in items)
    seen.wrong_bytes = sum(_size(item) for item in items[same:])
    if same < len(items):
        seen.faults.append(f"item {same + 1} of {len(items)} was not sealed there: {items[same]!r:.80}")
    if got.fin is not None and items != said:
        seen.faults.append("it is called whole, but is not")
    if got.fin is None and outcome is Outcome.COMPLETE and got.ending.last not in [len(s.said) for s in sealed]:
        seen.faults.append("the channel calls itself complete without an end")
    if got.fin is not None and outcome is not Outcome.COMPLETE:
        seen.faults.append(f"its end was stored, but it is called {outcome}")
    if acks != sorted(acks) or (acks and acks[-1] > got.ending.last):
        seen.faults.append(f"acknowledged {acks}, but stored {got.ending.last}")
    left = outcome is Outcome.CANCELLED or (got.fin is None and outcome is Outcome.COMPLETE)
    if not left and got.fin is None and outcome not in MARKED:
        seen.faults.append(f"it has no end, but is called {outcome}")


def _common(items: Sequence[Item], said: Sequence[Item]) -> int:
    """Return how many items agree from the start."""
    same = 0
    while same < min(len(items), len(said)) and items[same] == said[same]:
        same += 1
    return same


def _size(item: Item) -> int:
    if isinstance(item, (TextDelta, ReasoningDelta)):
        return len(item.text.encode())
    if isinstance(item, ToolDelta):
        return len(item.arguments.encode()) + len(item.name)
    return 1 if isinstance(item, (StateNote, Fin)) else 0
