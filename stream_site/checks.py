"""System checks of the site's settings, each with a stable id and a hint.

stream.E001  VAR_DIR cannot be written                         always
stream.E002  the tiers file is missing                         always
stream.E003  debug pages are on                                `check --deploy`
stream.E004  the site's address is not https                   `check --deploy`
stream.E005  a shared database, but a secret key of this machine `check --deploy`
stream.W006  the demonstration mode is on                      `check --deploy`
stream.W007  SQLite                                            `check --deploy`
stream.W008  every host name is accepted                       `check --deploy`
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register


@register
def check_files(app_configs: Any = None, **kwargs: Any) -> Sequence[CheckMessage]:
    """Check that what the site writes to and reads from is there."""
    found: list[CheckMessage] = []
    if not os.access(settings.VAR_DIR, os.W_OK | os.X_OK):
        found.append(
            Error(
                f"The folder {settings.VAR_DIR} cannot be written.",
                hint="Give it to the account that runs STREAM, or set STREAM_VAR_DIR to another folder.",
                id="stream.E001",
            )
        )
    if not Path(settings.TIERS_FILE).is_file():
        found.append(
            Error(
                f"The tiers file {settings.TIERS_FILE} is missing.",
                hint="Set STREAM_TIERS_FILE to an existing file, or unset it to use the one that comes with STREAM.",
                id="stream.E002",
            )
        )
    return found


@register(Tags.security, deploy=True)
def check_production(app_configs: Any = None, **kwargs: Any) -> Sequence[CheckMessage]:
    """Check what is right for a first look and wrong for a site that people use."""
    found: list[CheckMessage] = []
    if settings.DEBUG:
        found.append(
            Error("Debug pages show settings and source to everyone.", hint="Unset STREAM_DEBUG.", id="stream.E003")
        )
    if not settings.HTTPS:
        found.append(
            Error(
                f"The site's address {settings.SITE_URL} is not https: passwords and questions travel in clear.",
                hint="Set STREAM_SITE_URL=https://your.site and serve it so.",
                id="stream.E004",
            )
        )
    if settings.DEMO:
        found.append(
            Warning(
                "The demonstration mode is on: it has an account whose password lies in VAR_DIR.",
                hint="Unset STREAM_DEMO.",
                id="stream.W006",
            )
        )
    if "*" in settings.ALLOWED_HOSTS:
        found.append(
            Warning(
                "Every host name is accepted.",
                hint="Set STREAM_ALLOWED_HOSTS to the names of the site.",
                id="stream.W008",
            )
        )
    return found + list(check_shared_state())


def check_shared_state() -> Sequence[CheckMessage]:
    """Check that what several machines share is not kept on one of them."""
    if settings.DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
        return [
            Warning(
                "SQLite serves one machine and one writer at a time.",
                hint="Set DATABASE_URL=postgres://... before many people use the site.",
                id="stream.W007",
            )
        ]
    own = settings.VAR_DIR / "secret_key"
    if own.is_file() and own.read_text(encoding="ascii") == settings.SECRET_KEY:
        return [
            Error(
                "The secret key was made by this machine: another one would not accept its sessions.",
                hint="Set STREAM_SECRET_KEY (or STREAM_SECRET_KEY_FILE) to the same value on all machines.",
                id="stream.E005",
            )
        ]
    return []
