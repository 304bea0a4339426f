"""All dispatchers of one process: one for each endpoint that is switched on, changed within seconds of the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from django.db import Error as DatabaseError

from routing.backends.hpc.control import ControlPlane
from routing.backends.hpc.controls import control_for
from routing.backends.hpc.desk import Desk
from routing.backends.hpc.directory import Campus, campuses
from routing.backends.hpc.dispatcher import Dispatcher
from stream_site.database import in_database
from stream_site.errors import StreamError

LOOK_EVERY_S = 5.0
NONE = "no campus endpoint is switched on; `manage.py hpc_keys new NAME --model MODEL` makes one"

log = logging.getLogger("stream.hpc")


@dataclass
class Post:
    """One endpoint being served."""

    campus: Campus
    control: ControlPlane
    dispatcher: Dispatcher
    task: asyncio.Task[None]


class Fleet:
    """Run until cancelled. An endpoint that cannot be served is said in the log, and the others go on."""

    def __init__(self, desk: Desk, make: Callable[[Campus], ControlPlane] = control_for) -> None:
        self._desk = desk
        self._make = make
        self._posts: dict[str, Post] = {}
        self._said: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Serve, and look for changes every few seconds."""
        try:
            while True:
                try:
                    await self._look()
                except DatabaseError as error:
                    log.warning("the endpoints could not be read: %s", error)
                await asyncio.sleep(LOOK_EVERY_S)
        finally:
            for name in list(self._posts):
                await self._end(name)

    async def _look(self) -> None:
        found, wrong = await in_database(campuses)
        words = {f"{error.happened} {error.todo}" for error in wrong}
        wanted = {campus.name: campus for campus in found}
        for name, post in list(self._posts.items()):
            if post.task.done():
                log.error("%s: its dispatcher failed and is started again", name, exc_info=post.task.exception())
                await self._end(name)
            elif wanted.get(name) != post.campus:
                log.info("%s: %s", name, "changed" if name in wanted else "switched off")
                if name not in wanted:
                    await post.dispatcher.end_workers()
                await self._end(name)
        for name, campus in wanted.items():
            if name not in self._posts:
                try:
                    self._begin(campus)
                except StreamError as error:
                    words.add(f"{name}: {error.happened} {error.todo}")
        self._say(frozenset(words or ({NONE} if not found else ())))

    def _begin(self, campus: Campus) -> None:
        control = self._make(campus)
        dispatcher = Dispatcher(campus, self._desk, control)
        task = asyncio.create_task(dispatcher.run(), name=f"dispatcher {campus.name}")
        self._posts[campus.name] = Post(campus, control, dispatcher, task)
        log.info("%s: waiting for its lease", campus.name)

    async def _end(self, name: str) -> None:
        post = self._posts.pop(name)
        post.task.cancel()
        await asyncio.wait({post.task})
        await asyncio.to_thread(post.control.close)

    def _say(self, words: frozenset[str]) -> None:
        for sentence in sorted(words - self._said):
            log.warning("%s", sentence)
        self._said = words
