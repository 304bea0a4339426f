"""Read a streamed chat completion from bytes: OpenAI, OpenRouter, vLLM, llama.cpp and Ollama's /v1. Pure, Python 3.9.

| what comes                                         | what is made of it                                         |
|----------------------------------------------------|------------------------------------------------------------|
| `delta.content`, text or list of parts             | `Text`; thinking parts and `<think>` blocks are `Reasoning` |
| `delta.reasoning`, `delta.reasoning_content`       | `Reasoning`, once when both come                           |
| `delta.tool_calls`                                 | `ToolPiece`, see `hpc_worker.tool_calls`                    |
| `usage`, in any chunk, with or without choices     | the last one, as one `UsageItem` before the end            |
| `finish_reason`                                    | `FinishItem`, always last                                   |
| an error object, a web page, garbage, a silent end | `Fault`, always last                                        |
| a frame that is no JSON object, other choices      | ignored and counted                                        |

Sources: https://platform.openai.com/docs/api-reference/chat-streaming and
https://openrouter.ai/docs/api-reference/streaming
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from hpc_worker.sse_decoder import MAX_LINE_BYTES, LineTooLong, SseDecoder, SseEvent
from hpc_worker.stream_items import Fault, FinishItem, Item, Reasoning, Text, ToolPiece, UsageItem, read_usage
from hpc_worker.think import TextCleaner, ThinkSplitter
from hpc_worker.tool_calls import ToolCalls

__all__ = [
    "Fault",
    "FinishItem",
    "Item",
    "OpenAIStreamReader",
    "Reasoning",
    "SseDecoder",
    "SseEvent",
    "Text",
    "ToolPiece",
    "UsageItem",
]

_REASONS = {
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "safety": "content_filter",
}
_BROKEN_REASONS = ("error", "abort", "cancelled")


class OpenAIStreamReader:
    """Bytes in, items out. However the bytes are cut, the joined items are the same."""

    def __init__(self, *, starts_in_reasoning: bool = False, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self.ignored_frames = 0
        self.ignored_choices = 0
        self.over = False  # the last item was handed out; more bytes change nothing
        self._decoder = SseDecoder(max_line_bytes)
        self._max = max_line_bytes
        self._kind = ""  # "", "sse" or "json", from the first byte that is not blank
        self._body = bytearray()
        self._out = AnswerAssembler(starts_in_reasoning)
        self._understood = False
        self._bytes_seen = False

    @property
    def finish_seen(self) -> bool:
        """Whether the server has said how the answer ended. Only usage may still come."""
        return bool(self._out.finish)

    @property
    def stray_closings(self) -> int:
        """`</think>` tags that closed nothing: the model may need `starts_in_reasoning`."""
        return self._out.splitter.stray_closings

    def feed(self, data: bytes) -> list[Item]:
        """Return the items that `data` completes."""
        items: list[Item] = []
        if self.over or not data:
            return items
        if not self._kind:
            data = self._sniff(data, items)
        if self._kind == "json":
            self._body += data
            if len(self._body) > self._max:
                self._fault(Fault("too_long", "one line of the answer is too long to be read"), items)
        elif self._kind == "sse":
            self._feed_sse(data, items)
        return items

    def close(self) -> list[Item]:
        """Return what is left when the connection has ended. The last item is a `FinishItem` or a `Fault`."""
        items: list[Item] = []
        if self.over:
            return items
        if self._kind == "json":
            self._frame(bytes(self._body).decode("utf-8", "replace"), items)
        else:
            for event in self._decoder.close():
                if not self.over:
                    self._frame(event.data, items)
        if not self.over:
            self._end(items)
        return items

    def _sniff(self, data: bytes, items: list[Item]) -> bytes:
        """Tell an event stream from one JSON object (a server that ignores `stream`) and from a web page."""
        self._body += data
        bare = bytes(self._body).lstrip(b"\xef\xbb\xbf \t\r\n")
        if not bare:
            return b""
        whole = bytes(self._body)
        self._body.clear()
        self._bytes_seen = True
        self._kind = "json" if bare[:1] == b"{" else "sse"
        if bare[:1] == b"<":
            self._fault(Fault("html", "a web page came instead of an answer"), items)
            return b""
        return bare if self._kind == "json" else whole

    def _feed_sse(self, data: bytes, items: list[Item]) -> None:
        too_long = False
        try:
            events = self._decoder.feed(data)
        except LineTooLong as error:
            events = [event for event in error.before if isinstance(event, SseEvent)]
            too_long = True
        for event in events:
            if not self.over:
                self._frame(event.data, items)
        if too_long and self.finish_seen and not self.over:
            self._end(items)
        elif too_long and not self.over:
            self._fault(Fault("too_long", "one line of the answer is too long to be read"), items)

    def _frame(self, data: str, items: list[Item]) -> None:
        if data.strip() == "[DONE]":
            self._understood = True
            self._end(items)
            return
        try:
            chunk = json.loads(data, parse_float=Decimal)
        except (ValueError, RecursionError):
            chunk = None
        if not isinstance(chunk, dict):
            self.ignored_frames += 1
            return
        fault = read_error(chunk)
        choices = chunk.get("choices")
        usage = chunk.get("usage")
        if not (fault or isinstance(choices, list) or isinstance(usage, dict)):
            self.ignored_frames += 1
            return
        self._understood = True
        finished = self.finish_seen
        if isinstance(chunk.get("id"), str):
            self._out.generation_id = chunk["id"][:200]
        for choice in choices if isinstance(choices, list) else ():
            inner = self._choice(choice, items)
            fault = fault or inner
        if isinstance(usage, dict) and usage:
            self._out.usage = usage
        if fault and finished:  # the answer is whole; what failed after it is not the reader's business
            self._end(items)
        elif fault:
            self._fault(fault, items)

    def _choice(self, choice: object, items: list[Item]) -> Fault | None:
        if not isinstance(choice, dict) or choice.get("index") not in (0, None):
            self.ignored_choices += 1
            return None
        if isinstance(choice.get("usage"), dict):
            self._out.usage = choice["usage"]
        delta = choice.get("delta") or choice.get("message")
        if isinstance(delta, dict):
            self._out.delta(delta, items)
        fault = read_error(choice)
        reason = choice.get("finish_reason")
        if isinstance(reason, str) and reason in _BROKEN_REASONS:
            return fault or Fault("said", f"the answer ended with {reason!r}", code=reason)
        if isinstance(reason, str) and reason:
            self._out.finish = reason
        return fault

    def _end(self, items: list[Item]) -> None:
        """Hand out the last items after `[DONE]` or the end of the bytes."""
        out = self._out
        if not out.finish:
            self._fault(self._why_nothing(), items)
            return
        cut = out.tools.broken() if _reason(out) == "tool_calls" else ""
        if cut:
            self._fault(Fault("cut_tool", f"the arguments of the tool call {cut[:60]!r} are cut"), items)
            return
        self.over = True
        out.flush(items, complete=True)
        items.append(FinishItem(_reason(out), out.finish))

    def _why_nothing(self) -> Fault:
        if self._understood:
            return Fault("early", "the stream ended before the answer did")
        if self.ignored_frames or self._decoder.unknown_lines:
            return Fault("garbage", "what came is not a chat completion")
        if self._bytes_seen:
            return Fault("early", "the stream ended before the answer began")
        return Fault("early", "the answer was empty")

    def _fault(self, fault: Fault, items: list[Item]) -> None:
        self.over = True
        self._out.flush(items, complete=False)
        items.append(fault)


class AnswerAssembler:
    """What one answer has said so far, and how its pieces become items. Shared by the readers of all formats."""

    def __init__(self, starts_in_reasoning: bool) -> None:
        self.finish = ""
        self.usage: dict[str, Any] | None = None
        self.generation_id = ""
        self.tools = ToolCalls()
        self.splitter = ThinkSplitter(starts_in_reasoning)
        self._text = TextCleaner()
        self._thought = TextCleaner()

    def delta(self, delta: dict[str, Any], items: list[Item]) -> None:
        """Append the items of one delta (or of a whole message)."""
        thought = next((delta[k] for k in ("reasoning_content", "reasoning", "thinking") if _filled(delta.get(k))), "")
        self.reasoning(thought, items)
        content = delta.get("content")
        if isinstance(content, str):
            self.text(content, items)
        elif isinstance(content, list):
            self._parts(content, items)
        if _filled(delta.get("refusal")):
            self.text(delta["refusal"], items)
        calls = delta.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            piece = self.tools.push(call, self.generation_id) if isinstance(call, dict) else None
            if piece:
                items.append(piece)

    def text(self, text: str, items: list[Item]) -> None:
        _append(self.splitter.push(self._text.push(text)), items)

    def reasoning(self, text: str, items: list[Item]) -> None:
        if text:
            self.splitter.thinking_comes_apart()
        _append([(True, self._thought.push(text))], items)

    def flush(self, items: list[Item], *, complete: bool) -> None:
        """Append what was held back, then the usage."""
        _append([(True, self._thought.flush())], items)
        _append(self.splitter.push(self._text.flush()), items)
        _append(self.splitter.flush(complete), items)
        if self.usage is not None:
            items.append(read_usage(self.usage, self.generation_id))

    def _parts(self, parts: list[Any], items: list[Item]) -> None:
        """Read `content` as a list, https://docs.mistral.ai/capabilities/reasoning; unknown parts are left out."""
        for part in parts:
            if isinstance(part, str):
                self.text(part, items)
            elif isinstance(part, dict) and part.get("type") in ("text", "output_text"):
                self.text(_part_text(part, "text"), items)
            elif isinstance(part, dict) and part.get("type") in ("thinking", "reasoning"):
                self.reasoning(_part_text(part, "thinking") or _part_text(part, "text"), items)


