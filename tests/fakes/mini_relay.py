"""A relay in one class for scripted misbehaviour: cuts, silence, wrong acks, any close code. In memory, one channel.

It keeps the producer's frames and acknowledges like a consumer that stores at once. What it cannot show, byte-exactness
through the real hub, is tested against the real relay.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

from hpc_worker import handshake, keyring
from hpc_worker.wire import Close, FrameType, peek


@dataclass
class MiniRelay:
    """`script` holds one dict for each connection, in order; when it is empty connections behave.

    cut_after=n      drop the TCP connection after n frames
    close=(code, s[, reason])  close after the open, s seconds later
    early_close=code close instead of sending a challenge
    say=text         send this text after ok
    forget=True      answer ok as a relay that has just restarted (have=-1), keeping what the consumer stored
    """

    admission: keyring.Keyring
    script: list[dict[str, Any]] = field(default_factory=list)
    acking: bool = True
    name: str = ""
    frames: dict[int, bytes] = field(default_factory=dict)
    head: bytes | None = None
    opens: list[handshake.ProducerOpen] = field(default_factory=list)
    parks: int = 0
    times: list[float] = field(default_factory=list)
    sockets: list[ServerConnection] = field(default_factory=list)

    async def __aenter__(self) -> MiniRelay:
        self._server = await serve(self._serve, "127.0.0.1", 0, compression=None, max_size=16384)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"ws://127.0.0.1:{port}/v1"
        self.name = keyring.relay_name(self.url)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def stored(self) -> int:
        return len(self.frames)

    async def ack(self, n: int) -> None:
        await self.sockets[-1].send(handshake.build_text(handshake.Ack(n)))

    async def _serve(self, socket: ServerConnection) -> None:
        step = self.script.pop(0) if self.script else {}
        self.sockets.append(socket)
        with contextlib.suppress(Exception):
            await self._talk(socket, step)

    async def _talk(self, socket: ServerConnection, step: dict[str, Any]) -> None:
        if "early_close" in step:
            await socket.close(step["early_close"])
            return
        message = await self._admit(socket)
        if message is None:
            return
        self.opens.append(message)
        if "close" in step:
            code, after, *reason = step["close"]
            await asyncio.sleep(after)
            await socket.close(code, *reason)
            return
        have = -1 if self.head is None or step.get("forget") else self.stored
        ok = handshake.ProducerOk(bytes(8), have, self.stored if self.acking else 0)
        await socket.send(handshake.build_text(ok))
        if "say" in step:
            await socket.send(step["say"])
        await self._take(socket, step.get("cut_after"))

    async def _admit(self, socket: ServerConnection) -> handshake.ProducerOpen | None:
        nonce = os.urandom(32)
        while True:
            await socket.send(handshake.build_text(handshake.Challenge(nonce, bytes(8))))
            message = handshake.parse_text(await socket.recv())
            assert isinstance(message, (handshake.Park, handshake.ProducerOpen))
            key = self.admission.get(message.kid)
            if key is None or not keyring.admitted(key, nonce, self.name, message):
                await socket.close(Close.DENIED)
                return None
            if isinstance(message, handshake.ProducerOpen):
                return message
            self.parks += 1
            nonce = os.urandom(32)

    async def _take(self, socket: ServerConnection, cut_after: int | None) -> None:
        loop = asyncio.get_running_loop()
        seen = 0
        async for data in socket:
            assert isinstance(data, bytes), data
            kind, seq = peek(data)
            if cut_after is not None and seen >= cut_after:
                socket.transport.abort()
                return
            seen += 1
            if kind == FrameType.HEAD:
                assert self.head in (None, data), "another HEAD"
                self.head = data
                continue
            if seq > self.stored + 1:
                await socket.close(Close.GAP)
                return
            assert self.frames.get(seq, data) == data, "one sequence number with two contents"
            self.frames[seq] = data
            self.times.append(loop.time())
            if self.acking:
                await socket.send(json.dumps({"t": "ack", "n": self.stored}))
            if kind == FrameType.FIN and self.acking:
                await socket.close(1000)
                return
