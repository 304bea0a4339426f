"""Stream one answer from the OpenAI-compatible model server on this node. Async edge.

Raises `ModelError` with a code and words for people; the words never hold the prompt or a key.

| code            | when                                              |
|-----------------|---------------------------------------------------|
| unreachable     | no connection, or it broke before the first byte  |
| timeout         | nothing came within the limits                    |
| refused         | 4xx: the request                                  |
| credentials     | 401, 403                                          |
| busy            | 408, 429, 5xx                                     |
| broken          | it broke in the middle                            |
| a `Fault`'s kind | the reader of the stream found no proper end     |
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import httpx

from hpc_worker.config import Settings
from hpc_worker.sse import Fault, Item, OpenAIStreamReader
from hpc_worker.waiting import within

CONNECT_TIMEOUT_S = 10.0
# What a request may say. The worker itself says model, stream and stream_options.
REQUEST_FIELDS = frozenset(
    {
        "frequency_penalty",
        "logit_bias",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "presence_penalty",
        "reasoning_effort",
        "response_format",
        "seed",
        "stop",
        "temperature",
        "tool_choice",
        "tools",
        "top_p",
        "chat_template_kwargs",
    }
)


class ModelError(Exception):
    """Raise when the model server gave no whole answer."""

    def __init__(self, code: str, words: str) -> None:
        super().__init__(f"{code}: {words}")
        self.code = code
        self.words = words


class ModelServer:
    """One pooled client of the model server."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
        if settings.model_api_key:
            headers["Authorization"] = f"Bearer {settings.model_api_key}"
        self._client = httpx.AsyncClient(
            headers=headers,
            # reads are bounded below, where the first byte may take longer than the others
            timeout=httpx.Timeout(CONNECT_TIMEOUT_S, read=None),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=settings.capacity),
            trust_env=False,  # the server is on this node: no proxy
            # reading the certificates takes longer than all else that a task does before it asks
            verify=settings.model_url.startswith("https:"),
        )

    async def close(self) -> None:
        """Close pooled connections."""
        await self._client.aclose()

    async def stream(self, request: Mapping[str, Any], name: str = "") -> AsyncGenerator[Item, None]:
        """Yield the items of one answer, the last a `FinishItem`. Closing the generator closes the HTTP stream.

        `name` is what the server's log calls the request, where it keeps one (vLLM: `--enable-request-id-headers`).
        """
        body = {name: value for name, value in request.items() if name in REQUEST_FIELDS}
        body |= {"model": self._settings.model_name, "stream": True, "stream_options": {"include_usage": True}}
        response = await self._send(body, {"X-Request-Id": name} if name else {})
        reader = OpenAIStreamReader()
        try:
            if response.status_code != 200:
                raise await _refusal(response)
            async with aclosing(self._bytes(response)) as chunks:
                async for data in chunks:
                    for item in _checked(reader.feed(data)):
                        yield item
                    if reader.over:
                        return
            for item in _checked(reader.close()):
                yield item
        finally:
            await response.aclose()

    async def _send(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> httpx.Response:
        url = f"{self._settings.model_url}/chat/completions"
        request = self._client.build_request("POST", url, json=body, headers=headers)
        try:
            return await within(self._client.send(request, stream=True), self._settings.first_byte_s)
        except asyncio.TimeoutError as error:
            raise ModelError("timeout", "The model server sent nothing in time.") from error
        except httpx.HTTPError as error:
            raise ModelError("unreachable", f"The model server did not answer ({type(error).__name__}).") from error

    async def _bytes(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        chunks = response.aiter_bytes()
        limit = self._settings.first_byte_s
        while True:
            try:
                data = await within(chunks.__anext__(), limit)
            except StopAsyncIteration:
                return
            except asyncio.TimeoutError as error:
                raise ModelError("timeout", f"The model was silent for {limit:.0f} s.") from error
            except httpx.HTTPError as error:
                raise ModelError("broken", f"The model's stream broke off ({type(error).__name__}).") from error
            limit = self._settings.between_bytes_s
            yield data


def _checked(items: list[Item]) -> list[Item]:
    if items and isinstance(items[-1], Fault):
        fault = items[-1]
        raise ModelError(fault.kind, fault.words[:500])
    return items


async def _refusal(response: httpx.Response) -> ModelError:
    status = response.status_code
    code = "credentials" if status in (401, 403) else "busy" if status in (408, 429) or status >= 500 else "refused"
    return ModelError(code, f"The model server answered with HTTP {status}.")
