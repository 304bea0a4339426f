"""Which relay carries a channel: highest random weight over `RELAY_URLS`, so relays share no state. Pure.

Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998. Adding or removing one of N
relays moves one channel in N.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence


def ranked(cid: bytes, urls: Sequence[str]) -> list[str]:
    """Return `urls` by preference for `cid`; the order of `urls` does not matter. Raises `ValueError` when empty."""
    if not urls:
        raise ValueError("there is no relay to choose from")
    return sorted(set(urls), key=lambda url: (_weight(cid, url), url), reverse=True)


def choose(cid: bytes, urls: Sequence[str]) -> str:
    """Return the relay of `cid`. Raises `ValueError` when there is none."""
    return ranked(cid, urls)[0]


def _weight(cid: bytes, url: str) -> bytes:
    return hashlib.blake2b(url.encode(), key=cid, digest_size=16).digest()
