"""One HTTP GET with the standard library: a full client takes half a second of the start to import."""

from __future__ import annotations

import asyncio
import http.client
import urllib.error
import urllib.request

MAX_BYTES = 4 * 1024 * 1024
# A proxy of the environment is for the outside; what is asked here runs on this machine or beside it.
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NoAnswer(Exception):
    """Nothing that speaks HTTP answered in time."""


async def get(url: str, timeout_s: float) -> tuple[int, bytes]:
    """Return status and body of a GET, within `timeout_s` in all. Raises `NoAnswer`."""
    try:
        async with asyncio.timeout(timeout_s):
            return await asyncio.to_thread(_get, url, timeout_s)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise NoAnswer(str(error)) from error


def _get(url: str, timeout_s: float) -> tuple[int, bytes]:
    try:
        with OPENER.open(url, timeout=timeout_s) as answer:
            return answer.status, answer.read(MAX_BYTES)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read(MAX_BYTES)
