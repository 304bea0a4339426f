"""The relay's configuration, read from the environment once.

| variable                | meaning                                                                      |
|-------------------------|------------------------------------------------------------------------------|
| `RELAY_NAME`            | name in the admission mac, the same at every peer of this relay              |
| `RELAY_CONSUMER_KEYS`   | `kid:hex64[,...]`, or `RELAY_CONSUMER_KEYS_FILE`                              |
| `RELAY_PRODUCER_KEYS`   | `kid:hex64[,...]`, one per endpoint, or `RELAY_PRODUCER_KEYS_FILE`            |
| `RELAY_METRICS_TOKEN`   | bearer token of `/metrics`; without it there is no `/metrics`                |
| `RELAY_FAST_PATH`       | `0` sends every frame through ASGI, also where uvicorn runs `RelayWebSocket` |
| `RELAY_LIMIT_<NAME>`    | a number of `relay.limits.Limits`, for example `RELAY_LIMIT_CHANNELS=2000`   |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from hpc_worker.keyring import Keyring, KeyringError
from hpc_worker.wire import MAX_FRAME_BYTES
from relay.limits import Limits
from stream_site.errors import RelayError

# Keys that open content. A relay that holds one could read what it forwards.
CONTENT_KEYS = ("STREAM_E2E_KEYS", "STREAM_E2E_KEYS_FILE")
_LIMIT = "RELAY_LIMIT_"


class RelayConfigError(RelayError):
    """The relay cannot start with this environment."""

    code = "relay_config"
    retryable = False
    title = "The relay cannot start"
    default_kept = "Nothing was started."
    default_todo = "Correct the variable and start again."


@dataclass(frozen=True, repr=False)
class RelayConfig:
    """What a relay process needs to know. Holds admission keys, never content keys."""

    name: str
    consumer_keys: Keyring
    producer_keys: Keyring
    metrics_token: str = ""
    limits: Limits = field(default_factory=Limits)
    fast_path: bool = True

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> RelayConfig:
        """Read the environment. Raises `RelayConfigError` in words that never hold a key."""
        for name in CONTENT_KEYS:
            if environ.get(name, "").strip():
                raise RelayConfigError(
                    f"{name} is set in the relay's environment. A relay must not be able to read what it forwards.",
                    todo=f"Remove {name} from this process; only the platform and the worker need it.",
                )
        name = environ.get("RELAY_NAME", "").strip()
        if not name or "\0" in name or not name.isascii() or len(name) > 255:
            raise RelayConfigError(
                "RELAY_NAME is not set or is not plain text of at most 255 characters.",
                todo="Set it to this relay's public host name, the same at every peer.",
            )
        consumers = _keys(environ, "RELAY_CONSUMER_KEYS")
        producers = _keys(environ, "RELAY_PRODUCER_KEYS")
        _disjoint(consumers, producers)
        fast = environ.get("RELAY_FAST_PATH", "").strip() != "0"
        return cls(name, consumers, producers, _secret(environ, "RELAY_METRICS_TOKEN"), _limits(environ), fast)

    def __repr__(self) -> str:
        return f"RelayConfig({self.name!r}, {self.consumer_keys!r}, {self.producer_keys!r}, {self.limits!r})"


def _secret(environ: Mapping[str, str], name: str) -> str:
    path = environ.get(f"{name}_FILE", "").strip()
    if not path:
        return environ.get(name, "").strip()
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise RelayConfigError(f"{name}_FILE={path!r} cannot be read: {error.__class__.__name__}.") from None


def _keys(environ: Mapping[str, str], name: str) -> Keyring:
    try:
        return Keyring.parse(_secret(environ, name), name)
    except KeyringError as error:
        raise RelayConfigError(str(error)) from None


def _disjoint(consumers: Keyring, producers: Keyring) -> None:
    if both := sorted(set(consumers) & set(producers)):
        raise RelayConfigError(f"The kid {both[0]!r} is in RELAY_CONSUMER_KEYS and in RELAY_PRODUCER_KEYS.")
    if set(consumers.keys.values()) & set(producers.keys.values()):
        raise RelayConfigError(
            "RELAY_CONSUMER_KEYS and RELAY_PRODUCER_KEYS hold the same key; roles come from the key."
        )


def _limits(environ: Mapping[str, str]) -> Limits:
    known = {f"{_LIMIT}{limit.name.upper()}": limit for limit in fields(Limits)}
    values: dict[str, float] = {}
    for name, text in environ.items():
        if not name.startswith(_LIMIT) or not text.strip():
            continue
        if name not in known:
            raise RelayConfigError(f"{name} is not a limit of the relay.", todo="See docs/relay.md for the list.")
        limit = known[name]
        whole = isinstance(limit.default, int)
        try:
            value = int(text) if whole else float(text)
        except ValueError:
            raise RelayConfigError(f"{name}={text!r} is not a {'whole ' if whole else ''}number.") from None
        if not 0 < value < 2**53:
            raise RelayConfigError(f"{name}={text} must be above zero.")
        if limit.name in ("ring_bytes", "control_bytes") and value < MAX_FRAME_BYTES:
            raise RelayConfigError(f"{name}={text} has no room for one frame of {MAX_FRAME_BYTES} bytes.")
        values[limit.name] = value
    return Limits(**values)  # type: ignore[arg-type]
