"""Tool calls are told apart whatever a server leaves out, and are never finished when they are cut."""

from __future__ import annotations

import json

import pytest

from hpc_worker.sse import Fault, FinishItem
from tests.fakes import scripts
from tests.fakes.scripts import tool, tool_deltas
from tests.unit.hpc_worker.reading import calls_of, last, play


def test_the_standard_form_with_id_and_name_only_first_is_one_call() -> None:
    steps = tool_deltas([tool("", name="add", id="c1", index=0)], [tool('{"a": ', index=0)], [tool("1}", index=0)])
    items = play(steps)
    assert calls_of(items) == [("c1", "add", '{"a": 1}')]
    assert last(items) == FinishItem("tool_calls", "tool_calls")


TWO = [("a", "f", '{"x": 1}'), ("b", "g", '{"y": 2}')]


@pytest.mark.parametrize(
    "deltas",
    [
        [[tool('{"x"', name="f", id="a"), tool('{"y"', name="g", id="b")],
         [tool(": 1}", id="a"), tool(": 2}", id="b")]],
        [[tool('{"x"', name="f", id="a")], [tool(": 1}")], [tool('{"y"', name="g", id="b")], [tool(": 2}")]],
        [[tool('{"x": 1}', name="f", id="a", index=0)], [tool('{"y": 2}', name="g", id="b", index=0)]],
        [[tool('{"x"', name="f", id="a", index=3)], [tool('{"y"', name="g", id="b", index=7)],
         [tool(": 1}", index=3), tool(": 2}", index=7)]],
        [[tool('{"x"', name="f", id="a")], [tool(": 1}", id="z1")],
         [tool('{"y"', name="g", id="b")], [tool(": 2}", id="z2")]],
    ],
    ids=["ids-no-index", "id-only-first", "index-0-for-all", "odd-indexes", "a-new-id-in-every-delta"],
)  # fmt: skip
def test_parallel_calls_are_told_apart_whatever_the_server_leaves_out(deltas: list[list[scripts.Json]]) -> None:
    assert calls_of(play(tool_deltas(*deltas))) == TWO


@pytest.mark.parametrize(
    "deltas",
    [
        [[tool({"x": 1}, name="f"), tool({"x": 1}, name="f")]],
        [[tool('{"x"', name="f")], [tool(": 1}")], [tool('{"x": 1}', name="f")]],
        [[tool('{"x"', name="f")], [tool(": 1}", name="f")], [tool('{"x": 1}', name="f")]],
    ],
    ids=["whole-objects", "nameless-rest", "name-in-every-delta"],
)
def test_calls_without_index_and_id_are_told_apart_and_get_ids(deltas: list[list[scripts.Json]]) -> None:
    calls = calls_of(play(tool_deltas(*deltas)))
    assert [(name, json.loads(arguments)) for _, name, arguments in calls] == [("f", {"x": 1})] * 2
    assert len({id for id, _, _ in calls}) == 2


def test_a_stream_that_dies_inside_the_arguments_is_never_a_finished_call() -> None:
    assert isinstance(last(play(tool_deltas([tool('{"a": ', name="f", id="c", index=0)], finish=None))), Fault)


def test_cut_arguments_are_an_error_even_if_the_server_says_tool_calls() -> None:
    fault = last(play(tool_deltas([tool('{"a": ', name="f", id="c", index=0)])))
    assert fault == Fault("cut_tool", "the arguments of the tool call 'f' are cut")


def test_arguments_cut_by_the_token_limit_say_so() -> None:
    steps = tool_deltas([tool('{"a": ', name="f", id="c", index=0)], finish="length")
    assert last(play(steps)) == FinishItem("length", "length")


def test_a_server_that_says_stop_after_tool_calls_means_tool_calls() -> None:
    items = play(tool_deltas([tool("", name="now", id="c", index=0)], finish="stop"))
    assert last(items) == FinishItem("tool_calls", "stop")
    assert calls_of(items) == [("c", "now", "")]
