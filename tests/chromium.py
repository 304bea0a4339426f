"""Where Chromium is, and what to say when it is nowhere."""

from __future__ import annotations

import os
import shutil

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = (
    "Chromium was not found, so the browser tests do not run. "
    "Install it (Debian: apt-get install chromium) or set CHROMIUM=/path/to/chromium."
)


def find_chromium() -> str | None:
    """Return the path of Chromium: CHROMIUM, else the first on PATH."""
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    return next((path for program in PROGRAMS if (path := shutil.which(program))), None)


def in_ci() -> bool:
    """Return whether this is CI, where a missing part is a failure."""
    return os.environ.get("CI", "").lower() in ("1", "true")
