"""`manage.py devstack`: everything on one machine, for a first look and for development."""

from __future__ import annotations

import sys
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from stream_site.devstack.specs import Site
from stream_site.devstack.supervisor import run


class Command(BaseCommand):
    help = "Start and stop everything a fresh machine needs: key-value server, model, web, worker, beat."
    # The children check; a second time would only make the start slower.
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to serve on (default: %(default)s)")
        parser.add_argument("--port", type=int, default=8000, help="port to serve on (default: %(default)s)")

    def handle(self, *args: Any, host: str, port: int, **options: Any) -> None:
        site = Site(python=sys.executable, var_dir=settings.VAR_DIR.resolve(), host=host, port=port)
        sys.exit(run(site, self._say))

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()
