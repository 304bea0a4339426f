"""The environment variables that the settings read, found in their source."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
READERS = frozenset({"text", "flag", "integer", "number", "words", "choice", "secret"})


def setting_names() -> set[str]:
    """Return the name of every variable read in stream_site/settings.py; a secret also has its NAME_FILE."""
    tree = ast.parse((ROOT / "stream_site" / "settings.py").read_text(encoding="utf-8"))
    names = set()
    for call in ast.walk(tree):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
            continue
        owner, name = call.func.value, call.args[0]
        if isinstance(owner, ast.Name) and owner.id == "env" and call.func.attr in READERS:
            assert isinstance(name, ast.Constant), f"line {call.lineno}: the variable's name must be written out"
            names.add(str(name.value))
            if call.func.attr == "secret":
                names.add(f"{name.value}_FILE")
    return names
