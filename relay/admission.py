"""Who may open what. Pure: the nonces' source is passed in.

A nonce is good for its connection, once. Nothing compares clocks: a worker whose clock is wrong by days still connects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hpc_worker import handshake, keyring
from relay.peer import Conn, Role

NONCE_BYTES = 32
_KEY_OF_NOBODY = bytes(32)


@dataclass(frozen=True)
class Admission:
    """Keys by role. `relay_name` is in the mac, so that one relay cannot pass another one's challenge through."""

    relay_name: str
    consumers: keyring.Keyring
    producers: keyring.Keyring
    random: Callable[[int], bytes] = field(repr=False)

    def challenge(self, conn: Conn, epoch: bytes) -> str:
        """Give `conn` a new nonce and return the message. The one before stays valid: an `open` may be on its way."""
        nonce = self.random(NONCE_BYTES)
        conn.nonces = (nonce, *conn.nonces[:1])
        return handshake.build_text(handshake.Challenge(nonce=nonce, epoch=epoch))

    def admits(self, conn: Conn, message: handshake.Authenticated) -> bool:
        """Say whether `message` carries the mac of a key of its role. Uses up the nonces of `conn`.

        The role comes from the key: a producer's kid is looked up among producers only. An unknown kid costs the same
        time as a wrong mac.
        """
        nonces, conn.nonces = conn.nonces, ()
        ring = self.consumers if isinstance(message, handshake.ConsumerOpen) else self.producers
        key = ring.get(message.kid)
        right = [keyring.admitted(key or _KEY_OF_NOBODY, nonce, self.relay_name, message) for nonce in nonces]
        return key is not None and any(right)


def role_of(message: handshake.Authenticated) -> Role:
    """Return the role a message asks for."""
    return Role.CONSUMER if isinstance(message, handshake.ConsumerOpen) else Role.PRODUCER
