"""Search the memory of a running process, as a core dump would hold it. Linux: /proc/PID/maps and mem."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

CHUNK = 16 * 1024 * 1024
MIN_FORM = 12  # shorter forms would be found by chance


def regions(pid: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of every readable mapping but the kernel's own."""
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        span, mode, *rest = line.split()
        if mode.startswith("r") and not (rest and rest[-1] in ("[vvar]", "[vsyscall]", "[vvar_vclock]")):
            start, _, end = span.partition("-")
            yield int(start, 16), int(end, 16)


def forms(secret: bytes) -> Iterator[bytes]:
    """Yield what a secret looks like raw, in hex, in base64 at each of its three alignments, and in UTF-16."""
    yield secret
    yield secret.hex().encode()
    yield secret.hex().upper().encode()
    for lead in range(3):
        coded = base64.b64encode(bytes(lead) + secret)
        # the first and the last characters depend on the neighbours
        inner = coded[-(-lead * 8 // 6) : len(coded) - 4]
        yield inner
        yield inner.replace(b"+", b"-").replace(b"/", b"_")
    with contextlib.suppress(UnicodeDecodeError):
        yield secret.decode().encode("utf-16-le")


def search(pid: int, secrets: Mapping[str, bytes]) -> Counter[str]:
    """Stop the process, count how often each secret is in its memory in any form, and let it go on."""
    wanted = [(name, form) for name, secret in secrets.items() for form in set(forms(secret)) if len(form) >= MIN_FORM]
    overlap = max(len(form) for _, form in wanted) - 1
    found: Counter[str] = Counter(dict.fromkeys(secrets, 0))
    os.kill(pid, signal.SIGSTOP)
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            for start, end in regions(pid):
                tail = b""
                for data in _read(memory.fileno(), start, end):
                    block = tail + data
                    for name, form in wanted:
                        found[name] += block.count(form)
                    tail = block[-overlap:]
    finally:
        os.kill(pid, signal.SIGCONT)
    return found


def _read(fd: int, start: int, end: int) -> Iterator[bytes]:
    at = start
    while at < end:
        try:
            data = os.pread(fd, min(CHUNK, end - at), at)
        except OSError:  # a page that cannot be read, such as one behind the end of its file
            return
        if not data:
            return
        yield data
        at += len(data)
