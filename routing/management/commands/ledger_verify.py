"""Check that the budgets say what the ledger says. Exit code 1 when they do not."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError

from routing.ledger_check import verify


class Command(BaseCommand):
    help = "Compare every budget with the ledger and list what differs."

    def handle(self, *args: Any, **options: Any) -> None:
        differences = verify()
        for difference in differences:
            self.stdout.write(str(difference))
        if differences:
            raise CommandError(f"{len(differences)} differences between budgets and ledger.")
        self.stdout.write("Every budget agrees with the ledger.")
