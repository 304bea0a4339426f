"""Raw asyncio WebSocket clients that cost far less a message than any relay does, and how two relays are spoken to.

Loopback only. A client's mask is zeros, which is legal and leaves the server's work the same.
"""

from __future__ import annotations

import asyncio
import base64
import os
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from hpc_worker import handshake as h
from hpc_worker import wire
from hpc_worker.keyring import sign

NO_MASK = bytes(4)
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
COMPRESSED = 0x40
TAIL = b"\x00\x00\xff\xff"
ACK_FRAMES, ACK_S = 32, 0.1
STAMP_DIGITS = 18
DEFLATE = "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
# What a socket hands on: payload, when it was read (ns).
OnMessage = Callable[[bytes, int], None]
O = TypeVar("O", h.ConsumerOpen, h.ProducerOpen)  # noqa: E741


def client_frame(payload: bytes, opcode: int) -> bytes:
    """Return a client's frame; `opcode` may carry the bit that says compressed."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, 0x80 | size)) + NO_MASK + payload
    return bytes((0x80 | opcode, 0xFE)) + size.to_bytes(2, "big") + NO_MASK + payload


class Deflater:
    """A client's permessage-deflate, with the settings of the library that the peer's own clients use."""

    def __init__(self) -> None:
        self._deflate = zlib.compressobj(wbits=-12, memLevel=5)

    def frame(self, payload: bytes) -> bytes:
        """Return a compressed text message."""
        data = self._deflate.compress(payload) + self._deflate.flush(zlib.Z_SYNC_FLUSH)
        return client_frame(data[:-4], TEXT | COMPRESSED)


class RawSocket(asyncio.Protocol):
    """One WebSocket. Data messages go to `on_message`, texts of a handshake to `texts`."""

    def __init__(self, path: str, on_message: OnMessage | None, deflate: bool) -> None:
        self.path = path
        self.on_message = on_message
        self.texts: asyncio.Queue[bytes] = asyncio.Queue()
        self.upgraded = asyncio.get_running_loop().create_future()
        self.ready = False
        self._inflate = zlib.decompressobj(wbits=-15) if deflate else None
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)
        key = base64.b64encode(os.urandom(16)).decode()
        transport.write(
            (
                f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"{DEFLATE if self._inflate else ''}"
                f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
            ).encode()
        )

    def connection_lost(self, error: Exception | None) -> None:
        if not self.upgraded.done():
            self.upgraded.set_exception(ConnectionError("closed in the handshake"))

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter_ns()
        buffer = self._rest + data if self._rest else data
        if not self.upgraded.done():
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                self._rest = buffer
                return
            self._upgrade(buffer[:end])
            buffer = buffer[end + 4 :]
        at, size = 0, len(buffer)
        while size - at >= 2:
            length, head = buffer[at + 1] & 127, 2
            if length == 126:
                if size - at < 4:
                    break
                length, head = (buffer[at + 2] << 8) | buffer[at + 3], 4
            if size - at < head + length:
                break
            self._frame(buffer[at], buffer[at + head : at + head + length], now)
            at += head + length
        self._rest = buffer[at:]

    def _upgrade(self, answer: bytes) -> None:
        if b" 101 " not in answer[:20]:
            self.upgraded.set_exception(ConnectionError(answer[:40].decode("latin-1")))
        elif (self._inflate is not None) != (b"permessage-deflate" in answer.lower()):
            self.upgraded.set_exception(ConnectionError("another compression than was asked for"))
        else:
            self.upgraded.set_result(None)

    def _frame(self, first: int, payload: bytes, now: int) -> None:
        opcode = first & 15
        if opcode == PING:
            self.transport.write(client_frame(payload, PONG))
        elif opcode == CLOSE:
            self.transport.close()
        elif not self.ready:
            self.texts.put_nowait(payload)
        elif self.on_message is not None:
            if first & COMPRESSED and self._inflate is not None:
                payload = self._inflate.decompress(payload + TAIL)
            self.on_message(payload, now)

    def send(self, payload: bytes, opcode: int) -> None:
        self.transport.write(client_frame(payload, opcode))


async def dial(port: int, path: str, on_message: OnMessage | None = None, deflate: bool = False) -> RawSocket:
    loop = asyncio.get_running_loop()
    _, socket = await loop.create_connection(lambda: RawSocket(path, on_message, deflate), "127.0.0.1", port)
    async with asyncio.timeout(15):
        await socket.upgraded
    return socket


class Frames:
    """Numbered frames of one size, built ahead: every channel sends the same, so that the load costs next to nothing."""

    SIZE = 117  # the sealed size nearest to 116; in a WebSocket frame 6 bytes more

    def __init__(self) -> None:
        self._blob = bytearray()
        self._count = 0

    def between(self, first: int, count: int) -> bytes:
        """Return the WebSocket frames `first`..`first + count - 1` as one write."""
        while self._count < first + count:
            for seq in range(self._count + 1, self._count + 10_001):
                self._blob += client_frame(wire.header(wire.FrameType.DATA, seq) + bytes(self.SIZE - 5), BINARY)
            self._count += 10_000
        width = self.SIZE + 6
        return bytes(self._blob[(first - 1) * width : (first - 1 + count) * width])


class Acks:
    """A consumer's acknowledgements as `relay.client` sends them: every 32 frames or 100 ms."""

    def __init__(self) -> None:
        self.seen = 0
        self._told = 0
        self._timer: asyncio.TimerHandle | None = None
        self.socket: RawSocket | None = None

    def count(self) -> None:
        """Count a frame that arrived."""
        self.seen += 1
        if self.seen - self._told >= ACK_FRAMES:
            self._send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(ACK_S, self._due)

    def _due(self) -> None:
        self._timer = None
        if self.seen > self._told:
            self._send()

    def _send(self) -> None:
        self._told = self.seen
        if self.socket is not None and not self.socket.transport.is_closing():
            self.socket.send(b'{"n":%d,"t":"ack"}' % self.seen, TEXT)


