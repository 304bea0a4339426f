"""`manage.py explain_turn ID`: what happened in a turn, step by step, from the judge to the ledger."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from chat.explain import explain
from stream_site.errors import NotFound


class Command(BaseCommand):
    help = "Show one trace of a turn: judge, policy, attempts and their states, the campus's relay, the ledger."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("id", help="the turn's id")

    def handle(self, *args: Any, id: str, **options: Any) -> None:
        try:
            for line in explain(id):
                self.stdout.write(line)
        except NotFound as error:
            raise CommandError(f"{error.happened} {error.todo}") from None
