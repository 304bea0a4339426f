"""Time and sockets in memory: hours of waiting pass at once, and every run with the same seed is the same run."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close


class Deadlock(RuntimeError):
    """Everything waits, and no timer is set that could end it."""


class _Skip(selectors.DefaultSelector):
    """Advance the loop's clock to its next timer where a real selector would sleep."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock
        self.now += timeout
        return []


class SkippingLoop(asyncio.SelectorEventLoop):
    """An event loop without I/O whose time is counted, not waited for."""

    def __init__(self) -> None:
        self._clock = _Skip()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


@dataclass(frozen=True)
class Say:
    """Deliver a message; `late` lets other tasks run before."""

    message: str | bytes
    late: bool = False


@dataclass(frozen=True)
class Silence:
    seconds: float


@dataclass(frozen=True)
class Hang:
    """Close the connection; without a code it breaks."""

    code: int = 0
    reason: str = ""


Step = Say | Silence | Hang


class Line:
    """A `websockets` client connection as far as `relay.client` uses one, played from steps."""

    def __init__(self, steps: Iterator[Step], heard: Callable[[str | bytes], None]) -> None:
        self._steps = steps
        self._heard = heard
        self._closed: ConnectionClosedError | None = None
        self._held: Say | None = None

    async def __aenter__(self) -> Line:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closed = self._closed or ConnectionClosedError(None, None)

    async def recv(self) -> str | bytes:
        """Return the next message. Like a real socket it loses none when it is cancelled while it waits."""
        while self._closed is None:
            if self._held is None:
                step = next(self._steps, Hang())
                if isinstance(step, Hang):
                    self._closed = ConnectionClosedError(Close(step.code, step.reason) if step.code else None, None)
                    break
                if isinstance(step, Silence):
                    await asyncio.sleep(step.seconds)
                    continue
                self._held = step
            if self._held.late:
                await asyncio.sleep(0)
            said, self._held = self._held, None
            return said.message
        raise self._closed

    async def send(self, message: str | bytes) -> None:
        if self._closed is not None:
            raise self._closed
        self._heard(message)
