"""`manage.py runner`: answer turns outside the web processes. Start as many as needed; set RUNNER_MODE=separate."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import Any

from django.core.management.base import BaseCommand

from chat.runner.runner import Runner
from hpc_worker import loop
from routing.wiring import build_engine


class Command(BaseCommand):
    help = "Answer queued turns until SIGTERM; then let running answers end (RUNNER_DRAIN_S)."

    def handle(self, *args: Any, **options: Any) -> None:
        loop.run(self.serve())

    async def serve(self) -> None:
        runner = Runner(build_engine())
        task = asyncio.create_task(runner.run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        self.stdout.write(f"runner {runner.name} answers up to {runner.conf.concurrency} turns at once")
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await runner.engine.close()
        self.stdout.write("runner ended")
