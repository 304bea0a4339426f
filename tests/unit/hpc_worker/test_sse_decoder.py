"""The SSE decoder against the standard's parsing rules, at every place the bytes can be cut."""

from __future__ import annotations

import ast
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hpc_worker
from hpc_worker.sse_decoder import LineSplitter, LineTooLong, SseDecoder, SseEvent


def decode(*reads: bytes) -> list[SseEvent]:
    decoder = SseDecoder()
    return [event for read in reads for event in decoder.feed(read)] + decoder.close()


def datas(*reads: bytes) -> list[str]:
    return [event.data for event in decode(*reads)]


def at_every_cut(stream: bytes) -> list[list[SseEvent]]:
    return [decode(stream[:cut], stream[cut:]) for cut in range(len(stream) + 1)]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_every_line_end_works_wherever_it_is_cut(end: bytes) -> None:
    stream = end.join([b"event: note", b"data: one", b"data: two", b"", b"data: three", b"", b""])
    expected = [SseEvent("note", "one\ntwo"), SseEvent("", "three")]
    assert all(events == expected for events in at_every_cut(stream))


def test_line_ends_may_be_mixed() -> None:
    assert datas(b"data: a\r\ndata: b\rdata: c\n\r\ndata: d\r\r\n") == ["a\nb\nc", "d"]


def test_a_payload_over_several_lines_is_joined_by_newlines() -> None:
    assert datas(b'data: {"a":\ndata: 1}\n\n') == ['{"a":\n1}']


def test_one_space_belongs_to_the_syntax_and_all_others_to_the_payload() -> None:
    assert datas(b"data:  two \t \n\ndata:none\n\ndata:\n\ndata\n\n") == [" two \t ", "none", "", ""]


def test_comments_blank_lines_and_known_fields_make_no_event() -> None:
    assert datas(b": OPENROUTER PROCESSING\n\n\n\nid: 7\nretry: 10\n\n: x\ndata: y\n: z\n\n") == ["y"]


def test_a_byte_order_mark_is_dropped_only_at_the_start() -> None:
    stream = "\ufeffdata: a\n\n\ufeffdata: b\n\n".encode()
    assert all([e.data for e in events] == ["a"] for events in at_every_cut(stream))


def test_a_character_cut_between_reads_stays_whole() -> None:
    stream = "data: 你好 🌍 é\n\n".encode()
    assert datas(*[bytes([byte]) for byte in stream]) == ["你好 🌍 é"]


def test_invalid_utf8_is_replaced_and_does_not_stop_the_stream() -> None:
    assert datas(b"data: a\xffb\xe4\xbd\n\ndata: c\n\n") == ["a\ufffdb\ufffd", "c"]


def test_the_last_event_may_lack_its_blank_line_and_its_line_end() -> None:
    assert datas(b"data: a\n\ndata: [DONE]") == ["a", "[DONE]"]


def test_a_line_over_the_limit_is_an_error_that_keeps_what_came_before() -> None:
    decoder = SseDecoder(max_bytes=100)
    with pytest.raises(LineTooLong, match="longer than 100 bytes") as caught:
        decoder.feed(b"data: ok\n\ndata: " + b"x" * 200)
    assert caught.value.before == [SseEvent("", "ok")]


def test_a_line_over_the_limit_is_noticed_although_it_comes_in_small_pieces() -> None:
    decoder = SseDecoder(max_bytes=100)
    for _ in range(100):
        decoder.feed(b"x")
    with pytest.raises(LineTooLong):
        decoder.feed(b"x")


def test_many_short_lines_of_one_event_count_together() -> None:
    decoder = SseDecoder(max_bytes=100)
    with pytest.raises(LineTooLong):
        decoder.feed(b"data: 12345\n" * 20)


def test_a_line_at_the_limit_passes() -> None:
    splitter = LineSplitter(max_bytes=5)
    assert splitter.feed(b"12345\n12345") == [b"12345"]
    assert splitter.close() == b"12345"


LINES = st.lists(
    st.sampled_from([b"data: a", b"data:  b ", b"data", b": c", b"event: e", b"", b"", b"junk", "data: é🌍".encode()])
)


@given(
    lines=LINES,
    ends=st.lists(st.sampled_from([b"\n", b"\r", b"\r\n"]), min_size=1),
    cuts=st.lists(st.integers(0, 200)),
)
def test_however_the_bytes_are_cut_the_events_are_the_same(
    lines: list[bytes], ends: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(line + ends[i % len(ends)] for i, line in enumerate(lines))
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    reads = [stream[a:b] for a, b in itertools.pairwise(places)]
    assert decode(*reads) == decode(stream)


@pytest.mark.parametrize("name", ["sse", "sse_decoder", "stream_items", "think", "tool_calls"])
def test_the_readers_are_python_39_and_import_only_their_own(name: str) -> None:
    path = Path(hpc_worker.__path__[0]) / f"{name}.py"
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    modules += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    allowed = {"__future__", "json", "re", "dataclasses", "decimal", "typing", "hpc_worker"}
    assert {module.split(".")[0] for module in modules} <= allowed
