"""What only the Ollama backend does: the window, keeping the model loaded, noticing a cut prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from routing.backends.ollama import OllamaBackend
from routing.types import Finish, ReasoningDelta, ToolDelta, Usage, UsageReport
from stream_site.errors import ContextTooLong, StreamBroken, UpstreamRefused
from tests.fakes import scripts
from tests.fakes.formats import ndjson, ollama, ollama_done
from tests.fakes.scripts import ollama_chat
from tests.fixtures_upstream import UpstreamControl
from tests.integration.dialects import OLLAMA, call, collect, collect_until_error, text_of


@pytest.fixture
async def backend(upstream: UpstreamControl) -> AsyncIterator[OllamaBackend]:
    backend = OLLAMA.backend(upstream, keep_alive="30m")
    assert isinstance(backend, OllamaBackend)
    yield backend
    await backend.close()


async def test_window_limit_and_keep_alive_are_sent(upstream: UpstreamControl, backend: OllamaBackend) -> None:
    await collect(backend.stream(call(max_tokens=9, temperature=0.0, extra={"think": False, "top_p": 0.9})))
    body = upstream.last()["body"]
    assert body["options"] == {"num_ctx": 4096, "num_predict": 9, "temperature": 0.0, "top_p": 0.9}
    assert (body["keep_alive"], body["think"], body["stream"]) == ("30m", False, True)


@pytest.mark.parametrize(("keep_alive", "sent"), [(-1, {"keep_alive": -1}), (0, {"keep_alive": 0}), (None, {})])
async def test_keep_alive_is_sent_as_configured_or_not_at_all(
    upstream: UpstreamControl, keep_alive: int | None, sent: dict[str, int]
) -> None:
    made = OLLAMA.backend(upstream, keep_alive=keep_alive)
    await collect(made.stream(call()))
    body = upstream.last()["body"]
    assert {key: body[key] for key in body if key in ("keep_alive", "think")} == sent
    await made.close()


async def test_usage_is_what_ollama_counted(upstream: UpstreamControl, backend: OllamaBackend) -> None:
    upstream.script(ollama_chat("a", "b", prompt=26))
    assert (await collect(backend.stream(call())))[-2] == UsageReport(Usage(prompt=26, completion=2))


async def test_a_prompt_from_the_cache_is_counted_by_estimate(
    upstream: UpstreamControl, backend: OllamaBackend
) -> None:
    upstream.script(ollama_chat("a", prompt=None))
    events = await collect(backend.stream(call(extra={"prompt_tokens_estimate": 40})))
    assert events[-2] == UsageReport(Usage(prompt=40, completion=1, estimated=True))


async def test_thinking_and_tool_calls_are_read(upstream: UpstreamControl, backend: OllamaBackend) -> None:
    calls = [{"function": {"name": name, "arguments": {"city": "Köln", "x": 1.5}}} for name in ("f", "f")]
    lines = [ollama(thinking="hm"), ollama(tool_calls=calls), ollama_done(7, 3)]
    upstream.script([scripts.NDJSON_HEAD, *({"send": ndjson(line)} for line in lines)])
    events = await collect(backend.stream(call()))
    arguments = '{"city": "Köln", "x": 1.5}'
    assert events[:3] == [
        ReasoningDelta("hm"),
        ToolDelta(0, "call_0", "f", arguments),
        ToolDelta(1, "call_1", "f", arguments),
    ]
    assert events[-1] == Finish("tool_calls")


@pytest.mark.parametrize(
    "steps",
    [
        scripts.status(400, {"error": "input length exceeds the context length 4096"}),
        ollama_chat("an answer to half a question", prompt=2050),
        ollama_chat("an answer to a full window", prompt=4096),
    ],
    ids=["refused with 400", "cut without a word", "window full"],
)
async def test_a_prompt_over_the_window_ends_in_one_error_however_ollama_takes_it(
    upstream: UpstreamControl, backend: OllamaBackend, steps: scripts.Steps
) -> None:
    upstream.script(steps)
    events, error = await collect_until_error(backend.stream(call(extra={"prompt_tokens_estimate": 8000})))
    assert isinstance(error, ContextTooLong)
    assert not any(isinstance(event, Finish) for event in events)
    assert "larger window" in error.todo


@pytest.mark.parametrize(("estimate", "counted"), [(1000, 700), (300, 60), (50, 4000), (0, 100)])
async def test_an_estimate_that_is_a_little_wrong_is_no_cut_prompt(
    upstream: UpstreamControl, backend: OllamaBackend, estimate: int, counted: int
) -> None:
    upstream.script(ollama_chat("fine", prompt=counted))
    events = await collect(backend.stream(call(extra={"prompt_tokens_estimate": estimate})))
    assert events[-1] == Finish("stop")


async def test_loading_a_model_is_not_an_answer(upstream: UpstreamControl, backend: OllamaBackend) -> None:
    upstream.script(ollama_chat(reason="load"))
    _, error = await collect_until_error(backend.stream(call()))
    assert isinstance(error, StreamBroken)
    assert "loaded but gave no answer" in error.happened


async def test_a_missing_model_is_told_in_ollamas_words(upstream: UpstreamControl, backend: OllamaBackend) -> None:
    upstream.script(scripts.status(404, {"error": "model 'scripted' not found, try pulling it first"}))
    _, error = await collect_until_error(backend.stream(call()))
    assert isinstance(error, UpstreamRefused)
    assert "try pulling it first" in error.happened


@pytest.mark.parametrize("junk", ["\n\n", "not json\n", "[1]\n", '{"status": "pulling"}\n'])
async def test_lines_that_are_no_answer_are_ignored(
    upstream: UpstreamControl, backend: OllamaBackend, junk: str
) -> None:
    steps: list[dict[str, Any]] = ollama_chat("a", "b")
    upstream.script([*steps[:2], {"send": junk}, *steps[2:]])
    events = await collect(backend.stream(call()))
    assert (text_of(events), events[-1]) == ("ab", Finish("stop"))
