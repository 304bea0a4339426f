"""Lead the process group of the stack and end it when the supervisor is gone, however it went.

Standard input is a pipe whose other end only the supervisor holds: end of file means that it is gone. A pipe works
on every Unix; a parent-death signal is Linux only. Run by file name, with nothing but the standard library.
"""

from __future__ import annotations

import os
import signal
import sys
import time

GRACE_S = 3.0


def main() -> None:
    """Wait for the supervisor's end, then end the group, this process included."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while sys.stdin.buffer.read(1):
        pass
    group = os.getpgrp()
    os.killpg(group, signal.SIGTERM)
    time.sleep(GRACE_S)
    os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
