"""Raw asyncio WebSocket clients that cost far less a message than any relay does. Loopback only."""

from __future__ import annotations

import asyncio
import base64
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hpc_worker import handshake as h
from hpc_worker import wire
from hpc_worker.keyring import sign

NO_MASK = bytes(4)
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10
OnMessage = Callable[[bytes, int, int], None]


def client_frame(payload: bytes, opcode: int) -> bytes:
    """A client's frame with a mask of zeros: legal, and the server's work is the same."""
    size = len(payload)
    if size < 126:
        return bytes((0x80 | opcode, 0x80 | size)) + NO_MASK + payload
    return bytes((0x80 | opcode, 0xFE)) + size.to_bytes(2, "big") + NO_MASK + payload


class RawSocket(asyncio.Protocol):
    """One WebSocket. Data frames go to `on_message(buffer, start, size)`, texts of a handshake to `texts`."""

    def __init__(self, path: str, on_message: OnMessage | None) -> None:
        self.path = path
        self.on_message = on_message
        self.texts: asyncio.Queue[bytes] = asyncio.Queue()
        self.upgraded = asyncio.get_running_loop().create_future()
        self.ready = False
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        key = base64.b64encode(os.urandom(16)).decode()
        transport.write(
            (
                f"GET {self.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
            ).encode()
        )

    def connection_lost(self, error: Exception | None) -> None:
        if not self.upgraded.done():
            self.upgraded.set_exception(ConnectionError("closed in the handshake"))

    def data_received(self, data: bytes) -> None:
        buffer = self._rest + data if self._rest else data
        if not self.upgraded.done():
            end = buffer.find(b"\r\n\r\n")
            if end < 0:
                self._rest = buffer
                return
            if b" 101 " not in buffer[:20]:
                self.upgraded.set_exception(ConnectionError(buffer[:40].decode("latin-1")))
                return
            self.upgraded.set_result(None)
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
            self._frame(buffer[at] & 15, buffer, at + head, length)
            at += head + length
        self._rest = buffer[at:]

    def _frame(self, opcode: int, buffer: bytes, start: int, size: int) -> None:
        if opcode == PING:
            self.transport.write(client_frame(buffer[start : start + size], PONG))
        elif opcode == CLOSE:
            self.transport.close()
        elif not self.ready:
            self.texts.put_nowait(buffer[start : start + size])
        elif self.on_message is not None:
            self.on_message(buffer, start, size)

    def send(self, payload: bytes, opcode: int) -> None:
        self.transport.write(client_frame(payload, opcode))


async def dial(port: int, path: str, on_message: OnMessage | None = None) -> RawSocket:
    loop = asyncio.get_running_loop()
    _, socket = await loop.create_connection(lambda: RawSocket(path, on_message), "127.0.0.1", port)
    await asyncio.wait_for(socket.upgraded, 15)
    return socket


@dataclass
class Ours:
    """How this project's relay is spoken to: binary frames, challenge and mac, an acknowledgement every 32 frames."""

    port: int
    name: str
    consumer: tuple[str, bytes]
    producer: tuple[str, bytes]
    stamp_at: int = wire.HEADER_BYTES
    opcode: int = BINARY
    _seq: dict[int, int] = field(default_factory=dict)

    async def _open(self, socket: RawSocket, key: bytes, message: h.Open) -> None:
        challenge = h.parse_text(await asyncio.wait_for(socket.texts.get(), 15))
        assert isinstance(challenge, h.Challenge)
        socket.send(h.build_text(sign(key, challenge.nonce, self.name, message)).encode(), TEXT)
        h.parse_text(await asyncio.wait_for(socket.texts.get(), 15))
        socket.ready = True

    async def pair(self, index: int, on_message: OnMessage | None) -> tuple[RawSocket, RawSocket]:
        """Return (producer, consumer) of a new channel."""
        cid, salt = os.urandom(16), os.urandom(32)
        seen = 0
        consumer: RawSocket

        def received(buffer: bytes, start: int, size: int) -> None:
            nonlocal seen
            if buffer[start] != wire.FrameType.DATA:
                return
            seen += 1
            if not seen % 32:
                consumer.send(b'{"n":%d,"t":"ack"}' % seen, TEXT)
            if on_message is not None:
                on_message(buffer, start, size)

        consumer = await dial(self.port, "/v1", received)
        await self._open(consumer, self.consumer[1], h.ConsumerOpen(self.consumer[0], cid, 0, False))
        producer = await dial(self.port, "/v1")
        await self._open(producer, self.producer[1], h.ProducerOpen(self.producer[0], cid, 1, salt[:16]))
        producer.send(wire.build_head(wire.Head("k1", 1, salt, bytes(32))), BINARY)
        self._seq[index] = 0
        return producer, consumer

    def message(self, index: int, stamp: int) -> bytes:
        """Return the next frame of a channel: 117 bytes, the size of the peer's sealed message."""
        self._seq[index] += 1
        return b"\x02" + self._seq[index].to_bytes(4, "big") + b"%018d" % stamp + bytes(94)


