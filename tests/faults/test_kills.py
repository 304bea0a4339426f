"""Processes killed by pid while they answer; `python -m tests.faults.kills` asks a hundred questions."""

from __future__ import annotations

from pathlib import Path

from tests.faults import kills
from tests.fixtures_upstream import UpstreamControl

STREAMS = 12


def test_whatever_is_killed_answers_are_exact_or_marked_and_nothing_is_left(
    upstream: UpstreamControl, tmp_path: Path
) -> None:
    result = kills.run(tmp_path, upstream, streams=STREAMS, seed=11, every_s=(0.5, 1.5))
    assert result.broken == [], str(result)
    assert result.outcomes.total() == STREAMS
    assert result.kills.total() >= 2
    assert result.calls >= 1


def test_the_check_sees_what_is_wrong() -> None:
    row = {"state": "ended", "outcome": "complete", "answer": kills.WHOLE}
    assert kills.check_turn(row, kills.WHOLE) == []
    marked = {**row, "outcome": "interrupted", "answer": "0 1 "}
    assert kills.check_turn(marked, "0 1 ") == []
    assert len(kills.check_turn({**row, "answer": "0 1 "}, "0 1 ")) == 1
    assert len(kills.check_turn({**marked, "answer": "0 1 1 "}, "0 1 1 ")) == 1
    assert len(kills.check_turn(marked, "0 1 2 ")) == 1
    assert len(kills.check_turn({**marked, "state": "running"}, "0 1 ")) == 1
