"""The worker's settings, read once before any job. Wrong or missing ones fail in words, all at once.

| name                        | meaning                                                              | default |
|-----------------------------|----------------------------------------------------------------------|---------|
| STREAM_E2E_KEYS             | end-to-end keys of this endpoint, kid:hex64[,kid:hex64]              | needed  |
| STREAM_PRODUCER_KEYS        | admission keys of role producer, same form                           | needed  |
| STREAM_RELAY_URLS_ALLOWED   | relays a job may name, [name=]url, comma separated; wss://, or ws://  | needed  |
|                             | on loopback; without a name it is the URL's host and port            |         |
| STREAM_MODEL_URL            | base URL of the OpenAI-compatible model server, with /v1             | needed  |
| STREAM_MODEL_NAME           | what the server calls the model                                      | needed  |
| STREAM_MODEL_API_KEY        | bearer token for the model server                                    | none    |
| STREAM_CAPACITY             | queries at once, 1 to 256                                            | 16      |
| STREAM_PARKED               | idle sockets held ready, 0 to 32                                     | 8       |
| STREAM_WALLTIME_S           | seconds until the scheduler ends this job; 0: unlimited              | 0       |
| STREAM_DRAIN_S              | seconds before that, or after SIGTERM, in which running queries end  | 60      |
| STREAM_AWAY_S               | seconds without any relay after which a resident worker ends          | 30      |
| STREAM_FIRST_BYTE_S         | seconds the model may take to its first byte                         | 300     |
| STREAM_BETWEEN_BYTES_S      | seconds it may be silent after that                                  | 60      |

Each may stand in the environment, or in an INI file named by STREAM_WORKER_CONFIG under `[worker]`; the environment
wins. The three secrets also have a form NAME_FILE that names a file. Files with secrets must not be readable by others.
Secrets are deleted from the environment as soon as they are read, so no child process inherits them. /proc/PID/environ
of this process still shows what it was started with, to processes of the same account: NAME_FILE avoids that.
"""

from __future__ import annotations

import configparser
import stat
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from hpc_worker.keyring import Keyring, KeyringError, relay_name

SECRETS = ("STREAM_E2E_KEYS", "STREAM_PRODUCER_KEYS", "STREAM_MODEL_API_KEY")
NAMES = (
    *SECRETS,
    "STREAM_RELAY_URLS_ALLOWED",
    "STREAM_MODEL_URL",
    "STREAM_MODEL_NAME",
    "STREAM_CAPACITY",
    "STREAM_PARKED",
    "STREAM_WALLTIME_S",
    "STREAM_DRAIN_S",
    "STREAM_AWAY_S",
    "STREAM_FIRST_BYTE_S",
    "STREAM_BETWEEN_BYTES_S",
)
CONFIG_FILE = "STREAM_WORKER_CONFIG"
_MAX_FILE_BYTES = 64 * 1024
_T = TypeVar("_T")


