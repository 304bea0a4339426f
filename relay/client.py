"""The platform's end of a channel: connect, verify, store, acknowledge, resume, and end in exactly one outcome.

The client holds no content key. `Handlers.open` verifies a frame (HEAD first) and raises `ValueError` for one that is
not genuine; `Handlers.store` makes a batch durable and is awaited before the batch is acknowledged.

| how it ended                                                  | outcome     |
|---------------------------------------------------------------|-------------|
| FIN is stored                                                 | complete    |
| `cancel` was called and FIN is stored, or did not come in time | cancelled   |
| no FIN: the relay or the producer stayed away                 | interrupted |
| a forged frame, a wrong key, a gap that stayed after a resume | damaged     |
| nothing came, or the relay refuses us                         | failed      |
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import deque
from contextlib import suppress
from typing import Generic

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from hpc_worker import handshake, wire
from hpc_worker.keyring import relay_name, sign
from hpc_worker.wire import Close
from relay.subscription import Ending, Handlers, Outcome, Subscription, T, Timers

ACK_FRAMES = 32
ACK_S = 0.1
CONTROL_KEPT = 64
UNSTORED_MOST = 1024
_AFTER = re.compile(r"after_ms=(\d{1,6})")
_REFUSED = frozenset({Close.MALFORMED, Close.DENIED, Close.VERSION, Close.REPLACED, Close.FINISHED})


class _End(Exception):
    """Carry the result out of the connection."""

    def __init__(self, outcome: Outcome, reason: str, code: int = 0) -> None:
        super().__init__(reason)
        self.outcome, self.reason, self.code = outcome, reason, code


class _Resume(Exception):
    """Connect again."""

    def __init__(self, reason: str, code: int = 0, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.reason, self.code, self.after_s = reason, code, after_s


class Consumer(Generic[T]):
    """One channel's consumer. `run` once; `send_ctrl` and `cancel` from other tasks meanwhile."""

    def __init__(self, channel: Subscription, handlers: Handlers[T], timers: Timers | None = None) -> None:
        self._channel = channel
        self._handlers = handlers
        self._timers = timers or Timers()
        self._name = channel.name or relay_name(channel.url)
        self.last = self._seen = channel.last
        self._fin_seen = self._fin_stored = channel.fin
        self._unstored: list[T] = []
        self._control: deque[bytes] = deque(maxlen=CONTROL_KEPT)
        self._socket: ClientConnection | None = None
        self._gaps = 0
        self._got_frame = channel.last > 0
        self._cancelled_at: float | None = None
        self._time = asyncio.get_running_loop().time
        self._heard = self._began = self._time()
        self._line_since: float | None = None
        self._fin_told = False
        self._control_lock = asyncio.Lock()
        self._hurry = asyncio.Event()
        self._arrived = asyncio.Event()
        self._stored = asyncio.Event()
        self._over = False
        self._repeat_ack = False
        self.attached = asyncio.Event()  # the relay has let us in once: the channel exists

    async def run(self) -> Ending:
        """Consume until the end. Errors of the handlers' own making pass through."""
        tries = 0
        try:
            while not self._fin_stored:
                before = self._seen
                try:
                    await self._once()
                except _Resume as why:
                    tries = 0 if self._seen > before else tries + 1
                    await self._wait_to_resume(why, tries)
            if not self._fin_told:
                await self._say_fin()
        except _End as end:
            return Ending(end.outcome, self.last, end.reason, end.code)
        outcome = Outcome.COMPLETE if self._cancelled_at is None else Outcome.CANCELLED
        return Ending(outcome, self.last)

    async def send_ctrl(self, frame: bytes) -> None:
        """Send a sealed CTRL frame, now or when connected; it is repeated after a resume, which the relay notices."""
        self._control.append(frame)
        async with self._control_lock:
            if self._socket is not None:
                with suppress(ConnectionClosed):
                    await self._socket.send(frame)

    async def cancel(self, frame: bytes) -> None:
        """Send the CTRL frame that cancels, and wait at most `cancel_s` for the producer's FIN."""
        self._cancelled_at = self._time()
        await self.send_ctrl(frame)

    # -- one connection

    async def _once(self) -> None:
        channel, timers = self._channel, self._timers
        try:
            async with asyncio.timeout(timers.connect_s):
                socket = await connect(
                    channel.url,
                    compression=None,
                    max_size=wire.MAX_FRAME_BYTES,
                    ping_interval=15,
                    ping_timeout=15,
                    close_timeout=0.5,
                    open_timeout=None,
                )
        except (OSError, WebSocketException, TimeoutError) as error:
            raise _Resume(f"the relay cannot be reached ({type(error).__name__})") from None
        async with socket:
            try:
                await self._open(socket)
                async with self._control_lock:
                    for frame in tuple(self._control):
                        await socket.send(frame)
                    self._socket = socket
                self.attached.set()
                await self._both_ways(socket)
            except ConnectionClosed as closed:
                raise self._verdict(closed) from None
            finally:
                self._socket = None

    async def _open(self, socket: ClientConnection) -> None:
        channel = self._channel
        try:
            async with asyncio.timeout(self._timers.connect_s):
                hello = handshake.parse_text(await socket.recv())
                if not isinstance(hello, handshake.Challenge):
                    raise _Resume("the relay did not begin with a challenge")
                message = handshake.ConsumerOpen(channel.kid, channel.cid, self.last, self._fin_stored, channel.mailbox)
                await socket.send(handshake.build_text(sign(channel.key, hello.nonce, self._name, message)))
                if not isinstance(handshake.parse_text(await socket.recv()), handshake.ConsumerOk):
                    raise _Resume("the relay did not answer our open")
        except TimeoutError:
            raise _Resume("the relay did not answer in time") from None
        except wire.WireError as error:
            raise _Resume(f"the relay does not speak the protocol ({error.reason})") from None

    async def _both_ways(self, socket: ClientConnection) -> None:
        self._over = False
        self._hurry.clear()
        self._line_since = self._time()
        end: Exception | None = None
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep(socket))
                try:
                    await self._read(socket)
                except (_End, _Resume, ConnectionClosed) as error:
                    end = error
                # What was verified before the line broke is stored before anything else happens.
                self._over = True
                self._arrived.set()
                self._hurry.set()
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None  # the handlers' own error
        if end is not None:
            raise end

    # -- reading

    async def _read(self, socket: ClientConnection) -> None:
        genuine = False
        while not self._fin_seen:
            message = await self._next(socket)
            if isinstance(message, str):
                continue  # acks and notices are for others; a restart is told by its close code
            try:
                kind, seq = wire.peek(message)
                if kind == wire.FrameType.HEAD:
                    genuine = self._head(message)
                    continue
            except ValueError as error:
                raise _End(Outcome.DAMAGED, f"frame refused: {error}") from None
            if not genuine or seq <= self._seen:
                continue
            self._take(message, kind, seq)
            if len(self._unstored) >= UNSTORED_MOST:
                self._stored.clear()
                await self._stored.wait()
        if not self._fin_stored:
            self._stored.clear()
            await self._stored.wait()
        await self._until_closed(socket)

    async def _until_closed(self, socket: ClientConnection) -> None:
        """Wait for the relay to confirm the end with 1000."""
        with suppress(TimeoutError):
            async with asyncio.timeout(2.0):
                try:
                    while True:
                        await socket.recv()
                except ConnectionClosed as closed:
                    self._fin_told = closed.rcvd is not None and closed.rcvd.code == Close.DONE

    async def _next(self, socket: ClientConnection) -> str | bytes:
        timers = self._timers
        if self._cancelled_at is not None:  # a producer that does not listen may go on sending
            self._check_time()
        try:
            async with asyncio.timeout(min(1.0, timers.quiet_s, timers.cancel_s)):
                return await socket.recv()
        except TimeoutError:
            self._check_time()
            since = max(self._heard, self._line_since or 0.0)
            if self._got_frame and self._time() >= since + timers.quiet_s:
                raise _Resume("no frame for a while") from None
            return ""

    def _head(self, frame: bytes) -> bool:
        head = wire.parse_frame(frame)
        if not isinstance(head, wire.Head) or head.attempt > self._channel.attempt:
            raise _End(Outcome.INTERRUPTED, "a newer attempt uses the channel")
        if head.attempt < self._channel.attempt:
            return False  # left over; the relay closes us when our attempt's producer comes
        self._handlers.open(frame)
        if not self._got_frame:  # the relay repeats HEAD: only the first one is a sign of life
            self._got_frame, self._heard = True, self._time()
        if self.last:  # what said so may have been lost, and a ring that is full of what we have would stay full
            self._repeat_ack = True
            self._arrived.set()
        return True

    def _take(self, frame: bytes, kind: int, seq: int) -> None:
        if seq != self._seen + 1:
            self._gaps += 1
            if self._gaps > 1:
                raise _End(Outcome.DAMAGED, f"frames {self._seen + 1} to {seq - 1} are missing")
            raise _Resume(f"frame {seq} came after {self._seen}")
        try:
            item = self._handlers.open(frame)
        except ValueError as error:
            raise _End(Outcome.DAMAGED, f"frame {seq} refused: {error}") from None
        self._seen, self._heard, self._gaps = seq, self._time(), 0
        self._unstored.append(item)
        self._arrived.set()
        if kind == wire.FrameType.FIN:
            self._fin_seen = True
        if self._fin_seen or len(self._unstored) >= ACK_FRAMES:
            self._hurry.set()

    # -- storing

    async def _keep(self, socket: ClientConnection) -> None:
        """Store, then acknowledge: every 32 frames or 100 ms, at once for FIN."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(ACK_S):
                    await self._hurry.wait()
            if not self._over:
                self._hurry.clear()
            batch, upto, fin = self._unstored, self._seen, self._fin_seen
            if batch:
                self._unstored = []
                try:
                    await self._handlers.store(batch)
                finally:
                    self._stored.set()
                self.last, self._fin_stored = upto, fin
            if batch or self._repeat_ack:
                self._repeat_ack = False
                with suppress(ConnectionClosed):
                    await socket.send(handshake.ack_text(self.last))
            if self._over and not self._unstored:
                return

    # -- ends

    def _verdict(self, closed: ConnectionClosed) -> _Resume | _End:
        code = closed.rcvd.code if closed.rcvd is not None else 0
        reason = closed.rcvd.reason if closed.rcvd is not None else ""
        if self._fin_seen:
            return _Resume("closed after FIN", code)
        if code == Close.GAP:
            self._gaps += 1
            if self._gaps > 1:
                return _End(Outcome.DAMAGED, "the relay reports a gap", code)
        if code in _REFUSED or (code == Close.TIMEOUT and self._socket is not None):
            outcome = Outcome.INTERRUPTED if self._got_frame else Outcome.FAILED
            return _End(outcome, f"the relay closed the channel: {reason or code}", code)
        after = _AFTER.search(reason)
        return _Resume(f"closed with {code}", code, int(after[1]) / 1000 if after else 0.0)

    def _check_time(self) -> None:
        now, timers = self._time(), self._timers
        if self._cancelled_at is not None and now >= self._cancelled_at + timers.cancel_s:
            raise _End(Outcome.CANCELLED, "cancelled; the producer did not confirm")
        if self._line_since is None and now >= self._began + timers.unreachable_s:
            raise _End(Outcome.FAILED, "the relay did not let us in")
        if not self._got_frame:
            if now >= self._heard + timers.first_frame_s:
                raise _End(Outcome.FAILED, "nothing came")
        elif now >= self._heard + timers.lost_s:
            raise _End(Outcome.INTERRUPTED, "no frame for too long")

    async def _wait_to_resume(self, why: _Resume, tries: int) -> None:
        if self._fin_stored:
            return
        try:
            self._check_time()
        except _End as end:
            end.reason, end.code = f"{end.reason}; {why.reason}", end.code or why.code
            raise
        backoff = min(self._timers.backoff_s, 0.1 * 2 ** min(tries, 10)) if tries else 0.0
        await asyncio.sleep(max(why.after_s, backoff) * random.uniform(0.8, 1.2))

    async def _say_fin(self) -> None:
        """Tell the relay once more that FIN is stored: the line broke before it confirmed."""
        with suppress(_Resume, _End, ConnectionClosed, OSError):
            async with asyncio.timeout(self._timers.connect_s):
                await self._once()


async def consume(channel: Subscription, handlers: Handlers[T], timers: Timers | None = None) -> Ending:
    """Consume one channel to its end."""
    return await Consumer(channel, handlers, timers).run()
