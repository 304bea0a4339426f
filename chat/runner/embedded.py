"""The runner inside the web process: one per event loop, started by the first who needs it."""

from __future__ import annotations

import asyncio
import logging
from weakref import WeakKeyDictionary

from django.conf import settings

from chat.models import Turn
from chat.runner.runner import Runner, ring_runners
from chat.services import Claim
from routing.wiring import build_engine

log = logging.getLogger("stream.runner")
_runners: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[Runner, asyncio.Task[None]]] = WeakKeyDictionary()


def embedded_runner() -> Runner | None:
    """Return the runner of this loop, starting it when needed; None when runners are separate processes."""
    if settings.RUNNER_MODE != "embedded":
        return None
    loop = asyncio.get_running_loop()
    held = _runners.get(loop)
    if held is None or held[1].done():
        runner = Runner(build_engine())
        held = (runner, loop.create_task(runner.run(), name="embedded-runner"))
        _runners[loop] = held
    return held[0]


async def start_embedded_runner() -> None:
    """Start the runner with the process; it makes its slow parts ready while the first pages are served."""
    embedded_runner()


async def stop_embedded_runner() -> None:
    """Drain and end the runner of this loop, if there is one."""
    held = _runners.pop(asyncio.get_running_loop(), None)
    if held is None:
        return
    runner, task = held
    task.cancel()
    await asyncio.wait({task})
    await runner.engine.close()


async def wake_runner(turn: Turn) -> None:
    """See that a runner takes `turn`: this process's own, when the turn was stored as its own, else any."""
    runner = embedded_runner()
    if runner is not None and turn.runner == runner.name:
        runner.start(Claim(turn, turn.fence))
    elif runner is not None:
        runner.bell.set()
    else:
        await ring_runners("turn.queued", turn.id)
