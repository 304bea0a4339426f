"""Our own labelled rows, and which of them no reader of a text is trained on. Pure but for reading a file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
HELD_OUT_ONE_IN = 12


def is_held_out(text: str) -> bool:
    """Return whether `text` is kept from encoder, readers and calibration: about one row in twelve, by hash."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % HELD_OUT_ONE_IN == 0


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a JSON Lines file."""
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]
