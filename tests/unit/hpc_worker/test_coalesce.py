"""The first piece at once, the rest joined, characters whole."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_worker.coalesce import FLUSH_AFTER_S, FLUSH_AT_BYTES, PIECE_BYTES, Coalescer, split_utf8
from hpc_worker.wire import Kind

KINDS = st.sampled_from([Kind.TEXT, Kind.REASONING])


def test_the_first_piece_is_not_held_and_what_follows_closely_is_joined() -> None:
    coalescer = Coalescer()
    assert coalescer.add(Kind.TEXT, "a", 1.0) == [(Kind.TEXT, b"a")]
    assert coalescer.due is None
    assert coalescer.add(Kind.TEXT, "b", 1.01) == []
    assert coalescer.due == 1.0 + FLUSH_AFTER_S
    assert coalescer.add(Kind.TEXT, "c", 1.02) == []
    assert coalescer.due == 1.0 + FLUSH_AFTER_S
    assert coalescer.flush() == [(Kind.TEXT, b"bc")]
    assert coalescer.due is None
    assert coalescer.flush() == []
    assert coalescer.add(Kind.TEXT, "d", 1.03) == []
    assert coalescer.due == pytest.approx(1.0 + 2 * FLUSH_AFTER_S)


def test_a_slow_models_text_is_never_held() -> None:
    coalescer = Coalescer()
    for number in range(20):
        assert coalescer.add(Kind.TEXT, "x", number / 26.9) == [(Kind.TEXT, b"x")]
        assert coalescer.due is None


@given(st.lists(st.floats(0, 0.06), max_size=40))
def test_nothing_is_held_for_long_and_frames_keep_their_distance(gaps: list[float]) -> None:
    coalescer, now, held_since = Coalescer(), 0.0, -1.0
    sent: list[float] = []
    for gap in gaps:
        now += gap
        if coalescer.due is not None and coalescer.due <= now:
            assert coalescer.due - held_since <= FLUSH_AFTER_S + 1e-9
            sent.append(coalescer.due)
            coalescer.flush()
        was_held = coalescer.due is not None
        if coalescer.add(Kind.TEXT, "x", now):
            sent.append(now)
        elif not was_held:
            held_since = now
    assert all(b - a >= FLUSH_AFTER_S - 1e-9 for a, b in itertools.pairwise(sent))


def test_a_change_of_kind_holds_the_new_one_no_longer() -> None:
    coalescer = Coalescer()
    coalescer.add(Kind.REASONING, "a", 0.0)
    coalescer.add(Kind.REASONING, "b", 0.001)
    coalescer.add(Kind.TEXT, "c", 0.002)
    assert coalescer.due is not None
    assert coalescer.due <= 0.002 + FLUSH_AFTER_S


def test_an_empty_first_piece_does_not_use_up_the_exception() -> None:
    coalescer = Coalescer()
    assert coalescer.add(Kind.TEXT, "", 1.0) == []
    assert coalescer.add(Kind.TEXT, "a", 1.0) == [(Kind.TEXT, b"a")]


def test_a_change_of_kind_flushes_what_came_before() -> None:
    coalescer = Coalescer()
    coalescer.add(Kind.REASONING, "hm", 0)
    coalescer.add(Kind.REASONING, "m", 0)
    assert coalescer.add(Kind.TEXT, "So", 0) == [(Kind.REASONING, b"m")]
    assert coalescer.flush() == [(Kind.TEXT, b"So")]


@given(st.lists(st.tuples(KINDS, st.text(max_size=300), st.booleans())))
def test_nothing_is_lost_reordered_or_cut(items: list[tuple[Kind, str, bool]]) -> None:
    coalescer = Coalescer()
    out: list[tuple[Kind, bytes]] = []
    for kind, text, flush in items:
        out += coalescer.add(kind, text, 0.0)
        if flush:
            out += coalescer.flush()
        held = sum(map(len, coalescer._parts))
        assert held < FLUSH_AT_BYTES
        assert (coalescer.due is None) == (held == 0)
    out += coalescer.flush()
    want = [(kind, text) for kind, text, _ in items]
    joined = join([(kind, body.decode()) for kind, body in out])
    assert joined == join([(k, t) for k, t in want if t])


def join(items: list[tuple[Kind, str]]) -> list[tuple[Kind, str]]:
    out: list[tuple[Kind, str]] = []
    for kind, text in items:
        if out and out[-1][0] is kind:
            out[-1] = (kind, out[-1][1] + text)
        else:
            out.append((kind, text))
    return out


@given(st.text(), st.integers(4, 20))
def test_cuts_are_between_characters(text: str, size: int) -> None:
    data = text.encode()
    pieces = split_utf8(data, size)
    assert b"".join(pieces) == data
    assert "".join(piece.decode() for piece in pieces) == text
    assert all(0 < len(piece) <= size for piece in pieces)


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert Coalescer().add(Kind.TEXT, "a\ud83d", 0.0) == [(Kind.TEXT, b"a?")]


def test_a_large_piece_leaves_in_frames() -> None:
    out = Coalescer().add(Kind.TEXT, "x" * (3 * PIECE_BYTES + 1), 0.0)
    assert [len(body) for _, body in out] == [PIECE_BYTES] * 3 + [1]
