"""A hostile relay, at a size that fits in every test run; `python -m tests.faults.hostile` plays a million streams."""

from __future__ import annotations

from tests.faults.hostile import Tally, report, run, without_authentication

STREAMS = 1_500
# fixed, so that a failure here is a change of ours; the script takes any seed
SEED = 7


def test_no_wrong_byte_gets_through_and_every_stream_is_whole_or_marked() -> None:
    tally = run(0, STREAMS, SEED)
    assert (tally.wrong_bytes, tally.broken) == (0, 0), report(tally, 0)
    assert tally.streams == STREAMS
    endings = set(tally.endings)
    assert endings >= {"complete", "damaged", "interrupted", "failed", "cancelled", "offers", "transcript refused"}
    assert min(tally.moves[name] for name in ("drop", "repeat", "reorder", "cut", "splice", "random", "fin")) > 100
    assert tally.endings["complete"] > STREAMS / 10


def test_the_same_check_finds_wrong_bytes_when_frames_are_not_authenticated() -> None:
    with without_authentication():
        tally = run(0, STREAMS, SEED)
    assert tally.wrong_bytes > 0
    assert tally.broken > 0


def test_a_seed_repeats_its_streams() -> None:
    one, two = run(100, 60, SEED), run(100, 60, SEED)
    assert (one.endings, one.moves, one.bytes) == (two.endings, two.moves, two.bytes)
    assert isinstance(one, Tally)
