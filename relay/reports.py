"""What a relay says about itself: one log line a connection, and `/metrics` as text. Pure.

Never in either: a channel id, nonces, macs, sizes or times of single frames, payload.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from relay.hub import Hub
from relay.peer import Conn, Stage

_DAY_S = 86_400.0


class CidHash:
    """Name channels in the log by a hash whose key lives a day: lines of one day can be matched, no others."""

    def __init__(self, random: Callable[[int], bytes] = os.urandom) -> None:
        self._random = random
        self._key = random(32)
        self._until = -1.0

    def name(self, cid: bytes, now: float) -> str:
        """Return 16 hex digits, or "-" when there is no channel. `now` is any clock in seconds."""
        if now >= self._until:
            self._key, self._until = self._random(32), now + _DAY_S
        return hashlib.blake2b(cid, key=self._key, digest_size=8).hexdigest() if cid else "-"


def log_line(conn: Conn, name: str, now: float) -> str:
    """Return the line of an ended connection. The log's formatter adds the UTC time."""
    return (
        f"event=end channel={name} role={conn.role} kid={conn.kid or '-'} frames={conn.frames} bytes={conn.bytes} "
        f"seconds={now - conn.since:.1f} outcome={conn.outcome} "
        f"code={conn.close_code or '-'} net={network(conn.address)}"
    )


def network(address: str) -> str:
    """Return the /24 of an IPv4 address or the /48 of an IPv6 address."""
    if address.count(".") == 3 and ":" not in address:
        return address.rpartition(".")[0] + ".0/24"
    if ":" in address:
        return ":".join(address.split("::")[0].split(":")[:3]) + "::/48"
    return "-"


def metrics(hub: Hub) -> str:
    """Return all numbers in the Prometheus text format."""
    life, registry = hub.life, hub.registry
    gauges = {
        "relay_channels": len(registry),
        "relay_channels_waiting": registry.waiting.total(),
        "relay_tombstones": registry.tombstones,
        "relay_ring_bytes": registry.memory,
        "relay_connections": len(life.conns),
        "relay_connections_unauthenticated": life.fresh.total(),
        "relay_connections_parked": sum(conn.stage is Stage.PARKED for conn in life.unopened),
        "relay_draining": int(hub.draining),
    }
    lines = [f"# TYPE {name} gauge\n{name} {value}" for name, value in gauges.items()]
    ends = "relay_connections_ended_total"
    lines.append(f"# TYPE {ends} counter")
    for name, value in sorted(life.counters.items()):
        kind, _, what = name.partition("_")
        lines.append(f'{ends}{{outcome="{what}"}} {value}' if kind == "ended" else f"relay_{name}_total {value}")
    return "\n".join(lines) + "\n"