def read_error(chunk: dict[str, Any]) -> Fault | None:
    """Return the error in a chunk, or None: `{"error": {...}}`, `{"error": "..."}` or vLLM's `object: error`."""
    error = chunk.get("error")
    if not error and chunk.get("object") == "error":
        error = chunk
    if not error:
        return None
    if not isinstance(error, dict):
        return Fault("said", str(error))
    code = error.get("code")
    text = str(code if code is not None else error.get("type") or "")
    status = int(text) if text.isascii() and text.isdigit() and len(text) == 3 else None
    kind = str(error.get("type") or "")
    words = str(error.get("message") or "an error without words")
    metadata = error.get("metadata")
    provider = metadata.get("provider_name") if isinstance(metadata, dict) else None
    if isinstance(provider, str) and provider:
        words = f"{words} ({provider[:40]})"
    return Fault("said", words, status, kind if status and kind else text)


def _reason(out: AnswerAssembler) -> str:
    """Return the finish reason as one of ours. Servers that say "stop" after tool calls mean tool_calls."""
    reason = _REASONS.get(out.finish.lower(), "stop")
    return "tool_calls" if reason == "stop" and out.tools.any else reason


def _append(pieces: list[tuple[bool, str]], items: list[Item]) -> None:
    items.extend(Reasoning(text) if thinking else Text(text) for thinking, text in pieces if text)


def _filled(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _part_text(part: dict[str, Any], key: str) -> str:
    value = part.get(key)
    if isinstance(value, list):
        return "".join(_part_text(inner, "text") for inner in value if isinstance(inner, dict))
    return value if isinstance(value, str) else ""
