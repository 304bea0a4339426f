"""What every benchmark shares: arguments, the table, the JSON file."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser that knows `--json FILE` and `--quick`."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--json", type=Path, metavar="FILE", help='write {"figures": {...}} to FILE')
    made.add_argument("--quick", action="store_true", help="measure less, in under a minute")
    return made


def report(title: str, figures: Mapping[str, float], notes: Mapping[str, str], path: Path | None) -> None:
    """Print `figures` as a table, each with its note, and write them to `path` if there is one."""
    width = max(len(name) for name in figures)
    print(title)
    for name, value in figures.items():
        print(f"  {name:<{width}}  {value:>12,.4f}  {notes.get(name, '')}".rstrip())
    if path is not None:
        path.write_text(json.dumps({"figures": dict(figures)}, indent=2) + "\n", encoding="utf-8")
