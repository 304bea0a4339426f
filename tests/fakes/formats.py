"""The wire forms of model servers, as dictionaries and text. Shared by the scripted upstream and by the scripts."""

from __future__ import annotations

import json
from typing import Any

Json = dict[str, Any]


def sse(payload: Json | str) -> str:
    """Return one SSE event; text is sent as it is."""
    data = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    return f"data: {data}\n\n"


def chunk(delta: Json | None = None, finish: str | None = None, **more: Any) -> Json:
    """Return an OpenAI chat.completion.chunk; without delta and finish, one with empty `choices`."""
    choices = [] if delta is None and finish is None else [{"index": 0, "delta": delta or {}, "finish_reason": finish}]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    return {**head, "choices": choices, **more}


def openai_usage(prompt: int, completion: int, **more: Any) -> Json:
    """Return an OpenAI `usage` object."""
    total = prompt + completion
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total, **more}


def ndjson(payload: Json) -> str:
    """Return one line of Ollama's stream."""
    return json.dumps(payload, ensure_ascii=False) + "\n"


def ollama(content: str = "", **message: Any) -> Json:
    """Return one object of Ollama's /api/chat stream."""
    return {
        "model": "scripted",
        "created_at": "2025-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": content, **message},
        "done": False,
    }


def ollama_done(prompt: int | None, completion: int, reason: str = "stop") -> Json:
    """Return the last object of Ollama's /api/chat stream; it leaves out a count of 0."""
    counts = {"prompt_eval_count": prompt, "eval_count": completion}
    return {**ollama(), "done": True, "done_reason": reason, **{k: v for k, v in counts.items() if v is not None}}
