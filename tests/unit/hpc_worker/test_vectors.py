"""The published vectors, and that the generator still writes them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.vectors import replay

PAIRS = replay.load()
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("setup", "vector"), PAIRS, ids=[f"{v['id']}-{v['test']}" for _, v in PAIRS])
def test_vector(setup: dict[str, Any], vector: dict[str, Any]) -> None:
    replay.check(setup, vector)


def test_there_are_enough_of_both() -> None:
    bad = sum(vector["test"].endswith("_bad") for _, vector in PAIRS)
    assert bad >= 100
    assert len(PAIRS) - bad >= 100


def test_the_first_is_the_published_one() -> None:
    setup, vector = PAIRS[0]
    assert setup["key"] == bytes(range(32)).hex()
    assert vector["commit"] == "31e157f6463a4869d9f5f5ba7930332cadcca276db461f197cc92bb5e80c88a8"
    data = next(v for _, v in PAIRS if v["test"] == "frame")
    assert data["frame"].startswith("02000000015debb988084bb7b9")


def test_the_generator_writes_this_file() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "make_vectors.py", "--check"], timeout=60, check=False)
    assert done.returncode == 0


def test_the_replay_notices_a_wrong_vector() -> None:
    setup, vector = next(pair for pair in PAIRS if pair[1]["test"] == "frame")
    with pytest.raises(AssertionError):
        replay.check(setup, {**vector, "seq": vector["seq"] + 1})
    with pytest.raises(AssertionError, match="accepted"):
        replay.check(setup, {**vector, "test": "frame_bad", "reason": "forged"})
