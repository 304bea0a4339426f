"""`python -m tests`: all tests in three runs of pytest. Stops at the first that fails; the last line is pytest's.

Browser tests have a process of their own: Playwright keeps an event loop running in it. Arguments go to every run.
"""

from __future__ import annotations

import subprocess
import sys

from tests.chromium import MISSING, find_chromium, in_ci

PYTEST = [sys.executable, "-m", "pytest"]


def main() -> int:
    """Run the tests; return the first exit code that is not 0."""
    arguments = sys.argv[1:]
    runs = [
        ("browser", [*PYTEST, "-m", "browser", *arguments]),
        ("data on PostgreSQL", [sys.executable, "-m", "tests.with_postgres", *PYTEST, "-m", "data", *arguments]),
        ("unit and integration on SQLite", [*PYTEST, "-m", "not browser", *arguments]),
    ]
    if not find_chromium():
        print(MISSING, flush=True)
        if in_ci():
            print("In CI that is a failure.", flush=True)
            return 1
        del runs[0]
    for name, command in runs:
        print(f"\n── {name}", flush=True)
        code = subprocess.run(command, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
