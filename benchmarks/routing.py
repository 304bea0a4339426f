"""Measure the judge: how often it is right, how honest its probabilities are, how long it takes.

    python -m benchmarks.routing --data FILE [--json FILE] [--quick]

FILE is JSON Lines with `text` and `label` or `ground_truth` (LOW, MEDIUM, HIGH), or with `turns`
([{role, text}, ...], the last one the user's) in place of `text`. The judge is `routing.judge.default_judge()`, the
one the product uses. Times are per question, one at a time on one core, after a warm-up; every question is new to it.
docs/judge.md says where the public benchmark comes from. `--quick` takes a fixed sample of each class.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import parser, report
from routing.judge import JudgeInput, default_judge
from routing.types import Complexity, Judgement, Message

CLASSES = tuple(Complexity)
QUICK_PER_CLASS = 400
WARM_UP = 20
BINS = 10

NOTES = {
    "accuracy": "share judged as labelled",
    "macro_f1": "F1, mean of the three classes",
    "high_to_low": "share of HIGH judged LOW",
    "ece": f"expected calibration error, {BINS} bins",
    "judge_ms_p50": "milliseconds, one question on one core",
    "judge_ms_p99": "milliseconds, one question on one core",
    "free_tier_retention": "1 - share of LOW and MEDIUM judged HIGH; never read alone",
}


@dataclass(frozen=True)
class Row:
    question: JudgeInput
    label: Complexity


def read_rows(path: Path) -> list[Row]:
    """Return the rows of `path`. Exits with the line's number when one cannot be used."""
    rows = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            rows.append(_row(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            sys.exit(f"{path}, line {number}: not a usable row ({error!r}). Nothing was measured.")
    if not rows:
        sys.exit(f"{path} has no rows. Nothing was measured.")
    return rows


def _row(data: dict[str, Any]) -> Row:
    label = Complexity(data["label"] if "label" in data else data["ground_truth"])
    turns: Sequence[dict[str, str]] = data.get("turns") or [{"role": "user", "text": data["text"]}]
    before = tuple(Message(turn["role"], turn["text"]) for turn in turns[:-1])  # type: ignore[arg-type]
    return Row(JudgeInput(turns[-1]["text"], before), label)


def sample(rows: Sequence[Row], per_class: int) -> list[Row]:
    """Return at most `per_class` rows of each class, evenly spread over the file."""
    chosen: list[Row] = []
    for label in CLASSES:
        of_class = [row for row in rows if row.label is label]
        step = max(len(of_class) / per_class, 1)
        chosen += [of_class[int(i * step)] for i in range(min(per_class, len(of_class)))]
    return chosen


def measure(rows: Sequence[Row]) -> tuple[list[Judgement], list[float]]:
    """Judge every row once, on one core; return also the CPU milliseconds of each. The first texts are a warm-up."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    judge = default_judge()
    for i in range(WARM_UP):
        judge.judge(JudgeInput(f"Warm-up question number {i}: what is {i} plus {i}?"))
    judged, used = [], []
    for row in rows:
        began = time.thread_time()
        judged.append(judge.judge(row.question))
        used.append((time.thread_time() - began) * 1000)
    return judged, used


def figures(rows: Sequence[Row], judged: Sequence[Judgement]) -> dict[str, float]:
    """Return the published figures."""
    label = np.array([CLASSES.index(row.label) for row in rows])
    found = np.array([CLASSES.index(j.complexity) for j in judged])
    confusion = np.zeros((3, 3))
    np.add.at(confusion, (label, found), 1)
    hits, actual, predicted = confusion.diagonal(), confusion.sum(axis=1), confusion.sum(axis=0)
    recall = hits / np.maximum(actual, 1)
    took = np.array([j.took_ms for j in judged])
    free = confusion[:2]
    return {
        "accuracy": hits.sum() / len(rows),
        "macro_f1": float(np.mean(2 * hits / np.maximum(actual + predicted, 1))),
        "recall_low": recall[0],
        "recall_medium": recall[1],
        "recall_high": recall[2],
        "high_to_low": confusion[2, 0] / max(actual[2], 1),
        "ece": calibration_error(np.array([j.confidence for j in judged]), label == found),
        "judge_ms_p50": float(np.percentile(took, 50)),
        "judge_ms_p99": float(np.percentile(took, 99)),
        "free_tier_retention": 1 - free[:, 2].sum() / max(free.sum(), 1),
    }


def calibration_error(confidence: np.ndarray, right: np.ndarray) -> float:
    """Return the expected calibration error (Guo et al. 2017) over equal bins of confidence."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    used = [place == b for b in range(BINS) if (place == b).any()]
    return float(sum(abs(right[b].mean() - confidence[b].mean()) * b.mean() for b in used))


def main() -> None:
    """Read, judge, report."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--data", type=Path, required=True, metavar="FILE", help="JSON Lines with labelled questions"
    )
    args = arguments.parse_args()
    rows = read_rows(args.data)
    if args.quick:
        rows = sample(rows, QUICK_PER_CLASS)
    judged, used = measure(rows)
    result = {name: float(value) for name, value in figures(rows, judged).items()}
    report(f"Judge on {len(rows):,} rows of {args.data.name}", result, NOTES, args.json)
    half, most = np.percentile(used, [50, 99])
    print(f"  CPU time of the thread: {half:.2f} ms p50, {most:.2f} ms p99 (other programs slow the clock, not this)")


if __name__ == "__main__":
    main()
