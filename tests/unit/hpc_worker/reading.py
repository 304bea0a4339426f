"""Run the reader over bytes, and look at what came out. Shared by its tests."""

from __future__ import annotations

from hpc_worker.sse import Fault, FinishItem, Item, OpenAIStreamReader, Reasoning, Text, ToolPiece
from tests.fakes import scripts
from tests.fakes.scripts import stream_bytes


def read(*reads: bytes, starts: bool = False) -> list[Item]:
    reader = OpenAIStreamReader(starts_in_reasoning=starts)
    items = [item for data in reads for item in reader.feed(data)] + reader.close()
    assert reader.over
    assert reader.feed(b"data: more\n\n") == []
    assert reader.close() == []
    return items


def play(steps: scripts.Steps, *, starts: bool = False) -> list[Item]:
    return read(stream_bytes(steps), starts=starts)


def text_of(items: list[Item]) -> str:
    return "".join(item.text for item in items if isinstance(item, Text))


def thought_of(items: list[Item]) -> str:
    return "".join(item.text for item in items if isinstance(item, Reasoning))


def calls_of(items: list[Item]) -> list[tuple[str, str, str]]:
    """Return (id, name, joined arguments) of every call, and check the numbering."""
    calls: dict[int, list[str]] = {}
    for piece in items:
        if isinstance(piece, ToolPiece):
            if piece.index not in calls:
                assert piece.index == len(calls)
                assert piece.id
                calls[piece.index] = [piece.id, piece.name, ""]
            else:
                assert (piece.id, piece.name) == ("", "")
            calls[piece.index][2] += piece.arguments
    return [(c[0], c[1], c[2]) for c in calls.values()]


def last(items: list[Item]) -> Item:
    assert sum(isinstance(item, (FinishItem, Fault)) for item in items) == 1
    return items[-1]
