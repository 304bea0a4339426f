"""What a hostile relay can do with the frames it sees. It holds no content key, but has seen every stream so far.

| move      | what it does to the messages of one connection                                              |
|-----------|---------------------------------------------------------------------------------------------|
| drop      | leaves a frame out                                                                          |
| repeat    | sends a frame again, at once or later, as it is or under another number                     |
| reorder   | swaps two frames, or shuffles some                                                          |
| cut       | ends the connection in the middle                                                           |
| splice    | puts in a frame of another stream, attempt, worker, key or direction, renumbered to fit     |
| random    | puts in random bytes in the shape of a frame                                                |
| plaintext | puts in an unsealed text or end                                                             |
| fin       | forges an end: unsealed, of another stream, its own moved forward, or another frame renamed |
| truncate  | shortens a frame                                                                            |
| alter     | flips bits in a frame, or changes its type or number                                        |
| head      | changes HEAD, leaves it out, or sends another producer's                                    |
| talk      | puts in hop-by-hop messages that nobody asked for                                           |
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random

from hpc_worker import wire
from hpc_worker.bodies import Offer
from hpc_worker.wire import Direction, FrameType, Kind
from tests.faults.memory import Hang, Say, Silence, Step
from tests.faults.streams import CHALLENGE, CONSUMER_OK, Sealed, opposite_frames, seal_answer

Messages = list[bytes | str]
CODES = (0, 0, 0, 0, 1000, 1001, 1011, *(int(code) for code in wire.Close))
TALK = ('{"t":"ack","n":9}', '{"t":"restarting","after_ms":5}', CHALLENGE, CONSUMER_OK, "", "{", "\0", '{"t":"ack"}')


def renumber(frame: bytes, seq: int, kind: int | None = None) -> bytes:
    """Return a frame under another number, and another type if given."""
    return bytes((frame[0] if kind is None else kind,)) + seq.to_bytes(4, "big") + frame[5:]


def unsealed(kind: Kind, body: bytes) -> bytes:
    """Return plaintext where a box belongs."""
    plain = bytes((kind,)) + len(body).to_bytes(2, "big") + body
    return plain + bytes(-len(plain) % wire.PAD_BYTES) + bytes(wire.TAG_BYTES)


@dataclass
class Hostile:
    """One channel's hostile relay. `other` is a stream that it saw before; `twins` wrote on this channel with genuine keys."""

    rng: Random
    offer: Offer
    genuine: Sealed
    other: list[bytes]
    moves: Counter[str]
    twins: list[Sealed] = field(default_factory=list)
    heard: Messages = field(default_factory=list)
    direction: Direction = Direction.P2C

    def connection(self, last: int) -> Iterator[Step]:
        """Yield what the consumer gets on one connection, having stored `last`."""
        rng = self.rng
        yield Say(CHALLENGE)
        yield Say(CONSUMER_OK)
        start = last if rng.random() < 0.9 else rng.randrange(len(self.genuine.frames))
        messages: Messages = [self.genuine.head, *self.genuine.frames[start:]]
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3, 5))):
            name = rng.choice(_NAMES)
            self.moves[name] += 1
            _MOVES[name](self, messages)
        late = rng.random() < 0.5
        for message in messages:
            if rng.random() < 0.02:
                yield Silence(rng.choice((0.01, 0.2, 3.0, 50.0, 130.0)))
            yield Say(message, late and rng.random() < 0.5)
        if rng.random() < 0.1:
            yield Silence(500.0)
        yield Hang(rng.choice(CODES), rng.choice(("", "", "after_ms=100", "odd\0words")))

    # -- moves; each changes the messages in place

    def at(self, messages: Messages) -> int:
        return self.rng.randrange(len(messages) + 1)

    def fit(self, messages: Messages, at: int) -> int:
        """Return the number that the consumer expects at this place, mostly."""
        rng = self.rng
        numbered = [m for m in messages[:at] if isinstance(m, bytes) and len(m) >= 5]
        expected = max((int.from_bytes(m[1:5], "big") for m in numbered), default=0) + 1
        return min(wire.MAX_SEQ, expected) if rng.random() < 0.85 else rng.randrange(1, 40)

    def put(self, messages: Messages, frame: bytes, kind: int | None = None) -> None:
        """Put a frame in where it fits; with luck instead of the one that belongs there."""
        at = self.at(messages)
        if len(frame) >= 5 and frame[0] != FrameType.HEAD and self.rng.random() < 0.85:
            frame = renumber(frame, self.fit(messages, at), kind)
        messages[at : at + self.rng.randrange(2)] = [frame]

    def pick(self, messages: Messages) -> bytes | None:
        frames = [m for m in messages if isinstance(m, bytes)]
        return self.rng.choice(frames) if frames else None

    def drop(self, messages: Messages) -> None:
        if messages:
            del messages[self.rng.randrange(len(messages))]

    def repeat(self, messages: Messages) -> None:
        if (frame := self.pick(messages)) is None:
            return
        if self.rng.random() < 0.5:
            messages.insert(self.at(messages), frame)
        else:
            self.put(messages, frame)

    def reorder(self, messages: Messages) -> None:
        if len(messages) < 2:
            return
        a, b = (self.rng.randrange(len(messages)) for _ in range(2))
        if self.rng.random() < 0.7:
            messages[a], messages[b] = messages[b], messages[a]
        else:
            low, high = sorted((a, b))
            piece = messages[low : high + 1]
            self.rng.shuffle(piece)
            messages[low : high + 1] = piece

    def cut(self, messages: Messages) -> None:
        del messages[self.at(messages) :]

    def splice(self, messages: Messages) -> None:
        rng, offer = self.rng, self.offer
        source = rng.randrange(6)
        if source == 0:
            frames = self.other
        elif source == 1:
            frames = self.foreign(2).frames
        elif source == 2:
            frames = self.foreign(1).frames
        elif source == 3:
            frames = seal_answer(rng, offer, kid="k2").frames
        elif source == 4:
            frames = opposite_frames(rng, self.genuine.keys, self.direction)
        else:
            frames = [m for m in self.heard if isinstance(m, bytes)] or self.other
        frame = rng.choice(frames)
        self.put(messages, frame, rng.choice((None, FrameType.DATA, FrameType.FIN, FrameType.ALIVE, FrameType.CTRL)))

    def foreign(self, attempt: int) -> Sealed:
        """Return what another worker sealed on this channel: of another attempt, or of the same one, started twice."""
        made = seal_answer(self.rng, self.offer, attempt)
        if attempt == self.offer.attempt:
            self.twins.append(made)
        return made

    def random(self, messages: Messages) -> None:
        rng = self.rng
        if rng.random() < 0.3:
            messages.insert(self.at(messages), rng.randbytes(rng.choice((0, 1, 4, 5, 52, 53, 54, 300, 16_384, 16_385))))
            return
        kind = rng.choice((1, 2, 2, 2, 3, 4, 0x11, 0x55))
        self.put(messages, bytes((kind,)) + bytes(4) + rng.randbytes(32 * rng.randrange(1, 4) + wire.TAG_BYTES))

    def plaintext(self, messages: Messages) -> None:
        kind, body = self.rng.choice(((Kind.TEXT, b"evil"), (Kind.ALIVE, b'{"state":"prefill"}'), (Kind.TEXT, b"")))
        frame_type = FrameType.ALIVE if kind is Kind.ALIVE else FrameType.DATA
        self.put(messages, bytes((frame_type,)) + bytes(4) + unsealed(kind, body))

    def fin(self, messages: Messages) -> None:
        own, way = self.genuine.frames[-1], self.rng.randrange(4)
        if way == 0:
            frame = bytes((FrameType.FIN,)) + bytes(4) + unsealed(Kind.FIN, b'{"finish":"stop"}')
        elif way == 1:
            frame = self.other[-1]
        else:
            frame = own if way == 2 else self.pick(messages) or own
        at = self.at(messages)
        messages[at:at] = [renumber(frame, self.fit(messages, at), FrameType.FIN)]

    def truncate(self, messages: Messages) -> None:
        frame = self.pick(messages)
        if frame:
            by = self.rng.choice((1, 16, 32, len(frame) - 1, self.rng.randrange(1, len(frame) + 1)))
            messages[messages.index(frame)] = frame[: max(0, len(frame) - by)]

    def alter(self, messages: Messages) -> None:
        frame, rng = self.pick(messages), self.rng
        if not frame:
            return
        changed = bytearray(frame)
        for _ in range(rng.choice((1, 1, 2, 8))):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        messages[messages.index(frame)] = bytes(changed)

    def head(self, messages: Messages) -> None:
        rng = self.rng
        way = rng.randrange(4)
        if way == 0 and messages:
            del messages[0]
        elif way == 1:
            changed = bytearray(self.genuine.head)
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
            messages[:1] = [bytes(changed)]
        else:
            twin = self.foreign(rng.choice((1, 1, 2)))
            at = 0 if rng.random() < 0.4 else self.at(messages)
            messages[at : at + rng.randrange(2)] = [twin.head, *twin.frames[: rng.randrange(len(twin.frames) + 1)]]

    def talk(self, messages: Messages) -> None:
        messages.insert(self.at(messages), self.rng.choice(TALK))


_MOVES: dict[str, Callable[[Hostile, Messages], None]] = {
    name: getattr(Hostile, name)
    for name in (
        "drop",
        "repeat",
        "reorder",
        "cut",
        "splice",
        "random",
        "plaintext",
        "fin",
        "truncate",
        "alter",
        "head",
        "talk",
    )
}
_NAMES = tuple(_MOVES)
