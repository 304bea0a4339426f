"""A consumer that stores, then acknowledges, and comes back wherever it was cut. Real keys, real sockets."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from hpc_worker import bodies, crypto, handshake, keyring, wire
from hpc_worker.wire import Direction, FrameType, Kind


@dataclass
class Consumer:
    """Reads one channel to its FIN. `opened` is what it has stored."""

    url: str
    name: str
    admission: tuple[str, bytes]
    ring: keyring.Keyring
    scope: crypto.Scope
    salt_c: bytes
    mailbox: bool = False
    opened: list[crypto.Opened] = field(default_factory=list)
    connections: int = 0
    _keys: crypto.StreamKeys | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self, timeout_s: float = 60) -> bodies.Fin:
        async def forever() -> bodies.Fin:
            while True:
                try:
                    async with connect(self.url, compression=None, open_timeout=5, close_timeout=0.2) as socket:
                        fin = await self._serve(socket)
                    if fin is not None:
                        return fin
                except (OSError, ConnectionClosed, InvalidHandshake, EOFError, TimeoutError):
                    await asyncio.sleep(0.05)

        return await asyncio.wait_for(forever(), timeout_s)

    async def control(self, kind: Kind, body: bytes) -> None:
        """Send one instruction under the next sequence number."""
        await self._socket.send(self._sealer.seal(FrameType.CTRL, kind, body))

    async def cancel(self) -> None:
        await self.control(Kind.CANCEL, bodies.dump_cancel("user"))

    async def until(self, count: int, timeout_s: float = 10) -> None:
        """Wait until `count` frames are stored."""
        async with asyncio.timeout(timeout_s):
            while len(self.opened) < count:
                await asyncio.sleep(0.005)

    @property
    def text(self) -> str:
        return b"".join(o.body for o in self.opened if o.kind is Kind.TEXT).decode()

    async def _serve(self, socket: ClientConnection) -> bodies.Fin | None:
        message = handshake.parse_text(await asyncio.wait_for(socket.recv(), 5))
        assert isinstance(message, handshake.Challenge)
        last = len(self.opened)
        fin = bool(last) and self.opened[-1].type is FrameType.FIN
        mine = handshake.ConsumerOpen(self.admission[0], self.scope.cid, last, fin, self.mailbox)
        await socket.send(handshake.build_text(keyring.sign(self.admission[1], message.nonce, self.name, mine)))
        ok = handshake.parse_text(await asyncio.wait_for(socket.recv(), 5))
        assert isinstance(ok, handshake.ConsumerOk)
        self.connections += 1
        self._socket = socket
        self.ready.set()
        async for data in socket:
            if isinstance(data, bytes):
                await self._take(socket, data)
        if self.opened and self.opened[-1].type is FrameType.FIN:
            return bodies.Fin.load(self.opened[-1].body)
        return None

    async def _take(self, socket: ClientConnection, data: bytes) -> None:
        frame = wire.parse_frame(data)
        if isinstance(frame, wire.Head):
            keys = crypto.accept_head(self.ring, self.scope, self.salt_c, frame)
            if keys != self._keys:
                assert self._keys is None, "another producer"
                self._keys = keys
                self._opener = crypto.Opener(keys, Direction.P2C)
                self._sealer = crypto.Sealer(keys, Direction.C2P)
            return
        if frame.seq <= len(self.opened):
            return
        assert frame.seq == len(self.opened) + 1, "gap"
        self.opened.append(self._opener.open(data))
        if frame.seq % 32 == 0 or frame.type in (FrameType.FIN, FrameType.ALIVE) or frame.seq < 4:
            await socket.send(handshake.build_text(handshake.Ack(frame.seq)))
