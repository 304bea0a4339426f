"""Ollama's own /api/chat. Unlike its /v1 it takes the window (`num_ctx`) and how long the model stays loaded.

Ollama cuts a prompt that is over its window, from the beginning and without a word. An answer to a cut prompt is
told by its token count and becomes `ContextTooLong`, as the 400 of other models on the same server does.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, aclosing
from typing import Any

import httpx

from routing.backends.config import BackendConfig
from routing.backends.errors_map import NETWORK_ERRORS, SERVER, from_exception, from_status
from routing.backends.ollama_stream import OllamaStreamReader
from routing.backends.streaming import KEEPALIVE_S, Clock, guard_policy, read_answer
from routing.types import BackendEvent, Finish, ModelCall
from stream_site.errors import ContextTooLong

# A prompt was cut when the server counts fewer than this part of the estimate, and at least so many tokens fewer.
# Estimates by characters are wrong by less on prose; Ollama's cut leaves about half a window.
CUT_FRACTION = 0.6
CUT_TOKENS = 256
MAX_ERROR_BODY = 64 * 1024


class OllamaBackend:
    """One Ollama server.

    `ModelCall.extra`: `prompt_tokens_estimate` (int; without it only a full window is noticed), `num_ctx` (else the
    model's window), `think` (bool or level), `tools`, `top_p`, `seed`, `stop`, `starts_in_reasoning`.
    """

    def __init__(self, config: BackendConfig) -> None:
        self.tier = config.tier
        self._config = config
        self._client: httpx.AsyncClient | None = None

    async def warm(self) -> None:
        """Make the client."""
        self._connect()

    async def close(self) -> None:
        """Close pooled connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def stream(self, call: ModelCall) -> AsyncGenerator[BackendEvent, None]:
        """Yield the events of one answer. Raises `UpstreamError`; `AccessError` if it may not leave campus."""
        guard_policy(self.tier, call)
        clock = Clock(self._config)
        estimate = _int(call.extra, "prompt_tokens_estimate")
        reader = OllamaStreamReader(
            starts_in_reasoning=call.extra.get("starts_in_reasoning") is True, prompt_estimate=estimate
        )
        try:
            async with AsyncExitStack() as stack:
                request = self._connect().stream("POST", "api/chat", json=self._body(call))
                response = await clock.wait(stack.enter_async_context(request))
                clock.headers_seen = True
                if response.status_code != 200:
                    body = await clock.wait(_read_some(response))
                    raise from_status(response.status_code, response.headers, body, self.tier)
                async with aclosing(read_answer(response.aiter_bytes(), reader, clock, self.tier)) as events:
                    async for event in events:
                        if isinstance(event, Finish):
                            self._check_not_cut(reader.prompt_tokens, estimate, _window(call))
                        yield event
        except NETWORK_ERRORS as error:
            raise from_exception(error, self.tier, began=clock.headers_seen) from error

    def _connect(self) -> httpx.AsyncClient:
        if self._client is None:
            config = self._config
            headers = {"Accept-Encoding": "identity", **config.extra_headers}
            if config.api_key:
                headers["Authorization"] = f"Bearer {config.api_key}"
            self._client = httpx.AsyncClient(
                base_url=config.base_url.rstrip("/") + "/",
                headers=headers,
                limits=httpx.Limits(
                    max_connections=config.max_connections, max_keepalive_connections=50, keepalive_expiry=KEEPALIVE_S
                ),
                timeout=httpx.Timeout(None, connect=config.timeouts.connect_s, pool=config.timeouts.connect_s),
                follow_redirects=False,
            )
        return self._client

    def _body(self, call: ModelCall) -> dict[str, Any]:
        options: dict[str, Any] = {"num_ctx": _window(call), "num_predict": call.max_tokens}
        if call.temperature is not None:
            options["temperature"] = call.temperature
        options.update({name: call.extra[name] for name in ("top_p", "seed", "stop") if name in call.extra})
        body: dict[str, Any] = {
            "model": call.model.name,
            "messages": [{"role": message.role, "content": message.text} for message in call.messages],
            "stream": True,
            "options": options,
        }
        if self._config.keep_alive is not None:
            body["keep_alive"] = self._config.keep_alive
        body.update({name: call.extra[name] for name in ("think", "tools") if name in call.extra})
        return body

    def _check_not_cut(self, counted: int, estimate: int, window: int) -> None:
        """Raise `ContextTooLong` when the counted prompt tokens show that the prompt was cut or left no room."""
        fewer = estimate - counted
        cut = counted > 0 and estimate > 0 and fewer >= CUT_TOKENS and counted < estimate * CUT_FRACTION
        if cut or counted >= window > 0:
            expected = f" of about {estimate:,}" if cut else ""
            raise ContextTooLong(
                f"{SERVER[self.tier]} read only {counted:,}{expected} tokens of the conversation and left out the "
                "beginning, so its answer cannot be trusted.",
                kept="The question and what was answered are saved.",
                upstream_status=200,
            )


def _window(call: ModelCall) -> int:
    return _int(call.extra, "num_ctx") or call.model.window


def _int(extra: Mapping[str, Any], name: str) -> int:
    value = extra.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


async def _read_some(response: httpx.Response) -> str:
    """Return the beginning of an error body."""
    body = bytearray()
    async for piece in response.aiter_bytes():
        body += piece
        if len(body) >= MAX_ERROR_BODY:
            break
    return bytes(body).decode("utf-8", "replace")
