"""Read Ollama's /api/chat stream from bytes: one JSON object per line. Pure: bytes in, items out.

Source: https://github.com/ollama/ollama/blob/main/docs/api.md#generate-a-chat-completion
Thinking comes as `message.thinking`, tool calls whole, usage and `done_reason` in the last object, `{"error": ...}`
at any time.
"""

from __future__ import annotations

import json
from typing import Any

from hpc_worker.sse import AnswerAssembler, Fault, FinishItem, Item, UsageItem, read_error
from hpc_worker.sse_decoder import LineSplitter, LineTooLong
from hpc_worker.stream_items import count

# Ollama loads or unloads a model when there is nothing to answer, and says so as if it were an answer.
_NO_ANSWER = ("load", "unload")


class OllamaStreamReader:
    """Bytes in, items out, as `hpc_worker.sse.OpenAIStreamReader`. `prompt_estimate` stands in for a missing count."""

    def __init__(self, *, starts_in_reasoning: bool = False, prompt_estimate: int = 0) -> None:
        self.ignored_frames = 0
        self.over = False
        self.prompt_tokens = 0  # as counted by the server; 0 when it did not say
        self._estimate = prompt_estimate
        self._lines = LineSplitter()
        self._out = AnswerAssembler(starts_in_reasoning)
        self._understood = False

    @property
    def finish_seen(self) -> bool:
        """Whether the server has said how the answer ended. Nothing comes after that."""
        return self.over

    def feed(self, data: bytes) -> list[Item]:
        """Return the items that `data` completes."""
        items: list[Item] = []
        try:
            lines = self._lines.feed(data)
        except LineTooLong as error:
            lines = [line for line in error.before if isinstance(line, bytes)]
            self._read(lines, items)
            self._fault(Fault("too_long", "one line of the answer is too long to be read"), items)
            return items
        self._read(lines, items)
        return items

    def close(self) -> list[Item]:
        """Return what is left when the connection has ended. The last item is a `FinishItem` or a `Fault`."""
        items: list[Item] = []
        self._read([self._lines.close()], items)
        if self._understood:
            self._fault(Fault("early", "the stream ended before the answer did"), items)
        elif self.ignored_frames:
            self._fault(Fault("garbage", "what came is not an answer of Ollama"), items)
        else:
            self._fault(Fault("early", "the answer was empty"), items)
        return items

    def _read(self, lines: list[bytes], items: list[Item]) -> None:
        for line in lines:
            if line.strip() and not self.over:
                self._frame(line, items)

    def _frame(self, line: bytes, items: list[Item]) -> None:
        if not self._understood and line.lstrip().startswith(b"<"):
            self._fault(Fault("html", "a web page came instead of an answer"), items)
            return
        try:
            frame = json.loads(line.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            frame = None
        if not isinstance(frame, dict) or not ({"message", "done", "error"} & frame.keys()):
            self.ignored_frames += 1
            return
        self._understood = True
        fault = read_error(frame)
        message = frame.get("message")
        if isinstance(message, dict):
            self._out.delta(message, items)
        if fault:
            self._fault(fault, items)
        elif frame.get("done") is True:
            self._end(frame, items)

    def _end(self, frame: dict[str, Any], items: list[Item]) -> None:
        reason = frame.get("done_reason")
        raw = reason if isinstance(reason, str) and reason else "stop"  # before 0.3 it was never sent
        if raw in _NO_ANSWER:
            self._fault(Fault("early", f"the model was {raw}ed but gave no answer"), items)
            return
        self.over = True
        self.prompt_tokens = count(frame.get("prompt_eval_count"))
        self._out.flush(items, complete=True)
        items.append(
            UsageItem(
                # It is left out when the whole prompt was in the cache.
                prompt=self.prompt_tokens or self._estimate,
                completion=count(frame.get("eval_count")),
                estimated=not self.prompt_tokens,
            )
        )
        items.append(FinishItem("tool_calls" if self._out.tools.any else "length" if raw == "length" else "stop", raw))

    def _fault(self, fault: Fault, items: list[Item]) -> None:
        if not self.over:
            self.over = True
            self._out.flush(items, complete=False)
            items.append(fault)
