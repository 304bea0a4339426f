"""A site that serves the real chat page and speaks `chat.protocol`, driven by the test: it answers only what it is told.

One port for pages, static files and the WebSocket, so that the page's own security policy is in force.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import mimetypes
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvicorn

STATIC = Path(__file__).resolve().parents[2] / "chat" / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
Json = dict[str, Any]


def make_turn(position: int, question: str, answer: str = "", **changes: Any) -> Json:
    """Return a turn as `chat.selectors.turn_dict` shapes it: ended and complete unless `changes` say otherwise."""
    now = datetime.now(UTC).isoformat()
    turn = {
        "id": str(uuid.uuid4()),
        "conversation": "",
        "client_id": str(uuid.uuid4()),
        "position": position,
        "version": 1,
        "continues": None,
        "question": question,
        "tier_choice": "auto",
        "model_choice": "",
        "state": "ended",
        "outcome": "complete",
        "answer": answer,
        "reasoning": "",
        "error": None,
        "route": None,
        "tier": "local",
        "model": "small",
        "model_label": "Small 3B",
        "attempts": 1,
        "tokens_in": 120,
        "tokens_out": 40,
        "tokens_estimated": False,
        "cost_micro": 0,
        "first_text_ms": 900,
        "total_ms": 2100,
        "events_end": 4,
        "created_at": now,
        "ended_at": now,
    }
    return turn | changes


@dataclass
class Running:
    """A turn that is being answered: all its events so far."""

    turn: Json
    events: list[Json] = field(default_factory=list)


class ChatSite:
    """`page(path, html)` registers a page; `emit` and `end` play an answer; `kill` and `frozen` break the link."""

    def __init__(self, heartbeat_s: float = 10) -> None:
        self.heartbeat_s = heartbeat_s
        self.pages: dict[str, str] = {}
        self.replies: dict[str, tuple[int, Json]] = {}
        self.received: list[Json] = []
        self.posts: list[tuple[str, Json]] = []
        self.requests: list[str] = []
        self.running: dict[str, Running] = {}
        self.by_client_id: dict[str, Json] = {}
        self.sockets: dict[int, Callable[[Json], Any]] = {}
        self.closers: dict[int, Callable[[int], Any]] = {}
        self.frozen = False
        self.reject_code = 0
        self.position = 0
        self.connects = 0

    # ── run ───────────────────────────────────────────────────────────────

    def __enter__(self) -> ChatSite:
        config = uvicorn.Config(
            self.app, "127.0.0.1", 0, log_level="error", lifespan="off", interface="asgi3", ws="websockets-sansio"
        )
        self.server = uvicorn.Server(config)
        started = threading.Event()

        async def serve() -> None:
            self.loop = asyncio.get_running_loop()
            task = asyncio.create_task(self.server.serve())
            while not self.server.started:
                await asyncio.sleep(0.01)
            started.set()
            await task

        self.thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        self.thread.start()
        assert started.wait(10)
        self.url = f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self.server.force_exit = True
        self.thread.join(10)

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(10)

    # ── what tests do ─────────────────────────────────────────────────────

    def emit(self, turn_id: str, kind: str, **fields: Any) -> None:
        """Add the next event of a turn and send it to every open socket."""
        running = self.running[turn_id]
        event = {"t": "event", "turn": turn_id, "fence": 1, "seq": len(running.events) + 1, "kind": kind, **fields}
        running.events.append(event)
        self.run(self.broadcast(event))

    def text(self, turn_id: str, *pieces: str) -> None:
        for piece in pieces:
            self.emit(turn_id, "delta", text=piece)

    def end(self, turn_id: str, outcome: str = "complete", error: Json | None = None, **changes: Any) -> None:
        """End a turn: the stored text is what its delta events say."""
        running = self.running[turn_id]
        answer = "".join(e["text"] for e in running.events if e["kind"] == "delta")
        turn = running.turn | {"state": "ended", "outcome": outcome, "error": error, "answer": answer, "total_ms": 1500}
        turn |= {"events_end": len(running.events) + 1, "ended_at": datetime.now(UTC).isoformat()} | changes
        running.turn = turn
        self.emit(turn_id, "done", outcome=outcome, stored=turn, error=error)

    def kill(self, code: int = 1012) -> None:
        """Close every socket."""

        async def close_all() -> None:
            for close in list(self.closers.values()):
                with contextlib.suppress(Exception):
                    await close(code)

        self.run(close_all())

    def sent(self, kind: str) -> list[Json]:
        return [m for m in self.received if m["t"] == kind]

    def send_all(self, message: Json) -> None:
        self.run(self.broadcast(message))

    # ── the ASGI application ──────────────────────────────────────────────

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self.socket(receive, send)
        else:
            await self.http(scope, receive, send)

    async def http(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope["path"]
        self.requests.append(path)
        status, kind, body = 404, "text/plain", b"not here"
        if scope["method"] == "POST":
            data = json.loads((await receive())["body"] or b"{}")
            self.posts.append((path, data))
            status, reply = self.replies.get(path, (200, data))
            kind, body = "application/json", json.dumps(reply).encode()
        elif path in self.replies:
            status, reply = self.replies[path]
            kind, body = "application/json", json.dumps(reply).encode()
        elif path in self.pages:
            status, kind, body = 200, "text/html; charset=utf-8", self.pages[path].encode()
        elif path.startswith("/static/") and (file := STATIC / path.removeprefix("/static/")).is_file():
            status, kind, body = (
                200,
                mimetypes.guess_type(file.name)[0] or "application/octet-stream",
                file.read_bytes(),
            )
        headers = [(b"content-type", kind.encode()), (b"content-security-policy", POLICY.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def socket(self, receive: Any, send: Any) -> None:
        self.connects += 1
        key = self.connects
        await receive()
        await send({"type": "websocket.accept"})
        if self.reject_code:
            await send({"type": "websocket.close", "code": self.reject_code})
            return

        async def tell(message: Json) -> None:
            if not self.frozen:
                await send({"type": "websocket.send", "text": json.dumps(message)})

        async def close(code: int) -> None:
            self.sockets.pop(key, None)
            await send({"type": "websocket.close", "code": code})

        self.sockets[key], self.closers[key] = tell, close
        await tell({"t": "hello", "protocol": 1, "heartbeat_s": self.heartbeat_s, "user": "Mira"})
        while (message := await receive())["type"] == "websocket.receive":
            data = json.loads(message["text"])
            self.received.append(data)
            await self.answer(data, tell)
        self.sockets.pop(key, None)
        self.closers.pop(key, None)

    async def answer(self, data: Json, tell: Callable[[Json], Any]) -> None:
        match data["t"]:
            case "ping":
                await tell({"t": "pong", "at": data["at"]})
            case "watch":
                await tell({"t": "watching", "conversation": data["conversation"]})
                for turn_id, seen in data["turns"].items():
                    for event in self.running[turn_id].events[seen:] if turn_id in self.running else []:
                        await tell(event)
            case "turn.start" | "turn.again" | "turn.continue":
                known = self.by_client_id.get(data["id"])
                turn = known or self.begin(data)
                await tell({"t": "turn.accepted", "for": data["id"], "turn": turn, "duplicate": known is not None})

    def begin(self, data: Json) -> Json:
        """Store a new turn, queued."""
        fresh = {"client_id": data["id"], "state": "queued", "outcome": "", "ended_at": None, "tier": "", "model": ""}
        fresh |= {
            "model_label": "",
            "tokens_in": 0,
            "tokens_out": 0,
            "total_ms": None,
            "first_text_ms": None,
            "events_end": 0,
        }
        if data["t"] == "turn.start":
            self.position += 1
            turn = make_turn(self.position, data["text"], conversation=data["conversation"], **fresh)
        else:
            old = next(r.turn for r in self.running.values() if r.turn["id"] == data["turn"])
            turn = old | fresh | {"id": str(uuid.uuid4()), "version": old["version"] + 1, "answer": ""}
        self.by_client_id[data["id"]] = turn
        self.running[turn["id"]] = Running(turn)
        return turn

    async def broadcast(self, message: Json) -> None:
        for tell in list(self.sockets.values()):
            with contextlib.suppress(Exception):
                await tell(message)
