"""`manage.py hpc_dispatcher`: keep campus workers warm and hand them sealed questions. A second one waits for the first."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from hpc_worker import loop
from routing.backends.hpc.control import ControlPlane
from routing.backends.hpc.controls import control_for
from routing.backends.hpc.desk import Desk
from routing.backends.hpc.directory import Campus, campuses
from routing.backends.hpc.dispatcher import Dispatcher
from stream_site.database import in_database
from stream_site.errors import StreamError

LOOK_EVERY_S = 5.0
log = logging.getLogger("stream.hpc")


class Command(BaseCommand):
    help = (
        "Dispatch questions to campus workers until SIGTERM. Workers of Globus Compute go on; demo workers end with it."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run(self.serve())
        self.stdout.write("dispatcher ended")

    async def serve(self) -> None:
        task = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel if task else lambda: None)
        found = await self._endpoints()
        self.stdout.write(f"dispatcher of {', '.join(campus.name for campus in found)}")
        desk = Desk(settings.REDIS_URL)
        controls: list[ControlPlane] = []
        try:
            async with asyncio.TaskGroup() as group:
                for campus in found:
                    controls.append(control_for(campus))
                    group.create_task(Dispatcher(campus, desk, controls[-1]).run(), name=f"dispatcher {campus.name}")
        finally:
            for control in controls:
                await asyncio.to_thread(control.close)
            await desk.close()

    async def _endpoints(self) -> list[Campus]:
        """Return the endpoints; wait for one when there is none. A later one needs a restart."""
        said = ""
        while True:
            words = "no campus endpoint is switched on; `manage.py hpc_keys new NAME --model MODEL` makes one"
            try:
                found: list[Campus] = await in_database(campuses)
                if found:
                    return found
            except StreamError as error:
                words = f"{error.happened} {error.todo}"
            if words != said:
                log.warning("%s", words)
                said = words
            await asyncio.sleep(LOOK_EVERY_S)
