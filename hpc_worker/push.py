"""Push one model stream to the relay, through restarts of the relay and the network. Async edge.

    async with Pusher(job, on_control=...) as pusher:
        if await pusher.won():
            await pusher.send(Kind.TEXT, "Hello")        waits when 8 MiB are not acknowledged
            result = await pusher.finish(Fin("stop"))    delivered, or the sealed transcript to return

Two tasks serve a connection: the reader (this object's own task) and one writer, which also keeps the two timers,
flush after 25 ms and ALIVE after 10 s of silence. `hpc_worker.producer` decides; this module moves bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from hpc_worker import bodies
from hpc_worker.coalesce import Coalescer
from hpc_worker.dial import CONNECT_TIMEOUT_S, DIAL_ERRORS, backoff_s, close_code, dial
from hpc_worker.producer import MAX_UNACKED_BYTES, Action, Control, Identity, Producer, Retry, Stop, Won
from hpc_worker.transcript import seal_transcript
from hpc_worker.waiting import within
from hpc_worker.wire import Kind

ALIVE_EVERY_S = 10.0
LOOK_EVERY_S = 0.25
_CLOSING_S = 2.0
_NO_TRANSCRIPT = frozenset({"delivered", "replaced", "finished", "stale_attempt"})
_POINTLESS = frozenset({"replaced", "finished", "stale_attempt"})


@dataclass(frozen=True, repr=False)
class PushJob:
    """One stream to push. `deadline_s` counts from the start: after it nothing is retried.

    `eager` sends frames together with `open`; only for a job that nobody else can have been given.
    """

    relay_url: str
    identity: Identity
    key: bytes
    salt_c: bytes
    deadline_s: float
    eager: bool = False
    max_unacked: int = MAX_UNACKED_BYTES
    alive_every_s: float = ALIVE_EVERY_S


@dataclass(frozen=True)
class PushResult:
    """How pushing ended. `transcript` is what the consumer did not acknowledge, sealed; None when it has all.

    `outcome` is one of `producer.OUTCOMES`, "deadline", or "unreachable": the relay stayed away.
    """

    outcome: str
    transcript: bytes | None = None


@dataclass(frozen=True)
class Parked:
    """A connected socket and the last challenge that came on it."""

    socket: ClientConnection
    challenge: str


class PushStopped(Exception):
    """Raise when going on with the model is pointless: another instance or attempt owns the channel, or it is over."""

    def __init__(self, outcome: str) -> None:
        super().__init__(outcome)
        self.outcome = outcome


class PushTimeout(Exception):
    """Raise when the deadline passes while the consumer takes nothing. `finish` still returns the transcript."""


class Pusher:
    """Push one stream. `on_control` is called, in the event loop, with each authentic instruction of the platform."""

    def __init__(
        self,
        job: PushJob,
        on_control: Callable[[Control], None],
        *,
        parked: Parked | None = None,
        alive: Callable[[], bodies.Alive] | None = None,
    ) -> None:
        self._job = job
        self._on_control = on_control
        self._parked = parked
        self._state = "queued"
        self._alive = alive or (lambda: bodies.Alive(self._state))
        self._coalescer = Coalescer()
        self._producer = Producer(job.identity, eager=job.eager, max_unacked=job.max_unacked)
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._settled = asyncio.Event()  # won or stopped
        self._stopped = asyncio.Event()
        self._won = self._won_here = False
        self._given_up = self._online = self._ready = False
        self._sealed = False
        self._task: asyncio.Task[None] | None = None
        self.connections = 0
        self.last_error = ""

    async def __aenter__(self) -> Pusher:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + self._job.deadline_s
        self._spoke_at = self._heard_at = self._served_at = self._loop.time()
        self._task = asyncio.create_task(self._run(), name="push")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the socket and stop. A failure inside the task is raised here."""
        task, self._task = self._task, None
        if task is None:
            return
        if self._producer.outcome:
            await asyncio.wait({task}, timeout=_CLOSING_S)  # it is closing its socket
        task.cancel()
        await asyncio.wait({task}, timeout=_CLOSING_S)
        if task.done() and not task.cancelled():
            task.result()

    # -- the model's side ---------------------------------------------------------------------------------------------

    @property
    def outcome(self) -> str:
        return self._producer.outcome

    @property
    def away_s(self) -> float:
        """For how long no relay has answered; 0 while one does."""
        return 0.0 if self._online else self._loop.time() - self._heard_at

    @property
    def alone_s(self) -> float:
        """For how long the channel has not been served: the relay is away, or knows no such channel."""
        return 0.0 if self._ready else self._loop.time() - self._served_at

    def give_up(self) -> None:
        """Wait for the relay no more: `finish` returns at once, with the transcript of what was not acknowledged."""
        self._given_up = True
        for event in (self._stopped, self._settled, self._room):
            event.set()

    async def won(self, timeout_s: float | None = None) -> bool:
        """Wait until the relay has given this instance the attempt. False: it has not, or not in time."""
        await self._until(self._settled, timeout_s)
        return self._won

    async def stopped(self) -> str:
        """Wait for the end of pushing and return its outcome."""
        await self._stopped.wait()
        return self._producer.outcome

    async def send(self, kind: Kind, text: str) -> None:
        """Send text or reasoning. Waits for room. Raises `PushStopped`, `PushTimeout`."""
        await self._need_room()
        for each, body in self._coalescer.add(kind, text, self._loop.time()):
            self._write(each, body)
        self._wake.set()

    async def send_json(self, body: bytes) -> None:
        """Send one tool-call piece, at most `MAX_BODY_BYTES`. Raises like `send`, and `CryptoError`."""
        await self._need_room()
        for each, held in self._coalescer.flush():
            self._write(each, held)
        self._write(Kind.TOOL, body)
        self._wake.set()

    def state(self, state: str) -> None:
        """Say at once what the worker waits for; it is repeated every 10 s of silence."""
        self._state = state
        if not self._producer.outcome and not self._producer.fin_seq:
            self.say_alive()

    def say_alive(self) -> None:
        """Send one ALIVE now."""
        self.say(self._alive())

    def say(self, alive: bodies.Alive) -> None:
        """Send `alive` now."""
        self._producer.alive(alive)
        self._spoke_at = self._loop.time()
        self._wake.set()

    async def finish(self, fin: bodies.Fin, timeout_s: float | None = None, away_s: float | None = None) -> PushResult:
        """Send FIN and wait for the consumer to store it. Call it once.

        Waits until the deadline, for `timeout_s`, or until no relay has answered for `away_s`.
        """
        for kind, body in self._coalescer.flush():
            self._write(kind, body)
        self._producer.finish(fin)
        self._wake.set()
        until = self._deadline if timeout_s is None else self._loop.time() + timeout_s
        look_s = timeout_s if away_s is None else LOOK_EVERY_S
        while not await self._until(self._stopped, look_s) and self._loop.time() < min(until, self._deadline):
            if away_s is not None and self.away_s >= away_s:
                self.give_up()
        outcome = self._producer.outcome or ("unreachable" if self._given_up else "deadline")
        return PushResult(outcome, None if outcome in _NO_TRANSCRIPT else self._transcript())

    def _write(self, kind: Kind, body: bytes) -> None:
        self._producer.write(kind, body)
        self._spoke_at = self._loop.time()

    async def _need_room(self) -> None:
        while True:
            if self._producer.outcome in _POINTLESS:
                raise PushStopped(self._producer.outcome)
            if self._producer.has_room:
                return
            self._room.clear()
            if self._producer.outcome or self._given_up or not await self._until(self._room):
                raise PushTimeout("the consumer took nothing more before the deadline")

    async def _until(self, event: asyncio.Event, timeout_s: float | None = None) -> bool:
        left = self._deadline - self._loop.time()
        if self._task is None:
            raise RuntimeError("the pusher is closed")
        waiter = asyncio.create_task(event.wait())
        try:
            await asyncio.wait(
                {waiter, self._task},
                timeout=max(0.0, left if timeout_s is None else min(left, timeout_s)),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            waiter.cancel()
        if self._task.done() and not self._task.cancelled() and self._task.exception() is not None:
            self._task.result()  # a fault of ours: raise it where the model's stream is read
        return event.is_set()

    def _transcript(self) -> bytes:
        if self._sealed:
            raise RuntimeError("a transcript is sealed once: its nonce is derived")
        self._sealed = True
        job, who = self._job, self._job.identity
        return seal_transcript(job.key, who.keys, (job.salt_c, who.salt_p), self._producer.records())

    # -- the relay's side ---------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        failures = 0
        while True:
            self._won_here = False
            retry = await self._connection()
            if retry is None:
                return
            self.last_error = self.last_error or retry.why
            failures = 0 if self._won_here else failures + 1
            wait = backoff_s(failures) if retry.after_s is None else retry.after_s
            if self._loop.time() + wait >= self._deadline:
                return
            await asyncio.sleep(wait)

    async def _connection(self) -> Retry | None:
        """Serve one socket; None when there is nothing left to do."""
        parked, self._parked = self._parked, None
        try:
            socket = parked.socket if parked is not None else await dial(self._job.relay_url)
        except DIAL_ERRORS as error:
            self.last_error = f"{type(error).__name__}: {error}"
            return self._do(self._producer.lost(None))
        self.last_error = ""
        self.connections += 1
        self._producer.connected()
        done = self._do(self._producer.receive_text(parked.challenge)) if parked is not None else None
        writer = asyncio.create_task(self._serve_writer(socket), name="push writer")
        try:
            return done or await self._serve_reader(socket)
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            self._went_offline()
            await socket.close()
            if not writer.cancelled():
                writer.result()

    async def _serve_reader(self, socket: ClientConnection) -> Retry | None:
        while True:
            try:
                # after `ok` the socket's pings are what bounds the wait
                limit = None if self._producer.is_ready else CONNECT_TIMEOUT_S
                message = await within(socket.recv(), limit)
            except asyncio.TimeoutError:
                return self._do(self._producer.lost(None))
            except ConnectionClosed as error:
                return self._do(self._producer.lost(*close_code(error)))
            self._online = True
            if isinstance(message, str):
                actions = self._producer.receive_text(message)
            else:
                actions = self._producer.receive_frame(message)
            retry = self._do(actions)
            if retry is not None or self._producer.outcome:
                return retry
            if self._producer.has_room:
                self._room.set()
            self._wake.set()

    def _went_offline(self) -> None:
        now = self._loop.time()
        if self._online:
            self._online, self._heard_at = False, now
        if self._ready:
            self._ready, self._served_at = False, now

    def _do(self, actions: list[Action]) -> Retry | None:
        retry = None
        for action in actions:
            if isinstance(action, Control):
                self._on_control(action)
            elif isinstance(action, Won):
                self._won = self._won_here = self._ready = True
                self._settled.set()
            elif isinstance(action, Stop):
                self._settled.set()
                self._stopped.set()
                self._room.set()
            else:
                retry = action
        return retry

    async def _serve_writer(self, socket: ClientConnection) -> None:
        producer, wake = self._producer, self._wake
        with contextlib.suppress(ConnectionClosed):
            while True:
                wake.clear()
                due = self._tick()
                message = producer.next_message()
                while message is not None:
                    await socket.send(message)
                    message = producer.next_message()
                if wake.is_set():
                    continue
                timer = self._loop.call_at(due, wake.set)
                try:
                    await wake.wait()
                finally:
                    timer.cancel()

    def _tick(self) -> float:
        """Do what is due and return when something will be."""
        now = self._loop.time()
        if self._coalescer.due is not None and now >= self._coalescer.due:
            for kind, body in self._coalescer.flush():
                self._write(kind, body)
        silent_at = self._spoke_at + self._job.alive_every_s
        if now >= silent_at:
            if not self._producer.fin_seq and not self._producer.has_unsent and self._producer.is_ready:
                self._producer.alive(self._alive())
            self._spoke_at = now
            silent_at = now + self._job.alive_every_s
        return silent_at if self._coalescer.due is None else min(silent_at, self._coalescer.due)
