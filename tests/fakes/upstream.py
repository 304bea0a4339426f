"""A model server that plays scripts, in its own process: `python -m tests.fakes.upstream --port 0`.

Prints `{"port": N}` on its first line. Speaks HTTP/1.1 over raw sockets, so it can write any bytes at any split.

| request                                    | answer                                                                  |
|--------------------------------------------|-------------------------------------------------------------------------|
| `POST /_script`                            | sets `{"steps": [...], "model": name or null, "times": n or null}`      |
| `GET /_log`                                | `{"now": t, "requests": [...]}`; times are `time.monotonic()`           |
| `POST /_reset`                             | forgets scripts and log                                                 |
| `POST /v1/chat/completions`, `/api/chat`   | plays the script for its `model`, else the next without, else answers   |
| `GET /v1/models`, `/api/tags`, `/api/version`, `/health` | as the real ones                                          |

Steps: `{"begin": {"status", "headers"}}` (else 200 at the first write), `{"send": text}`, `{"send_hex": hex}`,
`{"bytewise": text}` (one write per byte), `{"comment": text}`, `{"big": {"before", "char", "size", "after"}}`,
`{"tokens": {"format", "count", "rate", "prefill_s"}}`, `{"sleep": s}`, `{"hang": true}` (until the client leaves),
`{"status": n, "headers": {}, "body": text or JSON}` (a whole answer), `{"cut": true}` (TCP reset), `{"drop": true}`
(TCP end without the end of the body). After the last step the body ends as it should.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes import answers

LOG_SIZE = 5000
CHAT_PATHS = ("/v1/chat/completions", "/api/chat")


class Cut(Exception):
    """The script has ended the connection."""


@dataclass
class Script:
    steps: list[dict[str, Any]]
    model: str | None = None
    times: int | None = None


@dataclass
class Record:
    """One request, and what became of it."""

    number: int
    at: float
    method: str
    path: str
    headers: dict[str, str]
    body: Any
    events: list[dict[str, Any]] = field(default_factory=list)
    sent_bytes: int = 0
    writes: int = 0

    def note(self, what: str) -> None:
        self.events.append({"what": what, "at": time.monotonic()})


class Connection:
    """One client connection. `reader` is watched while an answer is written, to notice that the client left."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.head_sent = False
        self._ahead = b""

    async def request(self) -> tuple[str, str, dict[str, str], bytes] | None:
        """Return (method, path, headers, body), or None when the client left."""
        try:
            raw = self._ahead + await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self._ahead = b""
        self.head_sent = False
        first, *lines = raw.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
        body = await self._body(headers)
        return method, path.partition("?")[0], headers, body

    async def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return await self.reader.readexactly(int(headers.get("content-length", "0")))
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readline()
        await self.reader.readline()
        return body

    async def left(self) -> None:
        """Return when the client has closed or reset the connection."""
        with contextlib.suppress(ConnectionError):
            while ahead := await self.reader.read(1):
                self._ahead += ahead

    async def begin(self, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.head_sent = True
        lines = {"content-type": "text/event-stream", "transfer-encoding": "chunked", **(headers or {})}
        await self._write(_head(status, lines))

    async def send(self, data: bytes) -> None:
        if not self.head_sent:
            await self.begin()
        if data:
            await self._write(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        if not self.head_sent:
            await self.begin()
        await self._write(b"0\r\n\r\n")

    async def whole(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        data = text.encode()
        kind = "text/plain" if isinstance(body, str) else "application/json"
        self.head_sent = True
        lines = {"content-type": kind, "content-length": str(len(data)), **(headers or {})}
        await self._write(_head(status, lines) + data)

    def cut(self) -> None:
        """Reset the connection."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def _write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


def _head(status: int, headers: dict[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


class Player:
    """Play one script on one connection."""

    def __init__(self, connection: Connection, record: Record) -> None:
        self._connection = connection
        self._record = record

    async def play(self, steps: list[dict[str, Any]]) -> None:
        """Raises `Cut` when a step ended the connection."""
        connection = self._connection
        for step in steps:
            if "status" in step:
                await connection.whole(step["status"], step.get("body", ""), step.get("headers"))
                return
            if "begin" in step:
                await connection.begin(**step["begin"])
            elif "sleep" in step:
                await asyncio.sleep(step["sleep"])
            elif "hang" in step:
                await asyncio.Event().wait()
            elif "cut" in step or "drop" in step:
                self._record.note("cut")
                if "cut" in step:
                    connection.cut()
                raise Cut
            elif "tokens" in step:
                await self._tokens(step["tokens"])
            else:
                await self._write(step)
        await connection.end()

    async def _write(self, step: dict[str, Any]) -> None:
        if "send" in step:
            await self.send(step["send"].encode("utf-8", "surrogatepass"))
        elif "send_hex" in step:
            await self.send(bytes.fromhex(step["send_hex"]))
        elif "comment" in step:
            await self.send(f": {step['comment']}\n\n".encode())
        elif "bytewise" in step:
            for byte in step["bytewise"].encode():
                await self.send(bytes([byte]))
        elif "big" in step:
            big = step["big"]
            await self.send((big.get("before", "") + big["char"] * big["size"] + big.get("after", "")).encode())
        else:
            raise ValueError(f"unknown step {step}")

    async def _tokens(self, spec: dict[str, Any]) -> None:
        """Write numbered tokens at a rate, measured from the first one."""
        await asyncio.sleep(spec.get("prefill_s", 0.0))
        start = time.monotonic()
        make = answers.FORMATS[spec.get("format", "openai")]
        for number in range(spec["count"]):
            wait = start + number / spec["rate"] - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            await self.send(make.text(f"{number} ").encode())

    async def send(self, data: bytes) -> None:
        self._record.sent_bytes += len(data)
        self._record.writes += 1
        if self._record.writes == 1:
            self._record.note("first_write")
        await self._connection.send(data)


class Upstream:
    """The server's state: scripts, log, and how it answers without a script."""

    def __init__(self, speed: answers.Speed) -> None:
        self._speed = speed
        self._scripts: list[Script] = []
        self._log: deque[Record] = deque(maxlen=LOG_SIZE)
        self._count = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""
        connection = Connection(reader, writer)
        try:
            while (request := await connection.request()) is not None:
                if not await self._answer(connection, *request):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left; the log says so
        finally:
            writer.close()

    async def _answer(
        self, connection: Connection, method: str, path: str, headers: dict[str, str], raw: bytes
    ) -> bool:
        """Answer one request. Return whether the connection goes on."""
        try:
            body: Any = json.loads(raw) if raw else None
        except ValueError:
            body = raw.decode("latin-1")
        if path.startswith("/_"):
            await self._control(connection, path, body)
            return True
        self._count += 1
        record = Record(self._count, time.monotonic(), method, path, headers, body)
        self._log.append(record)
        work = asyncio.ensure_future(self._play(connection, record))
        watch = asyncio.ensure_future(connection.left())
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() or (work.exception() and isinstance(work.exception(), ConnectionError)):
            record.note("disconnected")
        work.cancel()
        watch.cancel()
        result, _ = await asyncio.gather(work, watch, return_exceptions=True)
        if result is None:
            record.note("ended")
        elif not isinstance(result, (Cut, asyncio.CancelledError, ConnectionError)):
            raise result
        return result is None

    async def _play(self, connection: Connection, record: Record) -> None:
        if record.path not in CHAT_PATHS:
            await connection.whole(*answers.page(record.path))
            return
        player = Player(connection, record)
        script = self._pick(record.body.get("model") if isinstance(record.body, dict) else None)
        if script is not None:
            await player.play(script.steps)
            return
        answer = answers.answer(record.path, record.body)
        if isinstance(answer, dict):
            await connection.whole(200, answer)
            return
        await connection.begin(headers={"content-type": answer.content_type})
        await asyncio.sleep(self._speed.prefill_s)
        await _paced(answer.pieces, player.send, self._speed.rate)
        await connection.end()

    def _pick(self, model: str | None) -> Script | None:
        """Return the newest script for `model`, else the oldest without a model; count its use."""
        named = [script for script in reversed(self._scripts) if script.model is not None and script.model == model]
        for script in [*named, *(script for script in self._scripts if script.model is None)]:
            if script.times is not None:
                script.times -= 1
                if script.times == 0:
                    self._scripts.remove(script)
            return script
        return None

    async def _control(self, connection: Connection, path: str, body: Any) -> None:
        if path == "/_script":
            times = body.get("times", None if body.get("model") else 1)
            self._scripts.append(Script(body["steps"], body.get("model"), times))
        elif path == "/_reset":
            self._scripts.clear()
            self._log.clear()
        elif path == "/_log":
            log = [vars(record) for record in self._log]
            await connection.whole(200, {"now": time.monotonic(), "requests": log})
            return
        else:
            await connection.whole(404, {"error": "no such control"})
            return
        await connection.whole(200, {"ok": True})


async def _paced(pieces: list[str], send: Callable[[bytes], Awaitable[None]], rate: float) -> None:
    start = time.monotonic()
    for number, piece in enumerate(pieces):
        wait = start + number / rate - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        await send(piece.encode())


async def main(port: int, speed: answers.Speed) -> None:
    """Serve on loopback until the process is ended."""
    upstream = Upstream(speed)
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", port, limit=64 * 1024 * 1024, backlog=1024)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A model server that plays scripts.")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--rate", type=float, default=200.0, help="tokens per second of unscripted answers")
    parser.add_argument("--prefill", type=float, default=0.0, help="seconds before the first token of those")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(options.port, answers.Speed(options.rate, options.prefill)))
    sys.exit(0)