@dataclass
class Peer:
    """How streamrelay is spoken to: JSON text, a secret first. `sealed` is a message of its own crypto."""

    port: int
    secret: str
    sealed: bytes
    stamp_at: int = len(b'{"type": "token", "content": "')
    opcode: int = TEXT

    async def pair(self, index: int, on_message: OnMessage | None) -> tuple[RawSocket, RawSocket]:
        """Return (producer, consumer) of a new channel."""
        name = os.urandom(16).hex()
        hello = b'{"type": "auth", "secret": "%s"}' % self.secret.encode()
        consumer = await dial(self.port, f"/consume/{name}", on_message)
        consumer.send(hello, TEXT)
        producer = await dial(self.port, f"/produce/{name}")
        producer.send(hello, TEXT)
        consumer.ready = producer.ready = True
        return producer, consumer

    def message(self, index: int, stamp: int) -> bytes:
        """Return a message that carries `stamp`, or the sealed one when `stamp` is 0."""
        return b'{"type": "token", "content": "%018d%s"}' % (stamp, b"x" * 66) if stamp else self.sealed


Side = Ours | Peer


async def saturate(side: Side, channels: int, seconds: float, cpu: Callable[[], float]) -> dict[str, float]:
    """Keep at most 64 messages a channel in flight. Returns messages a second and relay CPU microseconds a message."""
    got, flying = [0] * channels, [0] * channels
    pairs: list[tuple[RawSocket, RawSocket]] = []
    running = True

    def push(index: int, count: int) -> None:
        flying[index] += count
        frames = [client_frame(side.message(index, 0), side.opcode) for _ in range(count)]
        pairs[index][0].transport.write(b"".join(frames))

    def receiver(index: int) -> OnMessage:
        def received(buffer: bytes, start: int, size: int) -> None:
            got[index] += 1
            flying[index] -= 1
            if running and flying[index] <= 32 and pairs:
                push(index, 32)

        return received

    opened = [await side.pair(i, receiver(i)) for i in range(channels)]
    await asyncio.sleep(0.3)
    pairs.extend(opened)
    for i in range(channels):
        push(i, 64)
    await asyncio.sleep(0.7)
    before, began, spent = sum(got), time.perf_counter(), cpu()
    await asyncio.sleep(seconds)
    count, took, used = sum(got) - before, time.perf_counter() - began, cpu() - spent
    running = False
    await asyncio.sleep(0.5)
    await _close(opened)
    return {"messages_per_s": count / took, "cpu_us": used / max(count, 1) * 1e6}


async def pace(side: Side, channels: int, rate: int, seconds: float) -> dict[str, float]:
    """Send `rate` messages a second on each channel and return the one-way latency in milliseconds."""
    latencies: list[int] = []
    recording = False
    clock = time.perf_counter_ns

    def received(buffer: bytes, start: int, size: int) -> None:
        if recording:
            at = start + side.stamp_at
            latencies.append(clock() - int(buffer[at : at + 18]))

    pairs = [await side.pair(i, received) for i in range(channels)]
    await asyncio.sleep(0.3)
    period, total = 1.0 / (channels * rate), int(seconds * channels * rate)
    for phase in range(2):
        recording = phase == 1
        count = total if recording else total // 5
        began, sent = time.perf_counter(), 0
        while sent < count:
            due = min(count, int((time.perf_counter() - began) / period) + 1)
            for k in range(sent, due):
                index = k % channels
                pairs[index][0].transport.write(client_frame(side.message(index, clock()), side.opcode))
            sent = due
            await asyncio.sleep(max(0.0005, sent * period - (time.perf_counter() - began)))
        await asyncio.sleep(0.5)
    await _close(pairs)
    latencies.sort()
    if not latencies:
        raise RuntimeError("nothing arrived")
    at = {name: latencies[int(share * (len(latencies) - 1))] / 1e6 for name, share in (("p50", 0.5), ("p99", 0.99))}
    return {**at, "lost": total - len(latencies)}


async def _close(pairs: list[tuple[RawSocket, RawSocket]]) -> None:
    for producer, consumer in pairs:
        producer.transport.abort()
        consumer.transport.abort()
    await asyncio.sleep(0.2)
