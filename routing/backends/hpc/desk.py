"""What backends and the dispatcher of an endpoint say to each other, over the key-value server.

| key (`stream:hpc:NAME:` before it) | what                                                                          |
|------------------------------------|-------------------------------------------------------------------------------|
| `inbox`                            | list of messages to the dispatcher, JSON, oldest first                        |
| `taken`                            | those the dispatcher took and has not dealt with; a successor reads them      |
| `job:CID`                          | JSON of `JobNote`: what the dispatcher knows of one job                       |
| `status`                           | JSON of `Status`, gone a few seconds after the dispatcher                     |
| `lease`                            | token of the one dispatcher, gone soon after it                               |

| message                                                      | meaning                                              |
|--------------------------------------------------------------|------------------------------------------------------|
| `{"t":"offer", ...OFFER body, "prompt":hex, "until":unix}`   | a sealed job; not to be begun after `until`          |
| `{"t":"begun","cid":hex}`                                    | a worker answers it: never offer it again            |
| `{"t":"done","cid":hex}`                                     | it ended, or nobody waits for it: its place is free  |

Nothing in it is secret: prompts and transcripts are sealed.
"""

from __future__ import annotations

import asyncio
import json
import logging
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
NOTE_LIFE_S = 900
_RENEW = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else return 0 end"
)
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"

log = logging.getLogger("stream.hpc")


@dataclass(frozen=True)
class Status:
    """How an endpoint stands. `why`: what keeps workers from starting, in words; `step`: of the one being started."""

    ready: int = 0
    starting: int = 0
    free: int = 0
    waiting: int = 0
    step: str = ""
    why: str = ""


@dataclass(frozen=True)
class JobNote:
    """What became of one job. `mode` and `job`: how it was given out, and the control plane's name for that.

    `error`, a sentence, and `todo`: it will not be answered. `transcript`: the sealed rest of its answer, in hex.
    """

    mode: str = ""
    job: str = ""
    state: str = ""
    detail: str = ""
    error: str = ""
    todo: str = ""
    transcript: str = ""


@dataclass(frozen=True)
class Taken:
    """A message, and the text by which `Desk.forget` finds it."""

    text: str
    message: Mapping[str, Any]


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

    async def look(self, name: str, cid: bytes) -> tuple[Status | None, JobNote]:
        """Return how the endpoint stands, and what is known of one job."""
        status, note = await self._call(self._redis.mget(key(name, "status"), _job(name, cid)))
        return _status(status), JobNote(**json.loads(note)) if note else JobNote()

    async def say(self, name: str, what: str, cid: bytes) -> None:
        """Say `begun` or `done` of a job."""
        pipe = self._redis.pipeline(transaction=False)
        pipe.rpush(key(name, "inbox"), json.dumps({"t": what, "cid": cid.hex()}))
        pipe.expire(key(name, "inbox"), INBOX_LIFE_S)
        await self._call(pipe.execute())

    # -- of the dispatcher

    async def take(self, name: str, timeout_s: float) -> Taken | None:
        """Return the next message, None when there was none in time. It stays in `taken` until `forget`."""
        move = ("BLMOVE", key(name, "inbox"), key(name, "taken"), "LEFT", "RIGHT", str(timeout_s))
        text = await self._call(self._redis.execute_command(*move), timeout_s)  # type: ignore[no-untyped-call]
        return None if text is None else await self._read(name, text)

    async def taken(self, name: str) -> list[Taken]:
        """Return what was taken and not dealt with, oldest first."""
        texts = await self._call(self._redis.lrange(key(name, "taken"), 0, -1))
        found = [await self._read(name, text) for text in texts]
        return [taken for taken in found if taken is not None]

    async def forget(self, name: str, *texts: str) -> None:
        """Note that messages were dealt with."""
        pipe = self._redis.pipeline(transaction=False)
        for text in texts:
            pipe.lrem(key(name, "taken"), 1, text)
        pipe.expire(key(name, "taken"), INBOX_LIFE_S)
        await self._call(pipe.execute())

    async def note(self, name: str, cid: bytes, note: JobNote) -> None:
        """Say what became of a job."""
        await self._call(self._redis.set(_job(name, cid), json.dumps(asdict(note)), ex=NOTE_LIFE_S))

    async def _read(self, name: str, text: str) -> Taken | None:
        try:
            message = json.loads(text)
            if message["t"] == "offer" or bytes.fromhex(message["cid"]):
                return Taken(text, message)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s: a message to the dispatcher cannot be read: %s", name, type(error).__name__)
        await self.forget(name, text)
        return None

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


def _job(name: str, cid: bytes) -> str:
    return key(name, f"job:{cid.hex()}")


def _status(text: str | None) -> Status | None:
    return Status(**json.loads(text)) if text else None


def unix_now() -> float:
    """Return the time that offers' `until` is measured in."""
    return time.time()
