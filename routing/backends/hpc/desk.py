"""What backends and the dispatcher of an endpoint say to each other, over the key-value server.

| key (`stream:hpc:NAME:` before it) | what                                                                          |
|------------------------------------|-------------------------------------------------------------------------------|
| `inbox`                            | list of messages to the dispatcher, JSON, oldest first                        |
| `status`                           | JSON of `Status`, gone a few seconds after the dispatcher                     |
| `lease`                            | token of the one dispatcher, gone soon after it                               |

| message                                                      | meaning                                              |
|--------------------------------------------------------------|------------------------------------------------------|
| `{"t":"offer", ...OFFER body, "prompt":hex, "until":unix}`   | a sealed job; not to be begun after `until`          |
| `{"t":"begun","cid":hex}`                                    | a worker answers it: never offer it again            |
| `{"t":"done","cid":hex}`                                     | it ended, or nobody waits for it: its place is free  |

Nothing in it is secret: prompts are sealed.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import redis.asyncio as redis
from redis.exceptions import RedisError

from hpc_worker.bodies import Offer
from stream_site.errors import UpstreamError

CALL_TIMEOUT_S = 5.0
STATUS_LIFE_S = 6
LEASE_S = 10.0
INBOX_LIFE_S = 3600
_RENEW = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end"
)
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"


@dataclass(frozen=True)
class Status:
    """How an endpoint stands. `why`: what keeps workers from starting, in words; `step`: of the one being started."""

    ready: int = 0
    starting: int = 0
    free: int = 0
    waiting: int = 0
    step: str = ""
    why: str = ""


def key(name: str, part: str) -> str:
    return f"stream:hpc:{name}:{part}"


def offer_message(offer: Offer, until: float) -> dict[str, Any]:
    """Return an offer as JSON values; `hpc_worker.bodies.load_offer` reads it."""
    sealed = {"cid": offer.cid.hex(), "salt_c": offer.salt_c.hex(), "prompt": offer.prompt.hex()}
    return {"t": "offer", **asdict(offer), **sealed, "until": until}


class Desk:
    """The key-value server, as one process uses it for one or many endpoints. Raises `UpstreamError` when it is away."""

    def __init__(self, url: str) -> None:
        self._redis: redis.Redis[Any] = redis.Redis.from_url(url, decode_responses=True)

    async def close(self) -> None:
        await self._redis.aclose()  # type: ignore[attr-defined]  # newer than its stubs

    # -- of backends

    async def submit(self, name: str, offer: Offer, until: float) -> Status | None:
        """Hand an offer to the dispatcher; return how the endpoint stands, None when no dispatcher runs."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.rpush(key(name, "inbox"), json.dumps(offer_message(offer, until)))
        pipe.expire(key(name, "inbox"), INBOX_LIFE_S)
        pipe.get(key(name, "status"))
        return _status((await self._call(pipe.execute()))[-1])

    async def status(self, name: str) -> Status | None:
        return _status(await self._call(self._redis.get(key(name, "status"))))

    async def say(self, name: str, what: str, cid: bytes) -> None:
        """Say `begun` or `done` of a job."""
        await self._call(self._redis.rpush(key(name, "inbox"), json.dumps({"t": what, "cid": cid.hex()})))

    # -- of the dispatcher

    async def take(self, name: str, timeout_s: float) -> Mapping[str, Any] | None:
        """Return the next message, None when there was none in time."""
        found = await self._call(self._redis.blpop([key(name, "inbox")], timeout=timeout_s), timeout_s)
        return None if found is None else json.loads(found[1])

    async def publish(self, name: str, status: Status) -> None:
        await self._call(self._redis.set(key(name, "status"), json.dumps(asdict(status)), ex=STATUS_LIFE_S))

    async def lease_take(self, name: str) -> str:
        """Return the token of a new lease, empty when another dispatcher holds it."""
        token = secrets.token_hex(16)
        taken = await self._call(self._redis.set(key(name, "lease"), token, nx=True, px=int(LEASE_S * 1000)))
        return token if taken else ""

    async def lease_renew(self, name: str, token: str) -> bool:
        """Say whether the lease is still ours, and hold it for another `LEASE_S`."""
        return bool(await self._call(self._script(_RENEW, key(name, "lease"), token, str(int(LEASE_S * 1000)))))

    async def lease_release(self, name: str, token: str) -> None:
        """Let a successor take over at once."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.execute_command("EVAL", _RELEASE, 1, key(name, "lease"), token)
        pipe.delete(key(name, "status"))
        await self._call(pipe.execute())

    def _script(self, lua: str, *words: str) -> Any:
        return self._redis.execute_command("EVAL", lua, 1, *words)  # type: ignore[no-untyped-call]

    async def _call(self, awaitable: Any, extra_s: float = 0.0) -> Any:
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S + extra_s):
                return await awaitable
        except (RedisError, OSError, TimeoutError) as error:
            raise UpstreamError(
                f"The campus dispatcher could not be asked: the key-value server does not answer ({type(error).__name__}).",
                todo="Try again, or pick another tier.",
            ) from error


def _status(text: str | None) -> Status | None:
    return Status(**json.loads(text)) if text else None


def unix_now() -> float:
    """Return the time that offers' `until` is measured in."""
    return time.time()
