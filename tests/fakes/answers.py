"""What the scripted upstream answers when it has no script: a short deterministic text, in the form asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from tests.fakes.formats import Json, chunk, ndjson, ollama, ollama_done, openai_usage, sse

MODELS = ("demo-small", "demo-large")


@dataclass(frozen=True)
class Speed:
    """Tokens per second, and seconds before the first."""

    rate: float = 200.0
    prefill_s: float = 0.0


@dataclass(frozen=True)
class Stream:
    content_type: str
    pieces: list[str]


class OpenAIForm:
    content_type = "text/event-stream"

    @staticmethod
    def text(token: str) -> str:
        return sse(chunk({"content": token}))

    @staticmethod
    def end(prompt: int, completion: int, reason: str) -> list[str]:
        usage = chunk(usage=openai_usage(prompt, completion))
        return [sse(chunk({}, reason)), sse(usage), sse("[DONE]")]


class OllamaForm:
    content_type = "application/x-ndjson"

    @staticmethod
    def text(token: str) -> str:
        return ndjson(ollama(token))

    @staticmethod
    def end(prompt: int, completion: int, reason: str) -> list[str]:
        return [ndjson(ollama_done(prompt, completion, reason))]


FORMATS: dict[str, type[OpenAIForm] | type[OllamaForm]] = {"openai": OpenAIForm, "ollama": OllamaForm}


def answer(path: str, body: Any) -> Stream | Json:
    """Return the answer to a chat request: a stream, or one object when `stream` is false."""
    body = body if isinstance(body, dict) else {}
    is_ollama = path == "/api/chat"
    form = FORMATS["ollama" if is_ollama else "openai"]
    tokens = _tokens(body)
    limit = _limit(body)
    reason = "length" if len(tokens) > limit else "stop"
    tokens = tokens[:limit]
    prompt = sum(len(_text(message)) for message in body.get("messages", ())) // 4 + 1
    if body.get("stream", is_ollama):
        pieces = [form.text(token) for token in tokens] + form.end(prompt, len(tokens), reason)
        return Stream(form.content_type, pieces)
    if is_ollama:
        return {
            **ollama_done(prompt, len(tokens), reason),
            "message": {"role": "assistant", "content": "".join(tokens)},
        }
    message = {"role": "assistant", "content": "".join(tokens)}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    usage = openai_usage(prompt, len(tokens))
    return {**chunk(), "object": "chat.completion", "choices": [choice], "usage": usage}


def page(path: str) -> tuple[int, Json]:
    """Return (status, JSON) for the other addresses of model servers."""
    if path == "/v1/models":
        return 200, {"object": "list", "data": [{"id": name, "object": "model"} for name in MODELS]}
    if path == "/api/tags":
        return 200, {"models": [{"name": name, "model": name} for name in MODELS]}
    if path == "/api/version":
        return 200, {"version": "0.0.0-scripted"}
    if path == "/health":
        return 200, {"status": "ok"}
    return 404, {"error": {"message": f"nothing at {path[:80]}", "code": 404}}


def _tokens(body: Json) -> list[str]:
    asked = next((_text(m) for m in reversed(body.get("messages", ())) if m.get("role") == "user"), "")
    words = " ".join(asked.split()[:40])
    return re.findall(r"\S+\s*", f"This is a scripted answer from {body.get('model', 'a model')}. You said: {words}")


def _limit(body: Json) -> int:
    options = body.get("options") or {}
    limit = body.get("max_completion_tokens") or body.get("max_tokens") or options.get("num_predict") or 10**6
    return int(limit) if int(limit) > 0 else 10**6


def _text(message: Json) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
