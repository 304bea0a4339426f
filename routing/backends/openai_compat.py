"""Any server with OpenAI's chat completions: llama.cpp, vLLM, Ollama's /v1 (tier local), OpenRouter (tier cloud).

The official client makes the request: it knows the API and names what is wrong with it. The bytes are read by
`hpc_worker.sse`: the client's own reader ends normally without a finish reason and dies on a malformed keepalive.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any

import httpx2

from hpc_worker.sse import OpenAIStreamReader
from routing.backends.config import BackendConfig
from routing.backends.errors_map import NETWORK_ERRORS, from_exception
from routing.backends.streaming import KEEPALIVE_S, Clock, guard_policy, read_answer
from routing.types import BackendEvent, ModelCall

if TYPE_CHECKING:
    from openai import AsyncOpenAI

# Parameters of the API that a caller may set through `ModelCall.extra`.
PASSED_ON = (
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "top_p",
    "stop",
    "seed",
    "response_format",
    "frequency_penalty",
    "presence_penalty",
    "reasoning_effort",
)


class OpenAICompatBackend:
    """One server. `ModelCall.extra`: parameters in `PASSED_ON`, and `starts_in_reasoning` (see `ThinkSplitter`)."""

    def __init__(self, config: BackendConfig) -> None:
        self.tier = config.tier
        self._config = config
        self._client: AsyncOpenAI | None = None

    async def warm(self) -> None:
        """Load the client library, which takes about a second, outside the event loop, and make the client."""
        await asyncio.to_thread(importlib.import_module, "openai")
        self._connect()

    async def close(self) -> None:
        """Close pooled connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def stream(self, call: ModelCall) -> AsyncGenerator[BackendEvent, None]:
        """Yield the events of one answer. Raises `UpstreamError`; `AccessError` if it may not leave campus."""
        guard_policy(self.tier, call)
        if self._client is None:
            await self.warm()
        import openai  # loaded by `warm`; at the top it would slow the start of every process

        foreign: tuple[type[Exception], ...] = (openai.OpenAIError, *NETWORK_ERRORS)
        clock = Clock(self._config)
        reader = OpenAIStreamReader(starts_in_reasoning=call.extra.get("starts_in_reasoning") is True)
        try:
            async with AsyncExitStack() as stack:
                request = self._connect().chat.completions.with_streaming_response.create(**self._body(call))
                response = await clock.wait(stack.enter_async_context(request))
                clock.headers_seen = True
                chunks = response.iter_bytes()
                async with aclosing(read_answer(chunks, reader, clock, self.tier)) as events:
                    async for event in events:
                        yield event
        except foreign as error:
            raise from_exception(error, self.tier, began=clock.headers_seen) from error

    def _connect(self) -> AsyncOpenAI:
        if self._client is None:
            import openai

            config = self._config
            limits = httpx2.Limits(
                max_connections=config.max_connections, max_keepalive_connections=50, keepalive_expiry=KEEPALIVE_S
            )
            # Only connecting is limited here; `Clock` limits the rest. No redirects: a question goes where it was
            # configured to go and nowhere else.
            timeout = httpx2.Timeout(None, connect=config.timeouts.connect_s, pool=config.timeouts.connect_s)
            headers: dict[str, Any] = {
                **dict.fromkeys(_headers_of_environment(), openai.omit),
                "Accept-Encoding": "identity",  # a compressed stream comes late and in lumps
                **({"Authorization": f"Bearer {config.api_key}"} if config.api_key else {}),
                **config.extra_headers,
            }
            self._client = openai.AsyncOpenAI(
                base_url=config.base_url,
                api_key=config.api_key or "none",
                max_retries=0,
                timeout=timeout,
                default_headers=headers,
                http_client=httpx2.AsyncClient(limits=limits, timeout=timeout, follow_redirects=False),
            )
        return self._client

    def _body(self, call: ModelCall) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": call.model.name,
            "messages": [{"role": message.role, "content": message.text} for message in call.messages],
            "stream": True,
            "stream_options": {"include_usage": True},
            self._config.max_tokens_param: call.max_tokens,
        }
        if not self._config.api_key:
            import openai

            body["extra_headers"] = {"Authorization": openai.omit}
        if call.temperature is not None:
            body["temperature"] = call.temperature
        body.update({name: call.extra[name] for name in PASSED_ON if name in call.extra})
        if self._config.include_usage_cost:
            body["extra_body"] = {"usage": {"include": True}}
        return body


def _headers_of_environment() -> list[str]:
    """Return the headers that the library would send because of OPENAI_* variables, which are meant for another server.

    Not Authorization: the library itself puts an explicit one first.
    """
    custom = (line.partition(":")[0].strip() for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n"))
    names = [name for name in custom if name and name.lower() != "authorization"]
    return ["OpenAI-Organization", "OpenAI-Project", *names]
