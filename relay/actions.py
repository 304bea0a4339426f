"""What the hub asks of the code that owns the sockets. Pure values.

Bytes to send are not in here: a woken socket's writer pulls them with `Hub.take`, so the ring is the only queue.
"""

from __future__ import annotations

from dataclasses import dataclass

from relay.peer import Conn


@dataclass(frozen=True, slots=True)
class Wake:
    """There is something to take for `conn`."""

    conn: Conn


@dataclass(frozen=True, slots=True)
class Pause:
    """Deliver nothing more from `conn`: for `seconds`, or until `Resume` when it is 0."""

    conn: Conn
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Resume:
    """Read from `conn` again."""

    conn: Conn


@dataclass(frozen=True, slots=True)
class Close:
    """Send what can still be taken when `flush`, then close with `code`."""

    conn: Conn
    code: int
    reason: str
    flush: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """`conn.outcome` is final: write its one log line."""

    conn: Conn


Action = Wake | Pause | Resume | Close | Ended
