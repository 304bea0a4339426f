from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from stream_site.devstack.children import StackError, ending, tail
from stream_site.devstack.places import check_port, free_port, private_folder, take_lock
from stream_site.devstack.specs import Site


def site(folder: Path, port: int = 8000, host: str = "127.0.0.1") -> Site:
    return Site("python", folder, host, port)


def test_a_free_port_is_accepted(tmp_path: Path) -> None:
    port = free_port()
    check_port(site(tmp_path, port))
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0  # nothing is left listening


def test_a_taken_port_is_said_with_another_one(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(StackError, match=rf"Port {port} .* is taken(.|\n)*make run PORT=\d+"):
            check_port(site(tmp_path, port))


def test_a_host_that_is_not_here_is_said(tmp_path: Path) -> None:
    with pytest.raises(StackError, match=r"cannot listen on no\.such\.invalid:8000"):
        check_port(site(tmp_path, host="no.such.invalid"))


def test_one_stack_per_folder(tmp_path: Path) -> None:
    with take_lock(site(tmp_path)), pytest.raises(StackError, match=rf"already runs from .*process {os.getpid()}"):
        take_lock(site(tmp_path))
    take_lock(site(tmp_path)).close()


def test_a_folder_is_made_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    private_folder(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_a_link_is_not_an_own_folder(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(StackError, match="not this account's own"):
        private_folder(tmp_path / "link")


def test_an_ending_is_said_in_words() -> None:
    assert ending(3) == "ended by itself with exit code 3"
    assert ending(-9) == "was ended by the signal SIGKILL"


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "web.log"
    log.write_text("".join(f"line {n}\n" for n in range(5000)), encoding="utf-8")
    assert tail(log, 2) == "    line 4998\n    line 4999"
    log.write_text("", encoding="utf-8")
    assert tail(log) == "    (it wrote nothing)"
