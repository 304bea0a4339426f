"""Run a resident worker: `python -m hpc_worker mailbox.json`, or `-` to read the mailbox from standard input."""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from pathlib import Path

from hpc_worker import worker
from hpc_worker.answer import JobRefused
from hpc_worker.config import ConfigError


def main() -> int:
    """Return 0 when drained, 1 when the mailbox was lost or refused, 2 when it could not start."""
    parser = argparse.ArgumentParser(prog="python -m hpc_worker", description=__doc__)
    parser.add_argument("mailbox", help="file with the mailbox as JSON: relay, kid, cid, attempt, salt_c")
    path = parser.parse_args().mailbox
    logging.Formatter.converter = time.gmtime
    logging.basicConfig(level=logging.INFO, format="%(asctime)sZ %(name)s %(levelname)s %(message)s")
    for name in ("httpx", "websockets"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        outcome = worker.run(json.loads(text))["outcome"]
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except (OSError, ValueError, JobRefused) as error:
        sys.stderr.write(f"The worker did not start and took no job. The mailbox cannot be used: {error}.\n")
        return 2
    sys.stdout.write(f"ended: {outcome}\n")
    return 0 if outcome == "drained" else 1


if __name__ == "__main__":
    sys.exit(main())
