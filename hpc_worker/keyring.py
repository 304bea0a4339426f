"""Key rings and the admission mac. Pure, standard library only: the relay uses it without the cipher library.

A ring is written `kid:hex64[,kid:hex64...]`. The first key is the one to use, all are accepted.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar
from urllib.parse import urlsplit

from hpc_worker import handshake

_ENTRY = re.compile(r"([a-z0-9-]{1,16}):([0-9a-f]{64})\Z")
_AUTH_LABEL = b"channel/v1 auth\0"
_A = TypeVar("_A", handshake.Park, handshake.ConsumerOpen, handshake.ProducerOpen)


class KeyringError(ValueError):
    """Raise for a ring that cannot be used. The message never holds key material."""


@dataclass(frozen=True, repr=False)
class Keyring:
    """Named 32-byte keys. `primary` is the kid to use for new work."""

    primary: str
    keys: Mapping[str, bytes]

    @classmethod
    def parse(cls, text: str, name: str = "key ring") -> Keyring:
        """Read `kid:hex64[,kid:hex64...]`. Raises `KeyringError`, which never holds an entry's content."""
        keys: dict[str, bytes] = {}
        if not text.strip():
            raise KeyringError(f"{name} is empty; write kid:64 hex digits, several separated by commas.")
        for place, entry in enumerate(text.strip().split(","), start=1):
            match = _ENTRY.match(entry.strip())
            if match is None:
                raise KeyringError(
                    f"{name}: entry {place} is not kid:64 lower-case hex digits; a kid is 1 to 16 of a-z, 0-9 and '-'."
                )
            kid, key = match[1], bytes.fromhex(match[2])
            if kid in keys:
                raise KeyringError(f"{name}: the kid {kid!r} is written twice.")
            if key in keys.values():
                raise KeyringError(f"{name}: the kid {kid!r} has the same key as another kid.")
            if not any(key):
                raise KeyringError(f"{name}: the kid {kid!r} has a key of zeros.")
            keys[kid] = key
        return cls(next(iter(keys)), keys)

    def get(self, kid: str) -> bytes | None:
        """Return the key of `kid`, or None when the ring does not hold it."""
        return self.keys.get(kid)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys)

    def __repr__(self) -> str:
        return f"Keyring({', '.join(self.keys)})"


def relay_name(url: str) -> str:
    """Return the name a relay is authenticated by: host, and port unless it is the scheme's own, of the URL dialled.

    A relay behind a proxy is told its public name. Raises `ValueError` for anything but ws:// and wss://.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("ws", "wss") or not parts.hostname or parts.username or parts.query or parts.fragment:
        raise ValueError(
            "a relay URL is ws://host[:port]/path or wss://host[:port]/path, without user, query or fragment"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    own = {"ws": 80, "wss": 443}[parts.scheme]
    return host if parts.port in (None, own) else f"{host}:{parts.port}"


def admission_mac(key: bytes, nonce: bytes, relay_name: str, message: handshake.Authenticated) -> bytes:
    """Return HMAC-SHA256 over label, nonce, relay name and the canonical message without its mac."""
    data = b"".join((_AUTH_LABEL, nonce, relay_name.encode(), b"\0", handshake.auth_body(message)))
    return hmac.digest(key, data, "sha256")


def sign(key: bytes, nonce: bytes, relay_name: str, message: _A) -> _A:
    """Return `message` with its admission mac."""
    return replace(message, mac=admission_mac(key, nonce, relay_name, message))


def admitted(key: bytes, nonce: bytes, relay_name: str, message: handshake.Authenticated) -> bool:
    """Say, in constant time, whether the mac of `message` is right."""
    return hmac.compare_digest(admission_mac(key, nonce, relay_name, message), message.mac)
