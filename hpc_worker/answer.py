"""Answer one job: open its prompt, ask the model, push what it says. Async edge.

A job's request is the JSON of an OpenAI chat completion without model and stream (`hpc_worker.model.REQUEST_FIELDS`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from hpc_worker import crypto
from hpc_worker.bodies import Fin, Offer, Usage
from hpc_worker.config import Settings
from hpc_worker.crypto import CryptoError
from hpc_worker.model import ModelError, ModelServer
from hpc_worker.producer import Control, Identity
from hpc_worker.push import Parked, Pusher, PushJob, PushResult, PushStopped, PushTimeout
from hpc_worker.sse import FinishItem, Item, Reasoning, Text, ToolPiece, UsageItem
from hpc_worker.wire import Kind

_LOG = logging.getLogger("hpc_worker")
_FINISH = {"stop": "stop", "length": "length", "tool_calls": "tool", "content_filter": "content_filter"}
_ARGUMENTS_PIECE = 4000
BATCH_AFTER_S = 5.0  # a batch job does without a relay that cannot be reached for so long
TASK_AFTER_S = 60.0  # a task that cannot reach its relay for so long ends, and asks no model
AWAY_S = 20.0  # a relay that is away for so long after the model has ended is given up by a task


class JobRefused(Exception):
    """Raise for an offer that this worker must not or cannot take. `code` is stable."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


def push_job(settings: Settings, offer: Offer, *, eager: bool) -> PushJob:
    """Return what pushing this offer's answer needs. Raises `JobRefused`."""
    key = settings.e2e_keys.get(offer.kid)
    if key is None:
        raise JobRefused("unknown_kid")
    if offer.relay not in settings.relays:
        raise JobRefused("relay_not_allowed")
    salt_p = os.urandom(32)
    kid = settings.producer_keys.primary
    try:
        keys = crypto.derive_stream(key, crypto.Scope(offer.kid, offer.cid, offer.attempt), offer.salt_c, salt_p)
    except CryptoError as error:
        raise JobRefused(error.reason) from error
    who = Identity(keys, salt_p, kid, settings.producer_keys.keys[kid], settings.relays[offer.relay])
    return PushJob(offer.relay, who, key, offer.salt_c, offer.deadline_s, eager=eager)


def open_prompt(job: PushJob, offer: Offer) -> Mapping[str, Any]:
    """Return the request of an offer. Raises `JobRefused`: it is not authentic, or no request."""
    try:
        plain = crypto.open_request(job.key, job.identity.keys.scope, offer.salt_c, offer.prompt)
        request = json.loads(plain.decode())
    except CryptoError as error:
        raise JobRefused(f"prompt_{error.reason}") from error
    except (ValueError, RecursionError) as error:
        raise JobRefused("prompt_json") from error
    if type(request) is not dict or type(request.get("messages")) is not list:
        raise JobRefused("prompt_json")
    return request


def request_name(offer: Offer) -> str:
    """Return a job's name for the model server's log: the same for each worker that has the job, and no address."""
    what = b"channel/v1 request name\0" + offer.cid + offer.attempt.to_bytes(2, "big")
    return hashlib.sha256(what).hexdigest()[:32]


