"""The two loads put on a relay: as much as it carries, and tokens at reading speed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from benchmarks.relay_clients import STAMP_DIGITS, OnMessage, RawSocket, Side

WINDOW, REFILL = 64, 32
Pairs = list[tuple[RawSocket, RawSocket]]


async def saturate(side: Side, channels: int, seconds: float, cpu: Callable[[], float]) -> Mapping[str, float]:
    """Keep at most 64 messages a channel in flight. Returns messages a second and relay CPU microseconds a message."""
    got, flying = [0] * channels, [0] * channels
    pairs: Pairs = []
    running = True

    def push(index: int, count: int) -> None:
        flying[index] += count
        pairs[index][0].transport.write(side.many(index, count))

    def receiver(index: int) -> OnMessage:
        def received(payload: bytes, now: int) -> None:
            got[index] += 1
            flying[index] -= 1
            if running and flying[index] <= WINDOW - REFILL and pairs:
                push(index, REFILL)

        return received

    opened = [await side.pair(i, receiver(i)) for i in range(channels)]
    await asyncio.sleep(0.3)
    pairs.extend(opened)
    for i in range(channels):
        push(i, WINDOW)
    await asyncio.sleep(0.3)
    before, began, spent, own = sum(got), time.perf_counter(), cpu(), time.process_time()
    await asyncio.sleep(seconds)
    count, took, used = sum(got) - before, time.perf_counter() - began, cpu() - spent
    own = time.process_time() - own
    running = False
    await asyncio.sleep(0.1)
    await close(opened)
    return {
        "messages_per_s": count / took,
        "cpu_us": used / max(count, 1) * 1e6,
        "relay_busy": used / took,
        "load_busy": own / took,
    }


class Pacer:
    """Send `rate` messages a second on each channel, evenly, and note how long each one was on its way."""

    def __init__(self, side: Side, channels: int, rate: float, cpu: Callable[[], float]) -> None:
        self._side, self._channels, self._period, self._cpu = side, channels, 1.0 / (channels * rate), cpu
        self._latencies: list[int] = []
        self._recording = False

    async def run(self, seconds: float) -> Mapping[str, float]:
        """Return one-way latency in milliseconds, messages lost, the share of the rate reached and of two cores used."""
        side = self._side
        pairs = [await side.pair(i, self._received) for i in range(self._channels)]
        await asyncio.sleep(0.3)
        await self._send(pairs, 0.3)
        await asyncio.sleep(0.1)
        self._recording = True
        began, own, spent = time.perf_counter(), time.process_time(), self._cpu()
        count = await self._send(pairs, seconds)
        took, own, used = time.perf_counter() - began, time.process_time() - own, self._cpu() - spent
        await asyncio.sleep(0.5)
        await close(pairs)
        found = sorted(self._latencies)
        if not found:
            raise RuntimeError("nothing arrived")
        at = {name: found[int(share * (len(found) - 1))] / 1e6 for name, share in (("p50", 0.5), ("p99", 0.99))}
        rate = count * self._period / took
        busy = {"relay_busy": used / took, "load_busy": own / took}
        return {**at, "lost": count - len(found), "rate_reached": rate, **busy}

    def _received(self, payload: bytes, now: int) -> None:
        if self._recording:
            at = self._side.stamp_at
            self._latencies.append(now - int(payload[at : at + STAMP_DIGITS]))

    async def _send(self, pairs: Pairs, seconds: float) -> int:
        clock, period, stamped = time.perf_counter_ns, self._period, self._side.stamped
        began, sent, total = time.perf_counter(), 0, int(seconds / self._period)
        while sent < total:
            due = min(total, int((time.perf_counter() - began) / period) + 1)
            for k in range(sent, due):
                index = k % self._channels
                pairs[index][0].transport.write(stamped(index, clock()))
            sent = due
            # uvloop's timers have steps of 1 ms; anything shorter would spin and take the machine from the relay
            await asyncio.sleep(max(0.001, sent * period - (time.perf_counter() - began)))
        return total


async def close(pairs: Pairs) -> None:
    """Drop all connections."""
    for producer, consumer in pairs:
        producer.transport.abort()
        consumer.transport.abort()
    await asyncio.sleep(0.2)
