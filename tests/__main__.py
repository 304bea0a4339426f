"""`python -m tests`: all tests in four runs of pytest. Stops at the first that fails; the last line is pytest's.

Browser tests have a process of their own: Playwright keeps an event loop running in it. So have those with the real
Globus Compute, whose SDK is led by the environment. The last run, the longest, uses up to four processors.
Arguments go to every run.
"""

from __future__ import annotations

import subprocess
import sys

from tests.chromium import MISSING, find_chromium, in_ci
from tests.globus_parts import missing_parts

PYTEST = [sys.executable, "-m", "pytest"]
SIDE_BY_SIDE = ["-n", "auto", "--maxprocesses", "4", "--dist", "worksteal"]


def main() -> int:
    """Run the tests; return the first exit code that is not 0."""
    arguments = sys.argv[1:]
    browser = ("browser", [*PYTEST, "-m", "browser", *arguments])
    globus = ("Globus Compute", [*PYTEST, "-m", "globus", *arguments])
    runs = [
        browser,
        globus,
        ("data on PostgreSQL", [sys.executable, "-m", "tests.with_postgres", *PYTEST, "-m", "data", *arguments]),
        ("unit and integration on SQLite", [*PYTEST, *SIDE_BY_SIDE, "-m", "not browser and not globus", *arguments]),
    ]
    for run, missing in ((browser, "" if find_chromium() else MISSING), (globus, missing_parts())):
        if not missing:
            continue
        print(missing, flush=True)
        if in_ci():
            print("In CI that is a failure.", flush=True)
            return 1
        runs.remove(run)
    for name, command in runs:
        print(f"\n── {name}", flush=True)
        code = subprocess.run(command, check=False).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
