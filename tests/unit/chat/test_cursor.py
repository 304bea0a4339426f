"""A socket's place in a turn, and its window."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chat.cursor import TurnCursor, Window


def event(seq: int, kind: str = "delta") -> dict[str, object]:
    return {"seq": seq, "kind": kind}


def taken(cursor: TurnCursor, seqs: list[int], fence: int = 1) -> list[int]:
    sent = []
    for seq in seqs:
        if cursor.offer(event(seq), fence):
            cursor.sent(event(seq))
            sent.append(seq)
    return sent


@given(st.lists(st.integers(1, 12), max_size=60))
def test_whatever_comes_is_sent_in_order_once_and_a_gap_is_noted(seqs: list[int]) -> None:
    cursor = TurnCursor()
    sent = taken(cursor, seqs)
    assert sent == list(range(1, len(sent) + 1))
    missing = any(seq > len(sent) + 1 for seq in seqs)
    assert not missing or cursor.behind


def test_a_higher_fence_starts_over_and_a_lower_one_is_ignored() -> None:
    cursor = TurnCursor()
    assert taken(cursor, [1, 2, 3]) == [1, 2, 3]
    assert taken(cursor, [1, 2], fence=2) == [1, 2]
    assert taken(cursor, [4], fence=1) == []


def test_a_socket_that_says_what_it_has_goes_on_from_there() -> None:
    assert taken(TurnCursor(last=5), [4, 5, 6, 7], fence=3) == [6, 7]


def test_nothing_follows_the_end() -> None:
    cursor = TurnCursor()
    assert cursor.offer(event(1, "done"), 1)
    cursor.sent(event(1, "done"))
    assert not cursor.offer(event(2), 1)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 500)), max_size=80), st.data())
def test_the_window_counts_what_is_not_acknowledged(sizes: list[tuple[str, int]], data: st.DataObject) -> None:
    window, seqs, model = Window(1000), {"a": 0, "b": 0}, {"a": [], "b": []}  # type: ignore[var-annotated]
    for turn, size in sizes:
        seqs[turn] += 1
        window.add(turn, seqs[turn], size)
        model[turn].append((seqs[turn], size))
        if data.draw(st.booleans()):
            acked = data.draw(st.integers(0, seqs[turn] + 3))
            window.ack(turn, acked)
            model[turn] = [(s, b) for s, b in model[turn] if s > acked]
        assert window.unacked == sum(b for rows in model.values() for _, b in rows)
        assert window.is_open == (window.unacked < 1000)


def test_numbers_that_start_over_free_what_nobody_will_acknowledge() -> None:
    window = Window(100)
    window.add("a", 7, 90)
    window.add("a", 1, 20)
    assert window.unacked == 20
    window.ack("a", 1)
    assert window.unacked == 0


def test_acknowledging_what_was_never_sent_changes_nothing() -> None:
    window = Window(100)
    window.ack("ghost", 10**9)
    window.forget("ghost")
    assert window.unacked == 0
