"""Start child processes in one guarded process group, wait for them to be ready, end them in order."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stream_site.devstack import guard
from stream_site.devstack.http_get import NoAnswer, get
from stream_site.devstack.specs import STOP_GRACE_S, Child, HttpReady, RedisReady

POLL_S = 0.05
TAIL_LINES = 15


class StackError(Exception):
    """The stack cannot start or go on. The message is for people: what happened and what to do."""


@dataclass(frozen=True)
class Running:
    child: Child
    process: asyncio.subprocess.Process
    log: Path


class Children:
    """The processes of one stack: one process group, led by the guard."""

    def __init__(self, log_dir: Path, keep_open: int) -> None:
        """Start the guard, which keeps the file descriptor `keep_open` open as long as any process may be left."""
        self.log_dir = log_dir
        self.running: list[Running] = []
        log_dir.mkdir(parents=True, exist_ok=True)
        self._guard = subprocess.Popen(  # noqa: S603 - our own file
            [sys.executable, "-S", str(Path(guard.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
            pass_fds=(keep_open,),
        )

    async def start(self, child: Child) -> Running:
        """Start `child` with its output in a fresh log file; the previous log is kept as NAME.log.1."""
        log = self.log_dir / f"{child.name}.log"
        if log.exists():
            log.replace(log.with_name(f"{log.name}.1"))
        try:
            with log.open("wb") as output:
                process = await asyncio.create_subprocess_exec(
                    *child.argv,
                    env=os.environ | dict(child.env),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    process_group=self._guard.pid,
                )
        except OSError as error:
            raise StackError(f"{child.name} cannot be started: {child.argv[0]}: {error.strerror}.") from error
        running = Running(child, process, log)
        self.running.append(running)
        return running

    async def watch(self, running: Running) -> None:
        """Wait until the process ends; raise `StackError` with its last words."""
        code = await running.process.wait()
        raise StackError(
            f"{running.child.name} {ending(code)}. Its last lines ({running.log}):\n{tail(running.log)}\n"
            "Everything else was stopped."
        )

    async def stop(self) -> None:
        """End all processes in their order: SIGTERM and time to finish, then SIGKILL for the whole group."""
        for stage, grace_s in sorted(STOP_GRACE_S.items()):
            alive = [r for r in self.running if r.child.stop_stage == stage and r.process.returncode is None]
            for one in alive:
                one.process.terminate()
            if alive:
                await asyncio.wait([asyncio.create_task(one.process.wait()) for one in alive], timeout=grace_s)
        os.killpg(self._guard.pid, signal.SIGKILL)
        await asyncio.gather(*(one.process.wait() for one in self.running))
        await asyncio.to_thread(self._guard.wait)


def ending(code: int) -> str:
    """Return in words how a process with the exit `code` ended."""
    if code < 0:
        return f"was ended by the signal {signal.Signals(-code).name}"
    return f"ended by itself with exit code {code}"


def tail(log: Path, lines: int = TAIL_LINES) -> str:
    """Return the last lines of a log, indented."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 16_384))
        text = file.read().decode(errors="replace")
    return "\n".join(f"    {line}" for line in text.splitlines()[-lines:]) or "    (it wrote nothing)"


async def until_ready(running: Running) -> None:
    """Return once the child answers. Raises `StackError` after its time limit."""
    child = running.child
    if child.ready is None:
        return
    try:
        async with asyncio.timeout(child.ready_timeout_s):
            if isinstance(child.ready, HttpReady):
                await _until_http(child.ready)
            else:
                await _until_redis(child.ready)
    except TimeoutError:
        raise StackError(
            f"{child.name} did not become ready within {child.ready_timeout_s:.0f} s. "
            f"Its last lines ({running.log}):\n{tail(running.log)}\nEverything else was stopped."
        ) from None


async def _until_http(ready: HttpReady) -> None:
    while True:
        try:
            status, _ = await get(ready.url, timeout_s=2)
        except NoAnswer:
            status = 0  # not listening yet
        if status == 200:
            return
        await asyncio.sleep(POLL_S)


async def _until_redis(ready: RedisReady) -> None:
    while True:
        try:
            reader, writer = await asyncio.open_unix_connection(str(ready.path))
        except OSError:
            await asyncio.sleep(POLL_S)
            continue
        try:
            writer.write(b"PING\r\n")
            if (await reader.readline()).startswith(b"+PONG"):
                return
        finally:
            writer.close()
        await asyncio.sleep(POLL_S)  # still reading its append-only file


async def echo_errors(children: Children, say: Callable[[str], None]) -> None:
    """Repeat error lines of all logs as they are written, until cancelled."""
    read: dict[Path, int] = {}
    while True:
        for one in list(children.running):
            text, read[one.log] = _new_lines(one.log, read.get(one.log, 0))
            for line in text.splitlines():
                if " ERROR " in line or "ERROR/" in line or "CRITICAL" in line:
                    say(f"{time.strftime('%H:%M:%S')} {one.child.name}: {line}  (more in {one.log})")
        await asyncio.sleep(0.5)


def _new_lines(log: Path, offset: int) -> tuple[str, int]:
    """Return the whole lines written since `offset`, and the offset after them."""
    with log.open("rb") as file:
        file.seek(offset)
        new = file.read(1_048_576)
    whole = new[: new.rfind(b"\n") + 1]
    return whole.decode(errors="replace"), offset + len(whole)
