"""The launcher gives a command a real PostgreSQL, hands on its exit code and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg

LAUNCH = [sys.executable, "-m", "tests.with_postgres"]
ASK = """
import os, psycopg
with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    print(*connection.execute("SELECT current_database(), current_setting('data_directory')").fetchone())
raise SystemExit(7)
"""


def test_a_command_gets_a_database_and_its_exit_code_comes_back() -> None:
    done = subprocess.run([*LAUNCH, "python", "-c", ASK], capture_output=True, text=True, timeout=120)
    assert done.returncode == 7, done.stderr
    database, directory = done.stdout.split()
    assert database == "stream"
    assert not Path(directory).exists()


def test_a_signal_ends_the_command_and_the_server() -> None:
    wait = "import os, time; print(os.environ['DATABASE_URL'], flush=True); time.sleep(300)"
    process = subprocess.Popen([*LAUNCH, "python", "-c", wait], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    directory = Path(process.stdout.readline().strip().split("host=")[1])
    assert directory.exists()
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    process.stdout.close()
    assert not directory.exists()


def test_ctrl_c_ends_the_command_and_the_server() -> None:
    wait = "import os, time; print(os.environ['DATABASE_URL'], flush=True); time.sleep(300)"
    process = subprocess.Popen(
        [*LAUNCH, "python", "-c", wait],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        # what runs the tests in the background may have told its children to ignore Ctrl-C
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    directory = Path(process.stdout.readline().strip().split("host=")[1])
    time.sleep(0.3)  # until the launcher waits for its command
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    assert process.wait(60) == 128 + signal.SIGINT
    process.stdout.close()
    assert not directory.exists()


def test_a_command_is_needed() -> None:
    assert subprocess.run(LAUNCH, capture_output=True, timeout=60).returncode == 2


def test_the_fixture_gives_a_real_server(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        row = connection.execute("SELECT version()").fetchone()
    assert row is not None
    assert row[0].startswith("PostgreSQL")
