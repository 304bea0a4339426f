"""However the bytes are cut, and whatever they are, the reader gives the same items and one end."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpc_worker.sse import Fault, FinishItem, Item, Reasoning, Text
from tests.fakes import scripts
from tests.fakes.formats import chunk
from tests.fakes.scripts import events, openai, stream_bytes, tool, tool_deltas
from tests.unit.hpc_worker.reading import last, read, text_of

STREAMS = {
    "unicode": openai("你好 🌍 é", "<think>", "\ud83d"),
    "thinking": openai("<think>\n\nwhy 🌍</think>\n\n", "because", "</think>"),
    "openrouter": scripts.openrouter("Hi", " there"),
    "openrouter error": scripts.openrouter_error_midway("half"),
    "tools": tool_deltas([tool('{"é', name="f", id="a")], [tool('": 1}'), tool({"y": 2.5}, name="g", id="b")]),
    "cut tools": tool_deltas([tool('{"é', name="f", id="a")]),
    "reasoning": scripts.vllm_reasoning(["hm"], ["yes"], "reasoning", "reasoning_content"),
    "garbage inside": [*scripts.raw("data: : keepalive\r\n\r\ndata: {\r\rjunk\n"), *openai("a")],
    "json": scripts.raw(json.dumps({"choices": [{"message": {"content": "é🌍"}, "finish_reason": "stop"}]})),
    "html": scripts.html_page(),
    "early": events(chunk({"content": "half"})),
    "empty": [],
}


def joined(items: list[Item]) -> list[Item]:
    """Return items with neighbouring texts and pieces of the same call joined."""
    out: list[Item] = []
    for item in items:
        before = out[-1] if out else None
        if isinstance(item, (Text, Reasoning)) and type(before) is type(item):
            assert isinstance(before, (Text, Reasoning))
            out[-1] = type(item)(before.text + item.text)
        else:
            out.append(item)
    return out


@pytest.mark.parametrize("name", STREAMS)
def test_at_every_byte_position_a_cut_changes_nothing(name: str) -> None:
    stream = stream_bytes(STREAMS[name])
    whole = joined(read(stream))
    for cut in range(len(stream) + 1):
        assert joined(read(stream[:cut], stream[cut:])) == whole
    assert joined(read(*(bytes([byte]) for byte in stream))) == whole


@given(st.sampled_from(sorted(STREAMS)), st.lists(st.integers(0, 2000)), st.booleans())
def test_any_set_of_cuts_changes_nothing(name: str, cuts: list[int], starts: bool) -> None:
    stream = stream_bytes(STREAMS[name])
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reads = [stream[a:b] for a, b in itertools.pairwise(places)]
    assert joined(read(*reads, starts=starts)) == joined(read(stream, starts=starts))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["choices", "delta", "content", "usage", "error", "index", "tool_calls", "function", "arguments", "name",
             "id", "finish_reason", "reasoning", "code", "message", "metadata", "cost", "type", "text", "thinking",
             "prompt_tokens", "object"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=8,
)  # fmt: skip
CHOICE = st.fixed_dictionaries({"choices": st.lists(st.fixed_dictionaries({"delta": JSON, "finish_reason": JSON}))})


@settings(max_examples=60)
@given(st.lists(JSON | CHOICE | st.fixed_dictionaries({"usage": JSON, "choices": JSON})))
def test_no_json_however_odd_raises_and_every_stream_has_one_end(frames: list[object]) -> None:
    items = read("".join(f"data: {json.dumps(frame)}\n\n" for frame in frames).encode())
    assert last(items) is items[-1]
    assert text_of(items).encode("utf-8") is not None


@given(st.lists(st.binary(max_size=30)))
def test_no_bytes_raise(reads: list[bytes]) -> None:
    assert isinstance(last(read(*reads)), (Fault, FinishItem))
