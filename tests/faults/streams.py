"""Genuine streams with random content, sealed and framed by the worker's own producer."""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random

from hpc_worker import crypto, handshake
from hpc_worker.bodies import FINISHES, Alive, Fin, Offer, Usage
from hpc_worker.coalesce import Coalescer
from hpc_worker.keyring import Keyring
from hpc_worker.producer import Identity, Producer
from hpc_worker.wire import Direction, FrameType, Kind
from routing.backends.hpc.channel import Item
from routing.backends.hpc.directory import Campus
from routing.types import ReasoningDelta, StateNote, TextDelta, ToolDelta

URL, NAME = "ws://relay.test/v1", "relay.test"
CONTENT = Keyring("k1", {"k1": bytes(range(60, 92)), "k2": bytes(range(92, 124))})
PRODUCER = ("p-1", bytes(range(1, 33)))
CAMPUS = Campus(
    id=1,
    name="lab",
    label="Lab",
    control="process",
    model="small",
    relays={URL: NAME},
    content=CONTENT,
    producers=Keyring(PRODUCER[0], {PRODUCER[0]: PRODUCER[1]}),
    consumer=("c1", bytes(range(32))),
)
CHALLENGE = handshake.build_text(handshake.Challenge(bytes(32), bytes(8)))
PRODUCER_OK = handshake.build_text(handshake.ProducerOk(bytes(8), -1, 0))
CONSUMER_OK = handshake.build_text(handshake.ConsumerOk(bytes(8), True, 0))
WORDS = ("the ", "of ", "你好", " 🌍", "\n\n", "    ", "é", "0", '"}', "</", "a" * 40, "long " * 60)
_FINISHES = sorted(FINISHES)


@dataclass(frozen=True)
class Sealed:
    """What one producer sent, frame by frame, and what the platform must make of each frame. Frames begin with HEAD."""

    keys: crypto.StreamKeys
    producer: Producer
    head: bytes
    frames: list[bytes]
    said: list[Item]


def new_offer(rng: Random) -> Offer:
    """Return a job of the first key, its address and salt from `rng` so that a seed repeats it."""
    return Offer(rng.randbytes(16), 1, rng.randbytes(32), "k1", URL, 60, b"-")


def new_producer(rng: Random, offer: Offer, attempt: int = 1, *, kid: str = "k1") -> tuple[Producer, crypto.StreamKeys]:
    """Return a producer of one attempt that the relay has let in."""
    salt_p = rng.randbytes(32)
    scope = crypto.Scope(kid, offer.cid, attempt)
    keys = crypto.derive_stream(CONTENT.keys[kid], scope, offer.salt_c, salt_p)
    producer = Producer(Identity(keys, salt_p, *PRODUCER, NAME))
    producer.connected()
    producer.receive_text(CHALLENGE)
    producer.next_message()
    producer.receive_text(PRODUCER_OK)
    return producer, keys


def seal_answer(rng: Random, offer: Offer, attempt: int = 1, *, kid: str = "k1") -> Sealed:
    """Write a random answer with the worker's own parts; it has an end."""
    producer, keys = new_producer(rng, offer, attempt, kid=kid)
    said: list[Item] = []
    coalescer, now = Coalescer(), 0.0
    for _ in range(rng.randrange(14)):
        dice = rng.random()
        if dice < 0.08:
            state = rng.choice(("queued", "loading", "prefill"))
            producer.alive(Alive(state))
            said.append(StateNote(state))
        elif dice < 0.16:
            _write(producer, coalescer.flush(), said)
            _write(producer, [(Kind.TOOL, _tool(rng))], said)
        else:
            kind = Kind.REASONING if dice < 0.26 else Kind.TEXT
            text = "".join(rng.choices(WORDS, k=rng.randrange(1, 4)))
            _write(producer, coalescer.add(kind, text, now), said)
            if rng.random() < 0.7:
                _write(producer, coalescer.flush(), said)
    _write(producer, coalescer.flush(), said)
    usage = Usage(rng.randrange(999), rng.randrange(999)) if rng.random() < 0.7 else None
    fin = Fin(rng.choice(_FINISHES), usage, error=rng.choice(("", "broken")), detail=rng.choice(("", "It broke.")))
    producer.finish(fin)
    said.append(Fin(fin.finish, usage, producer.data_frames, producer.data_bytes, fin.error, fin.detail))
    head, *frames = _sent(producer)
    return Sealed(keys, producer, head, frames, said)


def opposite_frames(rng: Random, keys: crypto.StreamKeys, direction: Direction) -> list[bytes]:
    """Return frames of the other direction of the same channel, as a relay sees them."""
    if direction is Direction.P2C:
        sealer, what = crypto.Sealer(keys, Direction.C2P), (FrameType.CTRL, Kind.CANCEL, b'{"reason":"x"}')
    else:
        sealer, what = crypto.Sealer(keys, Direction.P2C), (FrameType.ALIVE, Kind.ALIVE, b'{"state":"ready"}')
    return [sealer.seal(*what) for _ in range(rng.randrange(1, 4))]


def _write(producer: Producer, bodies: list[tuple[Kind, bytes]], said: list[Item]) -> None:
    for kind, body in bodies:
        producer.write(kind, body)
        if kind is Kind.TOOL:
            call = json.loads(body)
            said.append(ToolDelta(call["index"], call["id"], call["name"], call["arguments"]))
        else:
            said.append((TextDelta if kind is Kind.TEXT else ReasoningDelta)(body.decode()))


def _tool(rng: Random) -> bytes:
    call = {"index": rng.randrange(3), "id": f"c{rng.randrange(9)}", "name": "find", "arguments": rng.choice(WORDS)}
    return json.dumps(call, ensure_ascii=False).encode()


def _sent(producer: Producer) -> list[bytes]:
    out = []
    while (message := producer.next_message()) is not None:
        assert isinstance(message, bytes)
        out.append(message)
    return out
