"""Numbering and joining of events."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chat.runner.eventlog import MOST_CHARS, EventLog

pieces = st.lists(
    st.tuples(st.floats(0, 0.05), st.sampled_from(["delta", "reasoning", "state"]), st.text(min_size=1, max_size=40)),
    max_size=60,
)


@given(pieces)
def test_numbers_have_no_gap_and_no_character_is_lost_or_moved(steps: list[tuple[float, str, str]]) -> None:
    log, now, out = EventLog(0.025), 0.0, []
    for wait, kind, text in steps:
        now += wait
        if (due := log.due_in(now)) == 0:
            out += log.flush(now)
        assert due is None or due <= 0.0251
        out += log.add(now, kind, **({"state": text} if kind == "state" else {"text": text}))
    out += log.flush(now)
    assert [e["seq"] for e in out] == list(range(1, len(out) + 1))
    # The joined stream, kind by kind in order of appearance, is what went in.
    flat = [(e["kind"], c) for e in out for c in e.get("text", e.get("state", ""))]
    assert flat == [(kind, c) for _, kind, text in steps for c in text]


def test_the_first_text_goes_out_at_once_and_what_follows_is_joined() -> None:
    log = EventLog(0.025)
    assert [e["text"] for e in log.add(10.0, "delta", text="Hel")] == ["Hel"]
    assert log.add(10.001, "delta", text="lo ") == []
    assert log.add(10.002, "delta", text="you") == []
    assert log.due_in(10.003) is not None
    assert [e["text"] for e in log.flush(10.025)] == ["lo you"]
    assert log.due_in(10.026) is None


def test_a_very_long_piece_is_cut_into_events_far_below_the_window() -> None:
    log = EventLog(0.025)
    events = log.add(1.0, "delta", text="x" * (3 * MOST_CHARS + 1))
    assert [len(e["text"]) for e in events] == [MOST_CHARS] * 3 + [1]


def test_another_kind_pushes_out_what_waits_before_it() -> None:
    log = EventLog(1.0)
    log.add(0.0, "reasoning", text="a")
    log.add(0.1, "reasoning", text="b")
    assert [(e["kind"], e.get("text")) for e in log.add(0.2, "attempt", attempt=2)] == [
        ("reasoning", "b"),
        ("attempt", None),
    ]
