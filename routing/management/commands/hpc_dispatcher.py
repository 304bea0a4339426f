"""`manage.py hpc_dispatcher`: keep campus workers warm and hand them sealed questions. A second one waits for the first."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from hpc_worker import loop
from routing.backends.hpc.desk import Desk
from routing.backends.hpc.fleet import Fleet


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
        desk = Desk(settings.REDIS_URL)
        try:
            await Fleet(desk).run()
        finally:
            await desk.close()
