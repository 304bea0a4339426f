"""The programs in docs/relay.md run as they are printed, and its tables name every limit and code."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys

from hpc_worker import wire
from relay.limits import Limits
from tests.integration.relay.peers import CONSUMER, PRODUCER, ROOT, RelayProcess, free_port

RELAY_MD = (ROOT / "docs" / "relay.md").read_text(encoding="utf-8")
PROTOCOL_MD = (ROOT / "docs" / "relay-protocol.md").read_text(encoding="utf-8")


def test_the_printed_producer_and_consumer_talk_over_a_relay() -> None:
    producer, consumer = programs = re.findall(r"```python\n(.*?)```", RELAY_MD, re.DOTALL)
    assert all(sum(bool(line.strip()) for line in program.splitlines()) <= 20 for program in programs)
    relay = RelayProcess(port=free_port())
    relay.name = f"127.0.0.1:{relay.port}"
    relay.start()
    try:
        env = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "RELAY_URL": relay.url,
            "CHANNEL": os.urandom(16).hex(),
            "SALT": os.urandom(32).hex(),
            "CONSUMER_KEY": f"{CONSUMER[0]}:{CONSUMER[1].hex()}",
            "PRODUCER_KEY": f"{PRODUCER[0]}:{PRODUCER[1].hex()}",
            "CONTENT_KEY": "k1:" + os.urandom(32).hex(),
        }
        run = [sys.executable, "-c"]
        eating = subprocess.Popen([*run, consumer], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            relay.wait_for_channels(1)
            made = subprocess.run([*run, producer], env=env, capture_output=True, text=True, timeout=30, check=False)
            out, errors = eating.communicate(timeout=30)
        finally:
            eating.kill()
        assert (made.returncode, made.stdout, made.stderr) == (0, "delivered\n", "")
        assert errors == ""
        *readings, fin, outcome = out.splitlines()
        assert readings == ["1 TEXT 21.4 C", "2 TEXT 21.6 C", "3 TEXT 21.5 C"]
        assert fin.startswith("4 FIN {")
        assert '"finish":"stop"' in fin
        assert outcome == "complete"
    finally:
        relay.kill()


def test_every_limit_and_every_close_code_is_documented() -> None:
    assert [f.name for f in dataclasses.fields(Limits) if f"`{f.name}`" not in RELAY_MD] == []
    assert [code for code in wire.Close if f"| {int(code)} |" not in PROTOCOL_MD] == []