class ConfigError(ValueError):
    """Raise when the worker must not start. `problems` are whole sentences without secrets."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("The worker did not start and took no job. " + " ".join(problems))
        self.problems = problems


@dataclass(frozen=True, repr=False)
class Settings:
    """Everything a worker needs. Never printed: it holds keys."""

    e2e_keys: Keyring
    producer_keys: Keyring
    relays: Mapping[str, str]  # URL -> the relay's name in the admission mac
    model_url: str
    model_name: str
    model_api_key: str = ""
    capacity: int = 16
    parked: int = 8
    walltime_s: float = 0.0
    drain_s: float = 60.0
    away_s: float = 30.0
    first_byte_s: float = 300.0
    between_bytes_s: float = 60.0


def read(environ: MutableMapping[str, str]) -> Settings:
    """Read the settings and delete the secrets from `environ`, also when it raises. Raises `ConfigError`."""
    reader = _Reader(environ)
    settings = Settings(
        e2e_keys=reader.get("STREAM_E2E_KEYS", _ring("STREAM_E2E_KEYS"), _NO_RING),
        producer_keys=reader.get("STREAM_PRODUCER_KEYS", _ring("STREAM_PRODUCER_KEYS"), _NO_RING),
        relays=reader.get("STREAM_RELAY_URLS_ALLOWED", _relays, {}),
        model_url=reader.get("STREAM_MODEL_URL", _model_url, ""),
        model_name=reader.get("STREAM_MODEL_NAME", _line, ""),
        model_api_key=reader.get("STREAM_MODEL_API_KEY", _line, "", needed=False),
        capacity=reader.whole("STREAM_CAPACITY", (1, 256), 16),
        parked=reader.whole("STREAM_PARKED", (0, 32), 8),
        walltime_s=reader.whole("STREAM_WALLTIME_S", (0, 30 * 86_400), 0),
        drain_s=reader.whole("STREAM_DRAIN_S", (1, 3600), 60),
        away_s=reader.whole("STREAM_AWAY_S", (1, 86_400), 30),
        first_byte_s=reader.whole("STREAM_FIRST_BYTE_S", (1, 3600), 300),
        between_bytes_s=reader.whole("STREAM_BETWEEN_BYTES_S", (1, 3600), 60),
    )
    problems = reader.problems
    if 0 < settings.walltime_s <= settings.drain_s:
        problems.append("STREAM_WALLTIME_S must be longer than STREAM_DRAIN_S, or no query can run.")
    shared = set(settings.e2e_keys.keys.values()) & set(settings.producer_keys.keys.values())
    if shared:
        problems.append(
            "STREAM_E2E_KEYS and STREAM_PRODUCER_KEYS share a key; a relay knows the latter: make a new one."
        )
    if problems:
        raise ConfigError(problems)
    return settings


_NO_RING = Keyring("", {})


class _Reader:
    """Look names up in environment, secret files and the INI file, and collect what is wrong."""

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        self.problems: list[str] = []
        self._values = dict(environ)
        for name in SECRETS:
            environ.pop(name, None)
        path = environ.get(CONFIG_FILE, "")
        self._ini = self._read_ini(Path(path)) if path else {}

    def get(self, name: str, parse: Callable[[str], _T], default: _T, *, needed: bool = True) -> _T:
        value = self._find(name)
        if not value:
            if needed and not any(name in problem for problem in self.problems):
                self.problems.append(f"{name} is not set.")
            return default
        try:
            return parse(value)
        except KeyringError as error:
            self.problems.append(str(error))
        except ValueError as error:
            self.problems.append(f"{name}: {error}.")
        return default

    def whole(self, name: str, limits: tuple[int, int], default: int) -> int:
        low, high = limits

        def parse(value: str) -> int:
            if not value.isascii() or not value.isdigit() or not low <= int(value[:12]) <= high:
                raise ValueError(f"must be a whole number from {low} to {high}")
            return int(value)

        return self.get(name, parse, default, needed=False)

    def _find(self, name: str) -> str:
        if self._values.get(name, "").strip():
            return self._values[name].strip()
        path = self._values.get(f"{name}_FILE", "") if name in SECRETS else ""
        if path:
            return self._read_file(Path(path), f"{name}_FILE", secret=True).strip()
        return self._ini.get(name.lower(), "").strip()

    def _read_ini(self, path: Path) -> dict[str, str]:
        text = self._read_file(path, CONFIG_FILE, secret=False)
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read_string(text)
            values = dict(parser.items("worker")) if text else {}
        except configparser.Error as error:
            kind = type(error).__name__
            self.problems.append(f"{CONFIG_FILE}: the file cannot be read as INI with a section [worker] ({kind}).")
            return {}
        unknown = sorted(set(values) - {name.lower() for name in NAMES})
        if unknown:
            self.problems.append(f"{CONFIG_FILE}: unknown settings: {', '.join(unknown)}.")
        if any(values.get(name.lower()) for name in SECRETS):
            self._check_private(path, CONFIG_FILE)
        return values

    def _read_file(self, path: Path, name: str, *, secret: bool) -> str:
        if secret and not self._check_private(path, name):
            return ""
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                self.problems.append(f"{name}: the file is larger than {_MAX_FILE_BYTES} bytes.")
                return ""
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeError) as error:
            self.problems.append(f"{name}: the file cannot be read ({type(error).__name__}).")
            return ""

    def _check_private(self, path: Path, name: str) -> bool:
        try:
            mode = path.stat().st_mode
        except OSError as error:
            self.problems.append(f"{name}: the file cannot be read ({type(error).__name__}).")
            return False
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            self.problems.append(f"{name}: others can read the file; run chmod 600 on it.")
            return False
        return True


def _ring(name: str) -> Callable[[str], Keyring]:
    return lambda value: Keyring.parse(value, name)


def _line(value: str) -> str:
    if not value.isprintable() or len(value) > 500:
        raise ValueError("must be one printable line")
    return value


def _relays(value: str) -> dict[str, str]:
    out = {}
    for entry in value.split(","):
        name, _, url = entry.strip().rpartition("=")
        own = relay_name(url)
        if url.startswith("ws:") and not _is_loopback(urlsplit(url).hostname or ""):
            raise ValueError("ws:// is for loopback only; a relay elsewhere needs wss://")
        out[url] = _line(name) or own
    return out


def _model_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("must be http://host[:port]/v1 or https://host[:port]/v1")
    if parts.username or parts.password:
        raise ValueError("must not hold a password; use STREAM_MODEL_API_KEY")
    return value.rstrip("/")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
