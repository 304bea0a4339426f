"""The HTTP backends, each with the scripts of its server's form, so that one test holds them all to the contract."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from typing import Any

from routing.backends.config import BackendConfig, Timeouts
from routing.backends.ollama import OllamaBackend
from routing.backends.openai_compat import OpenAICompatBackend
from routing.types import BackendEvent, Message, ModelCall, ModelSpec, ReasoningDelta, TextDelta, Tier
from stream_site.errors import StreamError
from tests.fakes import scripts
from tests.fakes.formats import chunk, ndjson, ollama
from tests.fakes.scripts import Steps
from tests.fixtures_upstream import UpstreamControl

QUICK = Timeouts(connect_s=20, first_byte_s=20, between_bytes_s=20, total_s=60)  # generous: tests share machines
AnyBackend = OpenAICompatBackend | OllamaBackend


@dataclass(frozen=True)
class Dialect:
    """One backend. `path` is where it sends chats."""

    name: str
    tier: Tier
    path: str
    is_ollama: bool = False

    def backend(self, upstream: UpstreamControl, **changes: Any) -> AnyBackend:
        """Return the backend, pointed at the scripted upstream."""
        url = upstream.url if self.is_ollama else upstream.openai_url
        config = BackendConfig(tier=self.tier, base_url=url, api_key="sk-secret-0123456789", timeouts=QUICK)
        config = replace(config, **changes)
        return OllamaBackend(config) if self.is_ollama else OpenAICompatBackend(config)

    def answer(self, *texts: str, finish: str = "stop") -> Steps:
        if self.is_ollama:
            return scripts.ollama_chat(*texts, reason=finish)
        return (
            scripts.openrouter(*texts)
            if self.tier is Tier.CLOUD and finish == "stop"
            else scripts.openai(*texts, finish=finish)
        )

    def bytewise(self, *texts: str) -> Steps:
        return scripts.ollama_bytewise(*texts) if self.is_ollama else scripts.openai_bytewise(*texts)

    def part(self, *texts: str) -> Steps:
        """Return an answer without its end."""
        if self.is_ollama:
            return [scripts.NDJSON_HEAD, *({"send": ndjson(ollama(text))} for text in texts)]
        return scripts.events(*(chunk({"content": text}) for text in texts))

    def thought(self, thought: str, text: str) -> Steps:
        if self.is_ollama:
            return scripts.ollama_chat(text, thoughts=(thought,))
        return scripts.vllm_reasoning([thought], [text], "reasoning")

    def error_midway(self, *texts: str) -> Steps:
        return scripts.ollama_error_midway(*texts) if self.is_ollama else scripts.openrouter_error_midway(*texts)

    def numbered(self, count: int, rate: float) -> Steps:
        return scripts.numbered(count, rate, form="ollama" if self.is_ollama else "openai")

    def long_line(self, size: int) -> Steps:
        """Return "ok" and then one line that is too long."""
        return scripts.line_of(size, self.part("ok"))


LOCAL = Dialect("openai-local", Tier.LOCAL, "/v1/chat/completions")
CLOUD = Dialect("openai-cloud", Tier.CLOUD, "/v1/chat/completions")
OLLAMA = Dialect("ollama", Tier.LOCAL, "/api/chat", is_ollama=True)
ALL = (LOCAL, CLOUD, OLLAMA)


def call(tier: Tier = Tier.LOCAL, **changes: Any) -> ModelCall:
    """Return a call of one short question."""
    spec = ModelSpec(tier=tier, name="scripted", label="Scripted", window=4096, max_output=1024)
    return replace(
        ModelCall(model=spec, messages=(Message("system", "Be brief."), Message("user", "Hi?")), max_tokens=64),
        **changes,
    )


async def collect(stream: AsyncGenerator[BackendEvent, None]) -> list[BackendEvent]:
    return [event async for event in stream]


async def collect_until_error(
    stream: AsyncGenerator[BackendEvent, None],
) -> tuple[list[BackendEvent], StreamError | None]:
    """Return the events and the error that ended them."""
    events: list[BackendEvent] = []
    try:
        async for event in stream:
            events.append(event)
    except StreamError as error:
        return events, error
    return events, None


def text_of(events: list[BackendEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def thought_of(events: list[BackendEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))