class Answer:
    """One job on its way. `stop` ends the model's stream at once and says why in FIN.

    `eager` asks the model without waiting for the relay, when a parked socket brings HEAD to it at the same moment: were
    this worker lost before, another one could not know that the model was asked. `batch` asks it also when no relay answers.
    `away_s`: with a complete answer, a relay that is away for so long is given up; None: it is waited for until the deadline.
    """

    def __init__(
        self,
        settings: Settings,
        model: ModelServer,
        offer: Offer,
        *,
        eager: bool = False,
        batch: bool = False,
        away_s: float | None = None,
    ) -> None:
        self._offer = offer
        self._model = model
        self._batch = batch
        self._away_s = away_s
        self._pusher: Pusher | None = None
        self._given_up = False
        self._job = push_job(settings, offer, eager=eager)
        self._request = open_prompt(self._job, offer)
        self._usage: Usage | None = None
        self._asking: asyncio.Task[Fin] | None = None
        self._stopped: Fin | None = None

    async def run(self, parked: Parked | None = None) -> PushResult:
        """Answer it. Asks the model only when the relay gave this worker the job, unless it is eager or batch."""
        job = replace(self._job, eager=self._job.eager and parked is not None)
        async with Pusher(job, self._control, parked=parked) as pusher:
            self._pusher = pusher
            reached = job.eager or await self._reached(pusher)
            if not reached and (pusher.outcome or not self._batch):
                return PushResult(pusher.outcome or "unreachable")
            pusher.state("prefill")
            if self._stopped is None:
                self._asking = asyncio.create_task(self._ask(pusher), name="model")
            fin = await self._end()
            if pusher.outcome in ("replaced", "stale_attempt", "finished"):
                return PushResult(pusher.outcome)
            if self._given_up:
                pusher.give_up()
            return await pusher.finish(fin, None if reached else BATCH_AFTER_S, self._away_s)

    async def _reached(self, pusher: Pusher) -> bool:
        """Wait until the relay gives this worker the job."""
        if self._batch:
            return await pusher.won(BATCH_AFTER_S)
        return await pusher.won(None if self._away_s is None else TASK_AFTER_S)

    def give_up(self) -> None:
        """Do without the relay from now on: what it did not take comes back as the transcript."""
        self._given_up = True
        if self._pusher is not None:
            self._pusher.give_up()

    def stop(self, fin: Fin) -> None:
        """End the model's stream now."""
        if self._stopped is None:
            self._stopped = fin
            if self._asking is not None:
                self._asking.cancel()

    def _control(self, control: Control) -> None:
        if control.kind is Kind.CANCEL:
            self.stop(Fin("cancelled"))

    async def _end(self) -> Fin:
        """Return how the model's stream ended."""
        task = self._asking
        if task is not None:
            try:
                await asyncio.wait({task})
            finally:
                if not task.done():  # this job is being cancelled from outside
                    task.cancel()
            if not task.cancelled():
                return task.result()
        stopped = self._stopped or Fin("cancelled")
        return Fin(stopped.finish, usage=self._usage, error=stopped.error, detail=stopped.detail)

    async def _ask(self, pusher: Pusher) -> Fin:
        finish = ""
        try:
            async with aclosing(self._model.stream(self._request, request_name(self._offer))) as items:
                async for item in items:
                    if isinstance(item, FinishItem):
                        finish = item.reason
                    else:
                        await self._pass_on(pusher, item)
        except ModelError as error:
            return Fin("error", usage=self._usage, error=error.code, detail=error.words)
        except PushStopped as error:
            return Fin("cancelled", usage=self._usage, error=error.outcome)
        except PushTimeout:
            return Fin("error", usage=self._usage, error="consumer_gone")
        except Exception:  # noqa: BLE001
            # the one edge of a job: its fault must neither end the worker nor leave the reader without FIN
            _LOG.exception("a job failed inside the worker")
            return Fin("error", usage=self._usage, error="worker", detail="The worker met a fault of its own.")
        return Fin(_FINISH.get(finish, "stop"), usage=self._usage)

    async def _pass_on(self, pusher: Pusher, item: Item) -> None:
        if isinstance(item, Text):
            await pusher.send(Kind.TEXT, item.text)
        elif isinstance(item, Reasoning):
            await pusher.send(Kind.REASONING, item.text)
        elif isinstance(item, ToolPiece):
            for body in tool_bodies(item):
                await pusher.send_json(body)
        elif isinstance(item, UsageItem):
            self._usage = Usage(item.prompt, item.completion, item.cached, item.reasoning, item.estimated)


def tool_bodies(piece: ToolPiece) -> list[bytes]:
    """Return a piece of a tool call as JSON bodies that fit in frames; long arguments make several pieces."""
    pieces = [
        piece.arguments[at : at + _ARGUMENTS_PIECE] for at in range(0, len(piece.arguments), _ARGUMENTS_PIECE)
    ] or [""]
    out = []
    for number, arguments in enumerate(pieces):
        first = {"id": piece.id[:200], "name": piece.name[:200]} if number == 0 else {"id": "", "name": ""}
        out.append(json.dumps({"index": piece.index, **first, "arguments": arguments}, ensure_ascii=False).encode())
    return out
