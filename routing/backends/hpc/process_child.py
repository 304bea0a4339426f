"""A worker process of the demonstration: `python -m routing.backends.hpc.process_child`, started by `process`.

The first line of standard input is JSON: {"mode", "arguments", "environ"}. The end of standard input means that the
parent is gone, however it went: the worker drains and ends. Only the worker's own package is imported.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time

from hpc_worker import config, worker
from hpc_worker.answer import JobRefused
from hpc_worker.config import ConfigError

GRACE_S = 8.0


def main() -> int:
    """Return 0 when drained or answered, 1 when the mailbox was lost, 2 when it could not start."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s %(message)s")
    for name in ("httpx", "websockets"):
        logging.getLogger(name).setLevel(logging.WARNING)
    order = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        settings = config.read({**_tuning(), **order["environ"]})
        if order["mode"] == "resident":
            found = worker.run(order["arguments"], settings)
            lost = found["outcome"] != "drained" and not found["transcripts"]
        else:
            found, lost = worker.run_task(order["arguments"], settings), False
        sys.stdout.write(json.dumps(found))
    except (ConfigError, JobRefused) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return int(lost)


def _tuning() -> dict[str, str]:
    """Return the worker's settings of this environment that are not secret, such as STREAM_CAPACITY."""
    return {name: os.environ[name] for name in config.NAMES if name in os.environ and name not in config.SECRETS}


def _end_with_parent() -> None:
    while os.read(0, 1):  # not through sys.stdin: a thread that waits there would spoil the interpreter's end
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
