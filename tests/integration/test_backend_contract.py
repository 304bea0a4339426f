"""Every HTTP backend is held to the contract of routing/backends/base.py, over real sockets."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from routing.backends.config import Timeouts
from routing.types import DataPolicy, Finish, Message, TextDelta, UsageReport
from stream_site.errors import (
    AccessError,
    ContextTooLong,
    StreamBroken,
    UpstreamAuthError,
    UpstreamBusy,
    UpstreamError,
    UpstreamRefused,
    UpstreamTimeout,
)
from tests.fakes import scripts
from tests.fixtures_upstream import UpstreamControl
from tests.integration.dialects import ALL, AnyBackend, Dialect, call, collect, collect_until_error, text_of, thought_of

Make = Callable[..., AnyBackend]
WORDS = ("你好 🌍 é\n", "\n", "    ", "if x:\r\n", "\t\t", "end  ")


@pytest.fixture(params=ALL, ids=lambda dialect: dialect.name)
def dialect(request: pytest.FixtureRequest) -> Dialect:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
async def make(dialect: Dialect, upstream: UpstreamControl) -> AsyncIterator[Make]:
    """Make backends that are closed after the test."""
    made: list[AnyBackend] = []

    def new(**changes: Any) -> AnyBackend:
        made.append(dialect.backend(upstream, **changes))
        return made[-1]

    yield new
    for backend in made:
        await backend.close()


# ── what arrives ──────────────────────────────────────────────────────────


async def test_text_is_exact_then_usage_once_then_the_finish(
    dialect: Dialect, make: Make, upstream: UpstreamControl
) -> None:
    upstream.script(dialect.answer(*WORDS))
    events = await collect(make().stream(call()))
    assert text_of(events) == "".join(WORDS)
    assert [type(event) for event in events[-2:]] == [UsageReport, Finish]
    assert sum(isinstance(event, (UsageReport, Finish)) for event in events) == 2
    assert events[-1] == Finish("stop")


async def test_one_byte_per_write_gives_the_same_text(dialect: Dialect, make: Make, upstream: UpstreamControl) -> None:
    upstream.script(dialect.bytewise(*WORDS))
    events = await collect(make().stream(call()))
    assert (text_of(events), events[-1]) == ("".join(WORDS), Finish("stop"))


async def test_length_is_reported_as_length(dialect: Dialect, make: Make, upstream: UpstreamControl) -> None:
    upstream.script(dialect.answer("cut sho", finish="length"))
    assert (await collect(make().stream(call())))[-1] == Finish("length")


async def test_thinking_is_kept_apart(dialect: Dialect, make: Make, upstream: UpstreamControl) -> None:
    upstream.script(dialect.thought("hm", "yes"))
    upstream.script(dialect.answer("<thi", "nk>hm</think>", "yes"))
    backend = make()
    for _ in range(2):
        events = await collect(backend.stream(call()))
        assert (thought_of(events), text_of(events)) == ("hm", "yes")


async def test_a_model_that_starts_in_reasoning_can_be_flagged(
    dialect: Dialect, make: Make, upstream: UpstreamControl
) -> None:
    upstream.script(dialect.answer("hm</think>", "yes"))
    events = await collect(make().stream(call(extra={"starts_in_reasoning": True})))
    assert (thought_of(events), text_of(events)) == ("hm", "yes")


async def test_the_request_says_what_was_asked(dialect: Dialect, make: Make, upstream: UpstreamControl) -> None:
    asked = call(messages=(Message("system", "Be brief."), Message("user", "é🌍?")), temperature=0.5, max_tokens=9)
    events = await collect(make().stream(asked))
    assert isinstance(events[-1], Finish)
    request = upstream.last()
    assert (request["method"], request["path"]) == ("POST", dialect.path)
    assert request["headers"]["authorization"] == "Bearer sk-secret-0123456789"
    body = request["body"]
    assert body["model"] == "scripted"
    assert body["stream"] is True
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "é🌍?"}]
    assert (body.get("options") or body)["temperature"] == 0.5


async def test_connections_are_used_again(dialect: Dialect, make: Make, upstream: UpstreamControl) -> None:
    backend = make()
    await backend.warm()
    for _ in range(3):
        assert (await collect(backend.stream(call())))[-1] == Finish("stop")
    assert len(upstream.log()) == 3


async def test_many_answers_at_once_do_not_mix(dialect: Dialect, make: Make, upstream: UpstreamControl) -> None:
    backend = make()
    questions = [f"question-{n}" for n in range(60)]
    streams = (backend.stream(call(messages=(Message("user", question),))) for question in questions)
    answers = await asyncio.gather(*(collect(stream) for stream in streams))
    assert [text_of(events).split()[-1] for events in answers] == questions


# ── what breaks ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("end", [scripts.CUT, scripts.DROP, []], ids=["reset", "dropped", "ended"])
async def test_a_stream_that_ends_without_a_finish_is_broken_and_keeps_its_text(
    dialect: Dialect, make: Make, upstream: UpstreamControl, end: scripts.Steps
) -> None:
    upstream.script([*dialect.part("half ", "of it"), {"sleep": 0.05}, *end])
    events, error = await collect_until_error(make().stream(call()))
    assert text_of(events) == "half of it"
    assert isinstance(error, StreamBroken)
    assert error.kept == "What arrived is saved."


@pytest.mark.parametrize("texts", [(), ("half",)], ids=["before text", "after text"])
async def test_an_error_inside_the_stream_is_told_in_the_servers_words(
    dialect: Dialect, make: Make, upstream: UpstreamControl, texts: tuple[str, ...]
) -> None:
    upstream.script(dialect.error_midway(*texts))
    events, error = await collect_until_error(make().stream(call()))
    assert text_of(events) == "".join(texts)
    assert isinstance(error, UpstreamError)
    assert isinstance(error, StreamBroken) is bool(texts)
    said = "model runner has unexpectedly stopped" if dialect.is_ollama else "Provider disconnected unexpectedly"
    assert said in error.happened


@pytest.mark.parametrize("steps", [scripts.html_page(), scripts.raw("data: : keepalive\n\ndata: x\n\n")])
async def test_what_is_no_answer_is_an_error_although_its_status_is_200(
    dialect: Dialect, make: Make, upstream: UpstreamControl, steps: scripts.Steps
) -> None:
    upstream.script(steps)
    events, error = await collect_until_error(make().stream(call()))
    assert events == []
    assert isinstance(error, UpstreamError)
    assert "something else than an answer" in error.happened
    assert "Campus portal" not in error.happened


async def test_a_line_of_nine_million_bytes_is_refused_and_the_text_before_it_kept(
    dialect: Dialect, make: Make, upstream: UpstreamControl
) -> None:
    upstream.script(dialect.long_line(9_000_000))
    events, error = await collect_until_error(make().stream(call()))
    assert text_of(events) == "ok"
    assert isinstance(error, StreamBroken)
    assert "too long" in error.happened


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (400, {"error": {"message": "bad temperature"}}, UpstreamRefused),
        (404, {"error": "model 'scripted' not found"}, UpstreamRefused),
        (422, {"detail": "no"}, UpstreamRefused),
        (400, {"error": {"code": 400, "type": "exceed_context_size_error", "message": "n_ctx 10"}}, ContextTooLong),
        (400, {"error": "the input exceeds the context length of 4096"}, ContextTooLong),
        (413, {"error": {"message": "maximum context length is 10 tokens"}}, ContextTooLong),
        (401, {"error": {"message": "bad key sk-secret-0123456789"}}, UpstreamAuthError),
        (402, {"error": {"message": "Insufficient credits"}}, UpstreamAuthError),
        (403, {"error": {"message": "not for you"}}, UpstreamAuthError),
        (408, "", UpstreamBusy),
        (429, {"error": {"message": "slow down"}}, UpstreamBusy),
        (500, "<html><body>Internal <b>error</b></body></html>", UpstreamBusy),
        (502, "x" * 100_000, UpstreamBusy),
        (503, "no healthy upstream", UpstreamBusy),
        (302, "", UpstreamError),
    ],
)
async def test_every_status_becomes_an_error_in_bounded_words_without_the_key(
    make: Make, upstream: UpstreamControl, status: int, body: Any, kind: type[UpstreamError]
) -> None:
    upstream.script(scripts.status(status, body, retry_after="7", location="http://127.0.0.1:9/"))
    events, error = await collect_until_error(make().stream(call()))
    assert events == []
    assert type(error) is kind
    assert isinstance(error, UpstreamError)
    assert error.upstream_status == status
    assert len(error.happened) < 400
    assert "sk-secret" not in error.happened
    assert "<" not in error.happened
    assert error.retry_after_s == (7.0 if kind is UpstreamBusy else None)
    assert len(upstream.log()) == 1  # no hidden second attempt


async def test_a_server_that_is_not_there_is_named(dialect: Dialect, make: Make) -> None:
    events, error = await collect_until_error(make(base_url="http://127.0.0.1:9/v1").stream(call()))
    assert events == []
    assert type(error) is UpstreamError
    assert "cannot be reached" in error.happened


async def test_a_connection_reset_before_any_answer_is_no_broken_stream(make: Make, upstream: UpstreamControl) -> None:
    upstream.script(scripts.CUT)
    _, error = await collect_until_error(make().stream(call()))
    assert type(error) is UpstreamError
    assert "without an answer" in error.happened


# ── time ──────────────────────────────────────────────────────────────────

SHORT = Timeouts(connect_s=1, first_byte_s=0.3, between_bytes_s=0.3, total_s=5)


@pytest.mark.parametrize("place", ["headers", "first text", "middle"])
async def test_a_hang_is_ended_in_time_with_words_for_its_place(
    dialect: Dialect, make: Make, upstream: UpstreamControl, place: str
) -> None:
    steps, words = {
        "headers": (scripts.HANG, "did not react to the question within 0.3 s"),
        "first text": (scripts.HANG_AFTER_HEADERS, "took the question but sent no text within 0.3 s"),
        "middle": ([*dialect.part("half"), {"hang": True}], "stopped in the middle of the answer for 0.3 s"),
    }[place]
    backend = make(timeouts=SHORT)
    await backend.warm()
    upstream.script(steps)
    began = time.monotonic()
    events, error = await collect_until_error(backend.stream(call()))
    assert 0.25 < time.monotonic() - began < 2
    assert isinstance(error, UpstreamTimeout)
    assert words in error.happened
    assert text_of(events) == ("half" if place == "middle" else "")
    await asyncio.to_thread(upstream.wait_for, "disconnected", timeout_s=1)


async def test_a_connection_that_is_never_made_is_given_up_in_time(dialect: Dialect, make: Make) -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)  # one waiting connection fills the queue; the kernel then lets others wait
        for waiting in (first, second):
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        port = full.getsockname()[1]
        backend = make(base_url=f"http://127.0.0.1:{port}/v1", timeouts=Timeouts(connect_s=0.3, first_byte_s=20))
        await backend.warm()
        began = time.monotonic()
        _, error = await collect_until_error(backend.stream(call()))
    assert 0.25 < time.monotonic() - began < 5
    assert isinstance(error, UpstreamTimeout)
    assert "could not be reached in time" in error.happened


async def test_the_whole_answer_has_a_limit_that_no_trickle_extends(
    dialect: Dialect, make: Make, upstream: UpstreamControl
) -> None:
    upstream.script(dialect.numbered(1000, rate=50))
    backend = make(timeouts=Timeouts(connect_s=1, first_byte_s=1, between_bytes_s=1, total_s=0.6))
    await backend.warm()
    events, error = await collect_until_error(backend.stream(call()))
    assert text_of(events).startswith("0 1 2 ")
    assert isinstance(error, UpstreamTimeout)
    assert "did not end its answer within 0.6 s" in error.happened


@pytest.mark.parametrize("how", ["closed", "cancelled"])
async def test_leaving_early_ends_the_upstream_request_at_once(
    dialect: Dialect, make: Make, upstream: UpstreamControl, how: str
) -> None:
    upstream.script(dialect.numbered(4000, rate=200))
    backend = make()
    stream = backend.stream(call())
    async for event in stream:
        if isinstance(event, TextDelta):
            break
    if how == "closed":
        left = time.monotonic()
        await stream.aclose()
    else:
        task = asyncio.ensure_future(collect(stream))
        await asyncio.sleep(0.1)
        left = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    seen = await asyncio.to_thread(upstream.wait_for, "disconnected", timeout_s=1)
    assert seen - left < 1
    assert (await collect(backend.stream(call())))[-1] == Finish("stop")  # the pool still works


# ── policy ────────────────────────────────────────────────────────────────


async def test_campus_only_never_reaches_the_cloud(dialect: Dialect, make: Make, upstream: UpstreamControl) -> None:
    events, error = await collect_until_error(make().stream(call(data_policy=DataPolicy.CAMPUS_ONLY)))
    if dialect.tier.value == "cloud":
        assert isinstance(error, AccessError)
        assert upstream.log() == []
    else:
        assert (error, events[-1]) == (None, Finish("stop"))
