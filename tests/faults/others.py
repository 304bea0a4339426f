"""Sealed offers to a worker, and transcripts that a task returns, through hostile hands."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random

from hpc_worker import crypto, wire
from hpc_worker.bodies import BodyError, Offer, OfferAssembler, dump_cancel
from hpc_worker.producer import Control
from hpc_worker.transcript import open_transcript, seal_transcript
from hpc_worker.wire import Direction, FrameType, Kind
from routing.backends.hpc.unseal import Unsealer
from tests.faults.answers import Seen
from tests.faults.attacks import Hostile, Messages
from tests.faults.streams import CONTENT, URL, Sealed, new_offer, new_producer, seal_answer

OFFER_MOVES = ("drop", "repeat", "reorder", "cut", "splice", "random", "truncate", "alter", "talk")


def play_offers(rng: Random, loop: asyncio.AbstractEventLoop, other: list[bytes]) -> Seen:
    """Seal jobs and cancels to a worker on its mailbox; each may reach it once, as it was sealed, or not at all."""
    mailbox = new_offer(rng)
    producer, keys = new_producer(rng, mailbox)
    unsealer = Unsealer(CONTENT, crypto.Scope(mailbox.kid, mailbox.cid, 1), mailbox.salt_c)
    head = wire.build_head(wire.Head("k1", 1, producer._id.salt_p, keys.commit))
    unsealer.open(head)
    jobs = [_job(rng) for _ in range(rng.randrange(1, 5))]
    bodies = [part for job in jobs for part in job.dump()] + [(Kind.CANCEL, dump_cancel("x"))] * rng.randrange(2)
    sealed = [unsealer.seal(kind, body) for kind, body in bodies]
    theirs = seal_answer(rng, mailbox)
    seen_there = Sealed(keys, producer, head, [*theirs.frames, *sealed], [])
    hostile = Hostile(rng, mailbox, seen_there, other, Counter(), direction=Direction.C2P)
    messages: Messages = list(sealed)
    for _ in range(rng.choice((0, 1, 2, 4))):
        name = rng.choice(OFFER_MOVES)
        hostile.moves[name] += 1
        getattr(hostile, name)(messages)
    seen = Seen(sealed, "offers", moves=hostile.moves)
    got: list[Offer] = []
    controls: list[tuple[Kind, bytes]] = []
    assembler = OfferAssembler()
    for message in messages:
        if isinstance(message, str):
            continue  # answered with a new connection, where the platform repeats its frames
        for action in producer.receive_frame(message):
            if not isinstance(action, Control):
                continue
            controls.append((action.kind, action.body))
            try:
                offer = assembler.add(action.kind, action.body) if action.kind is not Kind.CANCEL else None
            except BodyError:
                continue
            got += [offer] if offer else []
    _judge_offers(seen, jobs, got)
    place = -1
    for control in controls:
        place = next((at for at in range(place + 1, len(bodies)) if bodies[at] == control), len(bodies))
    if place == len(bodies):
        seen.faults.append("a worker was told what the platform did not say, or twice, or in another order")
    return seen


def _job(rng: Random) -> Offer:
    prompt = rng.randbytes(rng.choice((1, 200, 17_000, 40_000)))
    return Offer(rng.randbytes(16), rng.randrange(1, 9), rng.randbytes(32), "k1", URL, rng.randrange(1, 999), prompt)


def _judge_offers(seen: Seen, jobs: list[Offer], got: list[Offer]) -> None:
    seen.bytes = sum(len(offer.prompt) for offer in got)
    for offer in got:
        if offer not in jobs:
            seen.wrong_bytes += len(offer.prompt)
            seen.faults.append("a worker took a job that nobody offered")
    if len({offer.cid for offer in got}) < len(got):
        seen.faults.append("a worker took a job twice")


def play_transcript(rng: Random, loop: asyncio.AbstractEventLoop, other: list[bytes]) -> Seen:
    """Return a sealed transcript through a cloud that alters, cuts, splices or keeps it."""
    offer = new_offer(rng)
    genuine = seal_answer(rng, offer)
    salts = (offer.salt_c, genuine.producer._id.salt_p)
    records = genuine.producer.records()
    transcript = bytearray(seal_transcript(CONTENT.keys["k1"], genuine.keys, salts, records))
    twin = seal_answer(rng, offer, rng.choice((1, 2)))
    theirs = seal_transcript(
        CONTENT.keys["k1"], twin.keys, (offer.salt_c, twin.producer._id.salt_p), twin.producer.records()
    )
    way = rng.choice(("as it is", "alter", "truncate", "head", "splice", "random"))
    at = rng.randrange(len(transcript))
    if way == "alter":
        transcript[at] ^= 1 << rng.randrange(8)
    elif way == "truncate":
        del transcript[at:]
    elif way == "head":
        transcript[: len(genuine.head)] = twin.head
    elif way == "splice":
        transcript[at:] = theirs[at:]
    elif way == "random":
        transcript[:] = rng.randbytes(at)
    seen = Seen(genuine.frames, moves=Counter({f"transcript {way}": 1}))
    try:
        got = open_transcript(CONTENT, crypto.Scope("k1", offer.cid, 1), offer.salt_c, bytes(transcript))
    except (wire.WireError, crypto.CryptoError, BodyError):
        seen.ending = "transcript refused"
        if way == "as it is":
            seen.faults.append("a genuine transcript was refused")
        return seen
    seen.ending = "transcript opened"
    seen.bytes = sum(len(record.body) for record in got)
    theirs_too = twin.producer.records() if twin.keys.scope.attempt == 1 else None
    if got not in (records, theirs_too):
        seen.wrong_bytes = seen.bytes
        seen.faults.append(f"a transcript was opened that nobody sealed ({way})")
    if not got or got[-1].type is not FrameType.FIN:
        seen.faults.append("a transcript without its end")
    return seen
