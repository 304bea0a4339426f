"""What only the OpenAI-compatible backend does: parameters, cost, tool calls, the client library's environment."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from routing.backends.config import BackendConfig, Timeouts
from routing.backends.openai_compat import OpenAICompatBackend
from routing.types import Finish, ReasoningDelta, Tier, ToolDelta, Usage, UsageReport
from stream_site.errors import StreamBroken
from tests.fakes import scripts
from tests.fakes.formats import chunk
from tests.fakes.scripts import events as sse_events
from tests.fakes.scripts import tool, tool_deltas
from tests.fixtures_upstream import UpstreamControl
from tests.integration.dialects import CLOUD, LOCAL, call, collect, collect_until_error, text_of


@pytest.fixture
async def backend(upstream: UpstreamControl) -> AsyncIterator[OpenAICompatBackend]:
    backend = LOCAL.backend(upstream)
    assert isinstance(backend, OpenAICompatBackend)
    yield backend
    await backend.close()


async def body_sent(upstream: UpstreamControl, **changes: Any) -> dict[str, Any]:
    made = CLOUD.backend(upstream, **changes)
    try:
        assert (await collect(made.stream(call(max_tokens=9))))[-1] == Finish("length")
    finally:
        await made.close()
    body: dict[str, Any] = upstream.last()["body"]
    return body


async def test_usage_is_always_asked_for_and_cost_only_where_it_is_known(upstream: UpstreamControl) -> None:
    body = await body_sent(upstream)
    assert body["stream_options"] == {"include_usage": True}
    assert "usage" not in body
    assert (await body_sent(upstream, include_usage_cost=True))["usage"] == {"include": True}


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_the_limit_is_sent_under_the_name_the_server_knows(upstream: UpstreamControl, name: str) -> None:
    body = await body_sent(upstream, max_tokens_param=name)
    assert {key: body[key] for key in body if key.startswith("max_")} == {name: 9}


async def test_extra_headers_are_sent_and_the_environment_of_the_library_is_not(
    upstream: UpstreamControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_BASE_URL", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "sk-meant-for-another")
    leak = "sk-meant-for-another"
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"X-Leak: {leak}\nAuthorization: Bearer {leak}")
    for key in ("", "sk-ours"):
        await body_sent(upstream, api_key=key, extra_headers={"X-Title": "STREAM"})
        headers = upstream.last()["headers"]
        assert headers["x-title"] == "STREAM"
        assert headers.get("authorization") == (f"Bearer {key}" if key else None)
        assert headers["accept-encoding"] == "identity"
        assert not [value for value in headers.values() if "another" in value]


async def test_openrouters_cost_and_details_are_reported_exactly(
    upstream: UpstreamControl, backend: OpenAICompatBackend
) -> None:
    upstream.script(scripts.openrouter("Hi", cost=0.00214))
    events = await collect(backend.stream(call()))
    assert events[-2] == UsageReport(Usage(194, 2, 100, 1, 2140, False, "gen-42"))


async def test_malformed_keepalives_do_not_end_the_stream(
    upstream: UpstreamControl, backend: OpenAICompatBackend
) -> None:
    keepalive = scripts.raw("data: : keepalive\n\n")
    upstream.script([*keepalive, *LOCAL.part("a"), *keepalive, *LOCAL.part("b"), *scripts.openai_end()])
    events = await collect(backend.stream(call()))
    assert (text_of(events), events[-1]) == ("ab", Finish("stop"))


async def test_keepalives_keep_a_slow_answer_alive(upstream: UpstreamControl) -> None:
    made = LOCAL.backend(upstream, timeouts=Timeouts(connect_s=1, first_byte_s=0.5, between_bytes_s=0.5, total_s=10))
    await made.warm()
    waiting: scripts.Steps = [{"sleep": 0.2}, {"comment": "OPENROUTER PROCESSING"}]
    upstream.script([*(waiting * 6), *scripts.openai("done")])
    assert text_of(await collect(made.stream(call()))) == "done"
    await made.close()


async def test_reasoning_comes_through_while_the_answer_is_still_empty(
    upstream: UpstreamControl, backend: OpenAICompatBackend
) -> None:
    thinking = sse_events(chunk({"content": "", "reasoning": "hm"}))
    upstream.script([*thinking, {"hang": True}])
    stream = backend.stream(call())
    assert await asyncio.wait_for(anext(stream), 5) == ReasoningDelta("hm")
    await stream.aclose()


async def test_parallel_tool_calls_without_index_are_two_calls(
    upstream: UpstreamControl, backend: OpenAICompatBackend
) -> None:
    upstream.script(tool_deltas([tool('{"x"', name="f", id="a"), tool("{}", name="g", id="b")], [tool(": 1}", id="a")]))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    events = await collect(backend.stream(call(extra={"tools": tools, "tool_choice": "auto", "unknown": 1})))
    pieces = [event for event in events if isinstance(event, ToolDelta)]
    assert pieces == [ToolDelta(0, "a", "f", '{"x"'), ToolDelta(1, "b", "g", "{}"), ToolDelta(0, "", "", ": 1}")]
    assert events[-1] == Finish("tool_calls")
    body = upstream.last()["body"]
    assert (body["tools"], body["tool_choice"]) == (tools, "auto")
    assert "unknown" not in body


async def test_a_stream_cut_inside_tool_arguments_is_broken(
    upstream: UpstreamControl, backend: OpenAICompatBackend
) -> None:
    upstream.script([*tool_deltas([tool('{"x', name="f", id="a")], finish=None), {"cut": True}])
    events, error = await collect_until_error(backend.stream(call()))
    assert isinstance(error, StreamBroken)
    assert not any(isinstance(event, Finish) for event in events)


@pytest.mark.parametrize("end", [scripts.HANG, scripts.CUT])
async def test_after_the_finish_a_lost_end_costs_only_the_usage(upstream: UpstreamControl, end: scripts.Steps) -> None:
    timeouts = Timeouts(connect_s=1, first_byte_s=5, between_bytes_s=0.4, total_s=10)
    made = LOCAL.backend(upstream, timeouts=timeouts)
    upstream.script([*LOCAL.part("whole"), *sse_events(chunk({}, "stop")), {"sleep": 0.05}, *end])
    events = await collect(made.stream(call()))
    assert (text_of(events), events[-1]) == ("whole", Finish("stop"))
    await made.close()


async def test_an_answer_in_one_piece_is_read_too(upstream: UpstreamControl, backend: OpenAICompatBackend) -> None:
    choice = {"index": 0, "message": {"content": "whole"}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "cost": 0.000001}
    upstream.script(scripts.status(200, {"id": "gen-1", "choices": [choice], "usage": usage}))
    events = await collect(backend.stream(call()))
    assert text_of(events) == "whole"
    assert events[1:] == [UsageReport(Usage(3, 1, cost_micro=1, generation_id="gen-1")), Finish("stop")]


def test_the_client_library_is_loaded_only_when_it_is_needed() -> None:
    code = "import sys, routing.backends.openai_compat; sys.exit('openai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_key_is_not_in_the_text_form_of_the_config() -> None:
    config = BackendConfig(Tier.CLOUD, "http://x", api_key="sk-secret", extra_headers={"Authorization": "sk-secret"})
    assert "sk-secret" not in repr(config)
