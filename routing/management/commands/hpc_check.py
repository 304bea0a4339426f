"""Say which part of the way to the campus GPUs works, and what to do about the first that does not."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from routing.backends.hpc.check import Verdict, globus_hops, settings_hop, walk
from routing.backends.hpc.globus_settings import globus_control


class Command(BaseCommand):
    help = (
        "Check the way to an HPC endpoint: settings, credential, endpoint, function, worker. Exit code 1: a part fails."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("endpoint", help="the endpoint's UUID, as `globus-compute-endpoint list` shows it")

    def handle(self, *args: Any, endpoint: str, **options: Any) -> None:
        names = ("GLOBUS_COMPUTE_CLIENT_ID", "GLOBUS_COMPUTE_CLIENT_SECRET")
        with closing(globus_control(endpoint)) as control:
            first = settings_hop({name: getattr(settings, name) for name in names})
            failed = ""
            for hop, finding in walk([first, *globus_hops(control, settings.GLOBUS_COMPUTE_FUNCTION_ID)]):
                self.stdout.write(f"{finding.verdict:9}  {hop.name}: {finding.said}")
                if finding.verdict is Verdict.FAILS:
                    failed = hop.name
                    self.stdout.write(f"{'':9}  What to do: {finding.todo}")
        if failed:
            raise CommandError(f"The part “{failed}” fails.")
        self.stdout.write("Workers can be started.")