class Ours:
    """How this project's relay is spoken to: binary frames, challenge and mac, acknowledgements."""

    stamp_at = wire.HEADER_BYTES

    def __init__(self, port: int, name: str, consumer: tuple[str, bytes], producer: tuple[str, bytes]) -> None:
        self._port, self._name, self._consumer, self._producer = port, name, consumer, producer
        self._frames = Frames()
        self._seq: dict[int, int] = {}

    async def _open(self, socket: RawSocket, key: bytes, message: O) -> None:
        async with asyncio.timeout(15):
            challenge = h.parse_text(await socket.texts.get())
            assert isinstance(challenge, h.Challenge)
            socket.send(h.build_text(sign(key, challenge.nonce, self._name, message)).encode(), TEXT)
            h.parse_text(await socket.texts.get())
        socket.ready = True

    async def pair(self, index: int, on_message: OnMessage | None) -> tuple[RawSocket, RawSocket]:
        """Return (producer, consumer) of a new channel."""
        cid, salt, acks = os.urandom(16), os.urandom(32), Acks()

        def received(payload: bytes, now: int) -> None:
            if payload[0] != wire.FrameType.DATA:
                return
            acks.count()
            if on_message is not None:
                on_message(payload, now)

        consumer = acks.socket = await dial(self._port, "/v1", received)
        await self._open(consumer, self._consumer[1], h.ConsumerOpen(self._consumer[0], cid, 0, False))
        producer = await dial(self._port, "/v1")
        await self._open(producer, self._producer[1], h.ProducerOpen(self._producer[0], cid, 1, salt[:16]))
        producer.send(wire.build_head(wire.Head("k1", 1, salt, bytes(32))), BINARY)
        self._seq[index] = 0
        return producer, consumer

    def many(self, index: int, count: int) -> bytes:
        """Return the next `count` messages of a channel as one write."""
        first = self._seq[index] + 1
        self._seq[index] += count
        return self._frames.between(first, count)

    def stamped(self, index: int, stamp: int) -> bytes:
        """Return the next message of a channel with `stamp` inside."""
        self._seq[index] += 1
        box = b"%018d" % stamp + bytes(Frames.SIZE - wire.HEADER_BYTES - STAMP_DIGITS)
        return client_frame(wire.header(wire.FrameType.DATA, self._seq[index]) + box, BINARY)


@dataclass(frozen=True)
class Sealed:
    """A message of the peer's own crypto, and where its ciphertext begins."""

    text: bytes

    @property
    def box_at(self) -> int:
        return self.text.index(b'"d": "') + len(b'"d": "')


class Peer:
    """How streamrelay's own clients speak: JSON text, a secret first, permessage-deflate."""

    def __init__(self, port: int, secret: str, sealed: Sealed) -> None:
        self._port, self._secret, self._sealed = port, secret, sealed
        self.stamp_at = sealed.box_at
        self._same = Deflater().frame(sealed.text)
        self._deflaters: dict[int, Deflater] = {}
        self._after = sealed.text[sealed.box_at + STAMP_DIGITS :]

    async def pair(self, index: int, on_message: OnMessage | None) -> tuple[RawSocket, RawSocket]:
        """Return (producer, consumer) of a new channel."""
        name = os.urandom(16).hex()
        hello = b'{"type": "auth", "secret": "%s"}' % self._secret.encode()
        consumer = await dial(self._port, f"/consume/{name}", on_message, deflate=True)
        consumer.send(hello, TEXT)
        producer = await dial(self._port, f"/produce/{name}", deflate=True)
        producer.send(hello, TEXT)
        consumer.ready = producer.ready = True
        self._deflaters[index] = Deflater()
        return producer, consumer

    def many(self, index: int, count: int) -> bytes:
        """Return `count` messages as one write: one sealed message, compressed once."""
        return self._same * count

    def stamped(self, index: int, stamp: int) -> bytes:
        """Return the sealed message with `stamp` in place of its first characters."""
        text = self._sealed.text[: self.stamp_at] + b"%018d" % stamp + self._after
        return self._deflaters[index].frame(text)


Side = Ours | Peer
