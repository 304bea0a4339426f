"""Scripts for the scripted upstream: what model servers really send, good and bad. Each returns a list of steps."""

from __future__ import annotations

from typing import Any

from tests.fakes.formats import Json, chunk, ndjson, ollama, ollama_done, openai_usage, sse

Steps = list[dict[str, Any]]

NDJSON_HEAD: dict[str, Any] = {"begin": {"headers": {"content-type": "application/x-ndjson"}}}


def stream_bytes(steps: Steps) -> bytes:
    """Return what a client reads of `steps`, without the waits."""
    out = b""
    for step in steps:
        if "send_hex" in step:
            out += bytes.fromhex(step["send_hex"])
        elif "comment" in step:
            out += f": {step['comment']}\n\n".encode()
        else:
            out += step.get("send", step.get("bytewise", "")).encode("utf-8", "surrogatepass")
    return out


def events(*payloads: Json | str) -> Steps:
    """Return one write per SSE event."""
    return [{"send": sse(payload)} for payload in payloads]


def raw(text: str) -> Steps:
    return [{"send": text}]


# ── OpenAI's form ─────────────────────────────────────────────────────────


def openai(*texts: str, finish: str = "stop", usage: Json | None = None) -> Steps:
    """Return a well-behaved stream: role, texts, finish, usage with empty `choices`, [DONE]."""
    return [
        *events(chunk({"role": "assistant", "content": ""})),
        *events(*(chunk({"content": text}) for text in texts)),
        *openai_end(finish, usage),
    ]


def openai_end(finish: str = "stop", usage: Json | None = None) -> Steps:
    return events(chunk({}, finish), chunk(usage=usage or openai_usage(7, 3)), "[DONE]")


def openai_bytewise(*texts: str) -> Steps:
    """Return `openai` with every byte in a write of its own."""
    return [{"bytewise": step["send"]} for step in openai(*texts)]


def openai_usage_in_every_chunk(*texts: str) -> Steps:
    """Return a stream with cumulative usage, as vLLM's `continuous_usage_stats`."""
    counted = [chunk({"content": t}, usage=openai_usage(7, n)) for n, t in enumerate(texts, 1)]
    return events(*counted, chunk({}, "stop", usage=openai_usage(7, len(texts))), "[DONE]")


def vllm_reasoning(thoughts: list[str], texts: list[str], *keys: str) -> Steps:
    """Return a stream whose thinking comes in the delta fields `keys`, with content "" as vLLM sends it."""
    thinking = [chunk({"content": "", **dict.fromkeys(keys, thought)}) for thought in thoughts]
    return [*events(*thinking), *events(*(chunk({"content": text}) for text in texts)), *openai_end()]


def openrouter(*texts: str, cost: float | str = 0.00214) -> Steps:
    """Return OpenRouter's stream: comments while it waits, and its cost in the usage."""
    usage = openai_usage(
        194,
        2,
        cost=cost,
        prompt_tokens_details={"cached_tokens": 100},
        completion_tokens_details={"reasoning_tokens": 1},
    )
    waiting: Steps = [{"comment": "OPENROUTER PROCESSING"}] * 2
    texts_sent = events(*(chunk({"content": text}, id="gen-42", provider="Scripted") for text in texts))
    return [*waiting, *texts_sent, *events(chunk({}, "stop", id="gen-42"), chunk(id="gen-42", usage=usage), "[DONE]")]


def openrouter_error_midway(*texts: str, code: int | str = 502) -> Steps:
    """Return OpenRouter's error inside a stream that began with status 200."""
    error = {"code": code, "message": "Provider disconnected unexpectedly", "metadata": {"provider_name": "Scripted"}}
    return events(*(chunk({"content": t}) for t in texts), chunk({"content": ""}, "error", error=error))


def tool_deltas(*deltas: list[Json], finish: str | None = "tool_calls") -> Steps:
    """Return a stream of `delta.tool_calls`; `finish` None: it breaks off."""
    return [*events(*(chunk({"tool_calls": d}) for d in deltas)), *(openai_end(finish) if finish else [])]


def tool(arguments: str | Json, *, name: str = "", id: str = "", index: int | None = None) -> Json:
    """Return one entry of `delta.tool_calls` with only the fields given."""
    function: Json = {"arguments": arguments, **({"name": name} if name else {})}
    head: Json = {**({"id": id} if id else {}), **({"index": index} if index is not None else {})}
    return {**head, "type": "function", "function": function}


# ── Ollama's form ─────────────────────────────────────────────────────────


def ollama_chat(*texts: str, prompt: int | None = 7, reason: str = "stop", thoughts: tuple[str, ...] = ()) -> Steps:
    """Return Ollama's /api/chat stream."""
    lines = [ollama(thinking=thought) for thought in thoughts] + [ollama(text) for text in texts]
    return [NDJSON_HEAD, *({"send": ndjson(x)} for x in [*lines, ollama_done(prompt, len(texts), reason)])]


def ollama_bytewise(*texts: str) -> Steps:
    return [NDJSON_HEAD, *({"bytewise": step["send"]} for step in ollama_chat(*texts)[1:])]


def ollama_error_midway(*texts: str, error: str = "model runner has unexpectedly stopped") -> Steps:
    return [NDJSON_HEAD, *({"send": ndjson(ollama(text))} for text in texts), {"send": ndjson({"error": error})}]


# ── what goes wrong ───────────────────────────────────────────────────────


def status(code: int, body: Json | str = "", **headers: str) -> Steps:
    """Return a whole answer; `retry_after` in `headers` becomes Retry-After."""
    return [{"status": code, "body": body, "headers": {k.replace("_", "-"): v for k, v in headers.items()}}]


def html_page() -> Steps:
    page = "<!DOCTYPE html><html><head><title>Sign in</title></head><body>Campus portal</body></html>"
    return [{"begin": {"headers": {"content-type": "text/html"}}}, {"send": page}]


def line_of(size: int, before: Steps) -> Steps:
    """Return one line of `size` bytes after `before`, in writes of at most 1 MiB."""
    piece = 1024 * 1024
    sizes = [piece] * (size // piece) + [size % piece]
    return [*before, {"send": "data: "}, *({"big": {"char": "x", "size": n}} for n in sizes), {"hang": True}]


HANG: Steps = [{"hang": True}]
HANG_AFTER_HEADERS: Steps = [{"begin": {}}, {"hang": True}]
CUT: Steps = [{"cut": True}]
DROP: Steps = [{"drop": True}]


def numbered(count: int, rate: float, *, form: str = "openai", prefill_s: float = 0.0) -> Steps:
    """Return the tokens "0 ", "1 ", ... at `rate` per second, then a proper end."""
    spec = {"tokens": {"format": form, "count": count, "rate": rate, "prefill_s": prefill_s}}
    if form == "ollama":
        return [NDJSON_HEAD, spec, {"send": ndjson(ollama_done(7, count))}]
    return [spec, *openai_end(usage=openai_usage(7, count))]
