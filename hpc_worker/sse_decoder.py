"""Read server-sent events from bytes. Pure: bytes in, events out; no I/O, Python 3.9.

Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
`hpc_worker.sse` builds on it and reads chat completions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_LINE_BYTES = 8 * 1024 * 1024
_END_OF_LINE = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class LineTooLong(ValueError):
    """A line or event is over the limit. `before` holds what was complete before it; nothing after it can be read."""

    def __init__(self, limit: int, before: list[SseEvent] | list[bytes]) -> None:
        super().__init__(f"a line of the stream is longer than {limit:,} bytes")
        self.before = before


@dataclass(frozen=True)
class SseEvent:
    name: str
    data: str


class LineSplitter:
    """Cut bytes into lines at LF, CR or CRLF, wherever the reads were cut. Lines come without their end."""

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._skip_lf = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes. Raises `LineTooLong`."""
        if self._skip_lf and data:
            self._skip_lf = False
            if data[:1] == b"\n":
                data = data[1:]
        *whole, rest = _END_OF_LINE.split(data)
        self._skip_lf = data[-1:] == b"\r"
        lines: list[bytes] = []
        for piece in whole:
            self._keep(piece, lines)
            lines.append(b"".join(self._pieces))
            self._pieces, self._size = [], 0
        self._keep(rest, lines)
        return lines

    def close(self) -> bytes:
        """Return the last line if it had no end."""
        line = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        return line

    def _keep(self, piece: bytes, lines: list[bytes]) -> None:
        self._size += len(piece)
        if self._size > self._max:
            raise LineTooLong(self._max, lines)
        if piece:
            self._pieces.append(piece)


class SseDecoder:
    """Incremental parser. Text is decoded by whole lines only, so no character is ever cut between two reads.

    Comments (keepalives) are dropped. Invalid UTF-8 becomes U+FFFD. One space after the colon belongs to the syntax,
    all other white space to the payload.
    """

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self.unknown_lines = 0  # neither a field of the standard nor a comment: probably no event stream at all
        self._max = max_bytes
        self._lines = LineSplitter(max_bytes)
        self._first = True
        self._name = ""
        self._data: list[str] = []
        self._size = 0

    def feed(self, data: bytes) -> list[SseEvent]:
        """Return the events that `data` completes. Raises `LineTooLong`, also when the lines of one event add up."""
        events: list[SseEvent] = []
        too_long = False
        try:
            lines = self._lines.feed(data)
        except LineTooLong as error:
            lines = [line for line in error.before if isinstance(line, bytes)]
            too_long = True
        for line in lines:
            self._line(line, events)
            if self._size > self._max:
                too_long = True
                break
        if too_long:
            raise LineTooLong(self._max, events)
        return events

    def close(self) -> list[SseEvent]:
        """Return the last event even without its blank line: servers forget it, and JSON tells whether it is whole."""
        events: list[SseEvent] = []
        last = self._lines.close()
        if last:
            self._line(last, events)
        self._line(b"", events)
        return events

    def _line(self, raw: bytes, events: list[SseEvent]) -> None:
        if self._first:
            self._first = False
            if raw.startswith(_BOM):
                raw = raw[len(_BOM) :]
        if not raw:
            self._dispatch(events)
            return
        field, colon, value = raw.decode("utf-8", "replace").partition(":")
        if not field and colon:
            return
        if value.startswith(" "):
            value = value[1:]
        if field == "data":
            self._data.append(value)
            self._size += len(raw)
        elif field == "event":
            self._name = value
        elif field not in ("id", "retry"):
            self.unknown_lines += 1

    def _dispatch(self, events: list[SseEvent]) -> None:
        if self._data:
            events.append(SseEvent(self._name, "\n".join(self._data)))
        self._name, self._data, self._size = "", [], 0
