"""The reader of streamed chat completions, against what servers really send."""

from __future__ import annotations

import json

import pytest

from hpc_worker.sse import Fault, FinishItem, OpenAIStreamReader, Reasoning, Text, UsageItem
from tests.fakes import scripts
from tests.fakes.formats import chunk, openai_usage, sse
from tests.fakes.scripts import events, openai, openai_end, stream_bytes
from tests.unit.hpc_worker.reading import last, play, read, text_of, thought_of

STOP = FinishItem("stop", "stop")


def test_a_stream_becomes_text_then_usage_then_the_finish() -> None:
    assert play(openai("Hel", "lo")) == [Text("Hel"), Text("lo"), UsageItem(7, 3, generation_id="chatcmpl-1"), STOP]


def test_a_usage_only_chunk_with_empty_choices_is_read() -> None:
    items = play(events(chunk({"content": "a"}), chunk({}, "stop"), chunk(usage=openai_usage(5, 1)), "[DONE]"))
    assert items[-2:] == [UsageItem(5, 1, generation_id="chatcmpl-1"), STOP]


def test_of_cumulative_usage_the_last_counts_and_comes_once() -> None:
    items = play(scripts.openai_usage_in_every_chunk("a", "b", "c"))
    assert [item for item in items if isinstance(item, UsageItem)] == [UsageItem(7, 3, generation_id="chatcmpl-1")]


@pytest.mark.parametrize("usage", [None, {}, [], "many"])
def test_usage_that_is_none_is_not_reported(usage: object) -> None:
    assert play(events(chunk({"content": "a"}, "stop", usage=usage), "[DONE]")) == [Text("a"), STOP]


@pytest.mark.parametrize("cost", [0.00214, "0.00214"])
def test_openrouter_cost_details_and_generation_id_are_read_past_its_comments(cost: float | str) -> None:
    items = play(scripts.openrouter("Hi", cost=cost))
    assert items == [Text("Hi"), UsageItem(194, 2, 100, 1, 2140, "gen-42"), STOP]


def test_reported_cost_is_read_in_an_answer_that_is_not_a_stream_too() -> None:
    message = {"role": "assistant", "content": "Hi", "reasoning": "hm"}
    body = {
        "id": "gen-42",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": openai_usage(194, 2, cost=0.00214),
    }
    items = read(json.dumps(body, indent=1).encode())
    assert items == [Reasoning("hm"), Text("Hi"), UsageItem(194, 2, 0, 0, 2140, "gen-42"), STOP]


@pytest.mark.parametrize("keys", [["reasoning"], ["reasoning_content"], ["reasoning", "reasoning_content"]])
def test_thinking_is_shown_once_under_either_name_and_kept_out_of_the_answer(keys: list[str]) -> None:
    items = play(scripts.vllm_reasoning(["I ", "think"], ["so", "."], *keys))
    assert (thought_of(items), text_of(items)) == ("I think", "so.")
    assert isinstance(items[0], Reasoning)  # at once, so the first-token time is right


def test_content_as_a_list_of_parts_is_split_and_unknown_parts_are_left_out() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm "}]},
        {"type": "thinking", "thinking": "well"},
        {"type": "hologram", "data": "?"},
        {"type": "text", "text": "Yes"},
        7,
    ]
    items = play([*events(chunk({"content": parts})), *openai_end()])
    assert (thought_of(items), text_of(items)) == ("hm well", "Yes")


def test_indentation_and_blank_lines_survive_exactly() -> None:
    tokens = ["def f():", "\n", "    ", "if x:", "\n", "\n", "        ", "\treturn  1", " ", "\n", "\r\n"]
    assert text_of(play(openai(*tokens))) == "".join(tokens)


def test_a_payload_over_two_data_lines_is_parsed_once() -> None:
    payload = json.dumps(chunk({"content": "ok"}))
    cut = payload.index('"choices"')
    stream = f"data: {payload[:cut]}\ndata: {payload[cut:]}\n\n".encode()
    assert text_of(read(stream + stream_bytes(openai_end()))) == "ok"


def test_malformed_keepalives_are_ignored_and_counted() -> None:
    reader = OpenAIStreamReader()
    stream = sse(": keepalive") + sse(chunk({"content": "a"})) + sse("{") + sse("[]") + sse("null") + sse('{"ping": 1}')
    items = reader.feed((stream + sse(chunk({}, "stop")) + sse("[DONE]")).encode())
    assert items == [Text("a"), STOP]
    assert reader.ignored_frames == 5


@pytest.mark.parametrize(
    "stream",
    [
        b"data: : keepalive\n\ndata: nonsense\n\n",
        b"upstream connect error or disconnect",
        b'{"choices": [{"mess',
        b"[]",
    ],
)
def test_a_stream_of_nothing_but_garbage_is_an_error(stream: bytes) -> None:
    assert last(read(stream)) == Fault("garbage", "what came is not a chat completion")


@pytest.mark.parametrize("stream", [b"", b"\n\n", b": keepalive\n\n", b"data: [DONE]\n\n"])
def test_an_answer_without_anything_in_it_is_no_finish(stream: bytes) -> None:
    fault = last(read(stream))
    assert isinstance(fault, Fault)
    assert fault.kind == "early"


def test_a_web_page_is_an_error_at_once() -> None:
    reader = OpenAIStreamReader()
    assert reader.feed(b"\n <!DOC") == [Fault("html", "a web page came instead of an answer")]
    assert reader.over


@pytest.mark.parametrize("done", [[], ["[DONE]"]])
@pytest.mark.parametrize("reason", [None, "", "error", "abort"])
def test_an_end_without_a_finish_reason_is_no_finish(reason: str | None, done: list[str]) -> None:
    items = play(events(chunk({"content": "half"}), chunk({}, reason), *done))
    assert text_of(items) == "half"
    assert isinstance(last(items), Fault)


