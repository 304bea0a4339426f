"""What is inside the sealed bodies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_worker import bodies
from hpc_worker.bodies import Alive, BodyError, Fin, Offer, OfferAssembler, Record, Usage
from hpc_worker.wire import MAX_BODY_BYTES, FrameType, Kind

COUNTS = st.integers(0, 10**15)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, st.booleans())
FINS = st.builds(
    Fin,
    finish=st.sampled_from(sorted(bodies.FINISHES)),
    usage=st.none() | USAGES,
    data_frames=st.none() | COUNTS,
    data_bytes=st.none() | COUNTS,
    error=st.text(max_size=64),
    detail=st.text(max_size=100),
)
ALIVES = st.builds(
    Alive, st.sampled_from(sorted(bodies.STATES)), st.none() | COUNTS, st.none() | COUNTS, st.text(max_size=50)
)


@given(FINS)
def test_fin_round_trip(fin: Fin) -> None:
    assert Fin.load(fin.dump()) == fin


@given(ALIVES)
def test_alive_round_trip(alive: Alive) -> None:
    assert Alive.load(alive.dump()) == alive


def test_the_published_fin() -> None:
    assert Fin("stop").dump() == b'{"finish":"stop"}'
    assert Fin.load(b'{"finish":"stop"}') == Fin("stop")


@given(
    st.binary(max_size=100) | st.sampled_from([b"[" * 5000, b'{"finish":["stop"]}', b'{"finish":"stop","bytes":true}'])
)
def test_any_body_raises_nothing_but_body_error(body: bytes) -> None:
    for load in (Fin.load, Alive.load, bodies.load_records, lambda b: OfferAssembler().add(Kind.OFFER, b)):
        try:
            load(body)
        except BodyError:
            continue


@pytest.mark.parametrize("finish", ["", "done", "STOP"])
def test_an_unknown_finish_is_refused_both_ways(finish: str) -> None:
    with pytest.raises(BodyError, match="finish"):
        Fin(finish).dump()
    with pytest.raises(BodyError, match="finish"):
        Fin.load(b'{"finish":"%s"}' % finish.encode())
    with pytest.raises(BodyError, match="state"):
        Alive(finish).dump()


def make_offer(prompt: bytes, number: int = 0) -> Offer:
    return Offer(bytes([number]) * 16, 1, b"s" * 32, "k1", "wss://relay.example.edu/v1", 300, prompt)


@given(st.integers(1, 60_000))
def test_an_offer_of_any_size_crosses_in_frames(size: int) -> None:
    offer = make_offer(bytes(i % 251 for i in range(size)))
    assembler = OfferAssembler()
    frames = list(offer.dump())
    assert all(len(body) <= MAX_BODY_BYTES for _, body in frames)
    got = [assembler.add(kind, body) for kind, body in frames]
    assert got[:-1] == [None] * (len(frames) - 1)
    assert got[-1] == offer


def test_offers_may_interleave() -> None:
    one, two = make_offer(b"a" * 40_000, 1), make_offer(b"b" * 40_000, 2)
    assembler = OfferAssembler()
    done = []
    for pair in zip(one.dump(), two.dump(), strict=True):
        done += [offer for offer in (assembler.add(*frame) for frame in pair) if offer]
    assert done == [one, two]


def test_a_missing_part_drops_the_offer() -> None:
    frames = list(make_offer(b"a" * 40_000).dump())
    assembler = OfferAssembler()
    assembler.add(*frames[0])
    assembler.add(*frames[1])
    with pytest.raises(BodyError, match="part_offset"):
        assembler.add(*frames[3])
    with pytest.raises(BodyError, match="part_without_offer"):
        assembler.add(*frames[2])


def test_unfinished_offers_are_bounded() -> None:
    assembler = OfferAssembler(limit=2)
    offers = [list(make_offer(b"x", n).dump()) for n in range(3)]
    for frames in offers:
        assembler.add(*frames[0])
    with pytest.raises(BodyError, match="part_without_offer"):
        assembler.add(*offers[0][1])
    assert assembler.add(*offers[2][1]) is not None


@pytest.mark.parametrize("prompt", [b"", b"x" * (bodies.MAX_PROMPT_BYTES + 1)])
def test_a_prompt_has_a_size(prompt: bytes) -> None:
    with pytest.raises(BodyError, match="prompt_bytes"):
        list(make_offer(prompt).dump())


@given(
    st.lists(st.tuples(st.sampled_from(FrameType), st.sampled_from(Kind), st.binary(max_size=50))), st.integers(1, 9)
)
def test_records_round_trip(items: list[tuple[FrameType, Kind, bytes]], first: int) -> None:
    records = [Record(t, k, first + i, body) for i, (t, k, body) in enumerate(items)]
    plain = bodies.dump_records(records)
    assert bodies.load_records(plain) == records
    if records:
        with pytest.raises(BodyError):
            bodies.load_records(plain[:-1] if records[-1].body else plain + b"\0")


def test_a_gap_in_a_transcript_is_refused() -> None:
    records = [Record(FrameType.DATA, Kind.TEXT, seq, b"x") for seq in (1, 3)]
    with pytest.raises(BodyError):
        bodies.load_records(bodies.dump_records(records))
