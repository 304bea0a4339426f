"""Tell apart the tool calls of one stream, whatever its server leaves out. Pure, Python 3.9.

OpenAI gives `index` in every delta and `id` in the first. Others give no index, no id, a new id in every delta,
or index 0 for every call.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hpc_worker.stream_items import ToolPiece
from hpc_worker.think import TextCleaner


@dataclass
class _Call:
    index: int
    id: str
    name: str
    arguments: str = ""
    cleaner: TextCleaner = field(default_factory=TextCleaner)

    @property
    def whole(self) -> bool:
        try:
            json.loads(self.arguments)
        except (ValueError, RecursionError):
            return False
        return True


class ToolCalls:
    """Assemble `delta.tool_calls`. `push` returns pieces in our own numbering."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    @property
    def any(self) -> bool:
        return bool(self._calls)

    def broken(self) -> str:
        """Return the name of the first call whose arguments are not whole JSON, or "". Having none is whole."""
        return next((call.name or "?" for call in self._calls if call.arguments and not call.whole), "")

    def push(self, delta: dict[str, Any], generation_id: str) -> ToolPiece | None:
        """Return the piece that `delta` carries, or None when it carries nothing."""
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        name = _text(function.get("name"))
        sent_id = _text(delta.get("id"))
        index = delta.get("index")
        index = index if isinstance(index, int) and not isinstance(index, bool) else None
        call = self._find(index, sent_id, name)
        first = call is None
        if call is None:
            number = len(self._calls)
            call = _Call(number, sent_id or _made_id(generation_id, number), name)
            self._calls.append(call)
        if index is not None:
            self._by_index[index] = call
        if sent_id:
            self._by_id.setdefault(sent_id, call)
        arguments = call.cleaner.push(_arguments(function.get("arguments")))
        call.arguments += arguments
        if not first and not arguments:
            return None
        return ToolPiece(call.index, call.id if first else "", name if first else "", arguments)

    def _find(self, index: int | None, sent_id: str, name: str) -> _Call | None:
        """Return the call that a delta continues, or None when it begins one."""
        if index is not None:
            call = self._by_index.get(index)
            reused = call is not None and bool(sent_id and name) and self._by_id.get(sent_id) is not call
            return None if reused else call
        if sent_id in self._by_id:
            return self._by_id[sent_id]
        last = self._calls[-1] if self._calls else None
        if last is None or not name:
            return last  # a nameless delta goes on with the last call, even under a new id
        if sent_id:
            return None
        # Neither index nor id: the same name again while its arguments are not whole is the same call.
        return last if name == last.name and last.arguments and not last.whole else None


def _made_id(generation_id: str, number: int) -> str:
    """Return an id for a call that came without one; a client needs it to send the result back."""
    return "_".join(part for part in ("call", generation_id[-12:], str(number)) if part)


def _text(value: object) -> str:
    return TextCleaner().push(value) if isinstance(value, str) else ""


def _arguments(value: object) -> str:
    """Return arguments as JSON text; some servers send the object itself."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=float)
