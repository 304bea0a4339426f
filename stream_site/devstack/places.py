"""What the stack needs for itself before anything starts: the lock on its folder, the port, a private socket folder."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from pathlib import Path
from typing import IO

from stream_site.devstack.children import StackError
from stream_site.devstack.specs import Site

LEFTOVER_WAIT_S = 6.0


def take_lock(site: Site) -> IO[str]:
    """Return the open lock file of VAR_DIR. Raises `StackError` when another stack holds it.

    A supervisor that was killed leaves its guard, which holds the lock until the last process has ended: that is
    waited for, a few seconds.
    """
    file = (site.var_dir / "devstack.lock").open("a+", encoding="utf-8")
    deadline = time.monotonic() + LEFTOVER_WAIT_S
    while not _lock(file):
        file.seek(0)
        pid, _, url = file.read().strip().partition(" ")
        if _is_alive(pid) or time.monotonic() > deadline:
            file.close()
            raise StackError(
                f"STREAM already runs from {site.var_dir} (process {pid}, {url}). Nothing was started.\n"
                "Use that one, or stop it with Ctrl-C where it runs, "
                "or give this one a folder of its own: STREAM_VAR_DIR=/another/folder make run PORT=8001"
            )
        time.sleep(0.1)
    file.truncate(0)
    file.write(f"{os.getpid()} {site.url}\n")
    file.flush()
    return file


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def check_port(site: Site) -> None:
    """Raise `StackError`, in words, when the web server could not listen on its host and port."""
    problem = _bind_problem(site.host, site.port)
    if problem is None:
        return
    if problem.errno == errno.EADDRINUSE:
        others = range(site.port + 1, min(site.port + 50, 65536))
        free = next((port for port in others if _bind_problem(site.host, port) is None), "N")
        raise StackError(
            f"Port {site.port} on {site.host} is taken by another program. Nothing was started.\n"
            f"Stop that program, or use another port: make run PORT={free}"
        )
    if problem.errno == errno.EACCES:
        raise StackError(
            f"This account may not listen on port {site.port}: ports below 1024 need root. Nothing was started.\n"
            "Use a higher port: make run PORT=8000"
        )
    place = f"{site.host}:{site.port}"
    raise StackError(f"The web server cannot listen on {place}: {problem.strerror}. Nothing was started.")


def _bind_problem(host: str, port: int) -> OSError | None:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            # As the web server does: a port whose last connections are still closing is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None


def free_port() -> int:
    """Return a loopback port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def private_folder(path: Path) -> None:
    """Make `path` a folder only its owner can enter. Raises `StackError` when it belongs to somebody else."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.getuid():
        raise StackError(f"The folder {path} is not this account's own. Set STREAM_VAR_DIR to another folder.")
    path.chmod(0o700)