def test_the_end_is_whole_without_done_and_without_the_last_blank_line() -> None:
    assert last(read(stream_bytes(events(chunk({"content": "a"}), chunk({}, "stop"))))) == STOP
    assert last(read(f"data: {json.dumps(chunk({'content': 'a'}, 'stop'))}".encode())) == STOP


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "content_filter"),
        ("SAFETY", "content_filter"),
        ("end_turn", "stop"),
        ("something_new", "stop"),
    ],
)
def test_finish_reasons_of_all_servers_become_ours(raw: str, reason: str) -> None:
    assert last(play(openai("a", finish=raw))) == FinishItem(reason, raw)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (
            {"code": 502, "message": "down", "metadata": {"provider_name": "P"}},
            Fault("said", "down (P)", 502, "502"),
        ),
        ({"code": "429", "message": "slow", "type": "rate_limit"}, Fault("said", "slow", 429, "rate_limit")),
        ({"code": "server_error", "message": "x"}, Fault("said", "x", None, "server_error")),
        ("plain words", Fault("said", "plain words")),
        ({}, None),
        (None, None),
    ],
)
def test_an_error_object_in_a_stream_is_a_fault_after_what_was_said(error: object, fault: Fault | None) -> None:
    items = play(events(chunk({"content": "half"}), {"error": error, "choices": []}, chunk({}, "stop")))
    assert text_of(items) == "half"
    assert last(items) == (fault or STOP)


def test_vllm_and_openrouter_report_errors_in_their_own_forms() -> None:
    vllm = {"object": "error", "message": "bad", "type": "BadRequestError", "code": 400}
    assert last(play(events(vllm))) == Fault("said", "bad", 400, "BadRequestError")
    fault = last(play(scripts.openrouter_error_midway("half", code="server_error")))
    assert fault == Fault("said", "Provider disconnected unexpectedly (Scripted)", None, "server_error")
    inner = {"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 503, "message": "busy"}}
    assert last(play(events({"choices": [inner]}))) == Fault("said", "busy", 503, "503")
    assert last(read(b'{"error": {"message": "no", "code": 401}}')) == Fault("said", "no", 401, "401")


def test_an_error_after_the_finish_does_not_undo_the_answer() -> None:
    assert play(events(chunk({"content": "a"}, "stop"), {"error": "late"})) == [Text("a"), STOP]


def test_usage_known_before_a_fault_is_still_reported() -> None:
    items = play(events(chunk({"content": "a"}, usage=openai_usage(7, 1))))
    assert items[1] == UsageItem(7, 1, generation_id="chatcmpl-1")
    assert isinstance(last(items), Fault)


def test_only_the_first_choice_is_read_and_the_others_are_counted() -> None:
    reader = OpenAIStreamReader()
    both = [{"index": i, "delta": {"content": "ab"[i]}, "finish_reason": None} for i in (1, 0)]
    items = reader.feed(stream_bytes([*events({"choices": [*both, "odd"]}), *openai_end()]))
    assert (text_of(items), reader.ignored_choices) == ("a", 2)


def test_nul_and_lone_surrogates_are_replaced_and_a_pair_cut_in_two_deltas_is_joined() -> None:
    frames = [{"choices": [{"delta": {"content": text}}]} for text in ("a\0", "\ud83d", "\ude00", "\ud83d")]
    stream = "".join(f"data: {json.dumps(frame)}\n\n" for frame in frames)
    assert "\\ud83d" in stream
    assert text_of(read(stream.encode() + stream_bytes(openai_end()))) == "a\ufffd😀\ufffd"


def test_a_line_over_the_limit_is_a_fault_after_what_was_whole() -> None:
    reader = OpenAIStreamReader(max_line_bytes=1000)
    items = reader.feed(sse(chunk({"content": "a"})).encode() + b"data: " + b"x" * 2000)
    assert items == [Text("a"), Fault("too_long", "one line of the answer is too long to be read")]
    body = OpenAIStreamReader(max_line_bytes=1000)
    assert body.feed(b"{" + b" " * 2000) == [Fault("too_long", "one line of the answer is too long to be read")]


def test_a_refusal_is_the_answer() -> None:
    assert text_of(play([*events(chunk({"refusal": "I cannot."})), *openai_end()])) == "I cannot."


# ── thinking in tags ──────────────────────────────────────────────────────


def test_thinking_in_tags_is_folded_away_wherever_the_tag_is_cut() -> None:
    items = play(openai("<thi", "nk>rea", "son</", "think>", "\n\nanswer"))
    assert (thought_of(items), text_of(items)) == ("reason", "answer")


def test_only_a_closing_tag_is_enough_for_a_model_that_starts_in_reasoning() -> None:
    items = play(openai("rea", "son", "</thin", "k>", "answer"), starts=True)
    assert (thought_of(items), text_of(items)) == ("reason", "answer")


def test_a_server_that_separates_the_thinking_itself_streams_the_answer_as_text() -> None:
    items = play(scripts.vllm_reasoning(["hm"], ["an", "swer"], "reasoning"), starts=True)
    assert items[:3] == [Reasoning("hm"), Text("an"), Text("swer")]


def test_an_unclosed_tag_still_shows_the_text() -> None:
    assert text_of(play(openai("<think>", "all of it"))) == "all of it"


def test_a_closing_tag_that_closes_nothing_is_reported() -> None:
    reader = OpenAIStreamReader()
    reader.feed(stream_bytes(openai("reason", "</think>answer")))
    assert reader.stray_closings == 1
