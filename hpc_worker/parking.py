"""Keep sockets connected, authenticated and idle, so that an answer starts without a handshake. Async edge."""

from __future__ import annotations

import asyncio

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from hpc_worker import handshake, keyring
from hpc_worker.dial import CONNECT_TIMEOUT_S, DIAL_ERRORS, backoff_s, dial
from hpc_worker.push import Parked
from hpc_worker.waiting import within
from hpc_worker.wire import WireError

MAX_PARKED = 32
# A taken place is dialled again a little later: the answer that took it is just then on its way to its first token.
_REFILL_AFTER_S = 0.5


_DIALS_AT_ONCE = 3  # a relay allows ten unauthenticated connections an address, and answers need some of them


class _Lost(OSError):
    """A parked socket was lost: nothing speaks against dialling at once."""


class Lot:
    """Up to 32 parked sockets at one relay. A place refills itself when its socket is taken or lost."""

    def __init__(self, url: str, relay_name: str, key: tuple[str, bytes], size: int) -> None:
        self._url = url
        self._relay_name = relay_name
        self._kid, self._key = key
        self._size = min(size, MAX_PARKED)
        self._held: dict[asyncio.Task[None], Parked] = {}
        self._places: set[asyncio.Task[None]] = set()
        self._taken: set[asyncio.Task[None]] = set()
        self._dialling = asyncio.Semaphore(_DIALS_AT_ONCE)
        self._closed = False

    def fill(self, after_s: float = 0.0) -> None:
        """Start what is missing of the places, after `after_s` seconds."""
        while not self._closed and len(self._places) < self._size:
            task = asyncio.create_task(self._place(after_s), name="parking")
            self._places.add(task)
            task.add_done_callback(self._places.discard)

    @property
    def free(self) -> int:
        """How many sockets are ready."""
        return len(self._held)

    async def take(self) -> Parked | None:
        """Hand out a ready socket, or None when there is none. The place is filled again."""
        if not self._held:
            return None
        task, parked = self._held.popitem()
        self._taken.add(task)
        await _end(task)
        self._taken.discard(task)
        self.fill(_REFILL_AFTER_S)
        return parked

    async def close(self) -> None:
        """Close every socket."""
        self._closed = True
        await asyncio.gather(*(_end(task) for task in list(self._places)))

    async def _place(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        failures = 0
        while True:
            try:
                await self._hold()
            except (*DIAL_ERRORS, ConnectionClosed, WireError) as error:
                failures = 0 if isinstance(error, _Lost) else failures + 1
            await asyncio.sleep(backoff_s(failures))

    async def _hold(self) -> None:
        """Park one socket and keep its newest challenge until it is lost, or taken by `take`."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("parking runs in a task")
        async with self._dialling:
            socket = await dial(self._url)
            text = await self._park(socket)
        try:
            while True:
                _nonce(text)
                self._held[task] = Parked(socket, str(text))
                # pings bound this wait: a dead relay is noticed and the place starts anew
                text = await socket.recv()
        except ConnectionClosed as error:
            raise _Lost from error
        finally:
            self._held.pop(task, None)
            if task not in self._taken:
                await socket.close()

    async def _park(self, socket: ClientConnection) -> str | bytes:
        """Authenticate; return the challenge that answers `park`. Closes the socket if that fails."""
        try:
            text = await within(socket.recv(), CONNECT_TIMEOUT_S)
            park = keyring.sign(self._key, _nonce(text), self._relay_name, handshake.Park(self._kid))
            await socket.send(handshake.build_text(park))
            text = await within(socket.recv(), CONNECT_TIMEOUT_S)
        except BaseException:
            await socket.close()
            raise
        return text


def _nonce(text: str | bytes) -> bytes:
    message = handshake.parse_text(text)
    if not isinstance(message, handshake.Challenge):
        raise WireError("message_type")
    return message.nonce


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
