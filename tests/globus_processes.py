"""A RabbitMQ, the stand-in for what Globus hosts, and an unmodified endpoint daemon, each a process in a folder.

All on loopback and free ports. `leftovers` ends what they started themselves: only processes whose command line names
the folder of this run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from stream_site.devstack.places import free_port
from tests.globus_parts import ENDPOINT, ENDPOINT_VENV, find_rabbitmq
from tests.setting_names import ROOT

CLIENT = "11111111-1111-4111-8111-111111111111"
SECRET = "a secret of the test"
KIT = ROOT / "deploy" / "endpoint"


def wait(condition: Callable[[], bool], what: str, limit_s: float = 30) -> None:
    """Wait until `condition` holds."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {limit_s} s"
        time.sleep(0.05)


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
        return True
    return False


def ended(process: subprocess.Popen[Any], limit_s: float = 10) -> None:
    """End a process that was started in a session of its own, with all of that session."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limit_s)
            return


def leftovers(folder: Path) -> list[int]:
    """Return the processes whose command line names `folder`."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


@contextmanager
def rabbitmq(folder: Path) -> Iterator[str]:
    """Run a RabbitMQ of our own and yield its AMQP URL."""
    server = find_rabbitmq()
    assert server is not None
    port, names = free_port(), free_port()
    (folder / "mnesia").mkdir(parents=True)
    (folder / "plugins").write_text("[].")
    (folder / "rabbitmq.conf").write_text("loopback_users = none\ndisk_free_limit.absolute = 50MB\n")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"stream{port}@localhost",
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(names),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1",
    }
    epmd = shutil.which("epmd")
    assert epmd is not None
    with (folder / "out.log").open("wb") as log:
        # Erlang would leave its name server running; this one ends with us.
        mapper = subprocess.Popen([epmd, "-port", str(names)], env=env, stdout=log, stderr=log, start_new_session=True)
        node = subprocess.Popen([str(server)], env=env, stdout=log, stderr=log, start_new_session=True)
        try:
            wait(lambda: listens(port) or node.poll() is not None, "RabbitMQ listens", 60)
            assert node.poll() is None, (folder / "out.log").read_text()
            yield f"amqp://guest:guest@127.0.0.1:{port}/%2F"
        finally:
            ended(node)
            ended(mapper)


@dataclass(frozen=True)
class GlobusService:
    """The stand-in's remote control."""

    port: int
    http: httpx.Client

    def fault(self, path: str, count: int = 1, **what: Any) -> None:
        """Let the next `count` requests whose path matches go wrong: status=, delay_s=, drop="before" or "after"."""
        self._post("fault", path=path, count=count, **what)

    def secret(self, secret: str) -> None:
        """Give the client another secret, and end its tokens."""
        self._post("client", id=CLIENT, secret=secret)

    def token(self, subject: str, seconds: float = 3600) -> str:
        return str(self._post("token", subject=subject, seconds=seconds)["access_token"])

    def reset(self) -> None:
        self._post("reset")
        self._post("client", id=CLIENT, secret=SECRET)

    def submits(self) -> list[int]:
        """Return the statuses of all submits so far."""
        return [status for _, path, status in self._log()["requests"] if path.endswith("/submit")]

    def requests(self, path: str) -> int:
        return sum(1 for _, seen, _ in self._log()["requests"] if seen == path)

    def refused_for_rate(self) -> int:
        return int(self._log()["refused_for_rate"])

    def _log(self) -> dict[str, Any]:
        found: dict[str, Any] = self.http.get("/_test/log").raise_for_status().json()
        return found

    def _post(self, what: str, **body: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.http.post(f"/_test/{what}", json=body).raise_for_status().json()
        return found


@contextmanager
def service(folder: Path, amqp: str) -> Iterator[GlobusService]:
    """Run the stand-in."""
    port = free_port()
    command = [sys.executable, "-m", "tests.fakes.globus_service", "--port", str(port), "--amqp", amqp]
    with (folder / "service.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--client", f"{CLIENT}:{SECRET}"], cwd=ROOT, stdout=log, stderr=log, start_new_session=True
        )
        try:
            wait(lambda: listens(port) or process.poll() is not None, "the stand-in listens")
            assert process.poll() is None, (folder / "service.log").read_text()
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10, trust_env=False) as http:
                yield GlobusService(port, http)
        finally:
            ended(process)


@dataclass
class EndpointDaemon:
    """An unmodified `globus-compute-endpoint`, with the project's own kit as its configuration."""

    folder: Path
    service: GlobusService
    template: str = ""
    allowed: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    @property
    def home(self) -> Path:
        return self.folder / "globus" / "stream"

    @property
    def endpoint_id(self) -> str:
        return str(json.loads((self.home / "endpoint.json").read_text())["endpoint_id"])

    def write(self) -> None:
        """Write the configuration: the kit's files with what its comments ask to edit."""
        self.home.mkdir(parents=True, mode=0o700, exist_ok=True)
        lines = ["local_compute_services: true", "heartbeat_period: 5", "email: admin@example.edu"]
        if self.allowed:
            lines += ["allowed_functions:", *(f"  - {function}" for function in self.allowed)]
        (self.home / "config.yaml").write_text("\n".join(lines) + "\n")
        (self.home / "user_config_template.yaml.j2").write_text(self.template or kit_template())
        worker = self.folder / "worker.ini"
        environment = (KIT / "user_environment.yaml").read_text().replace("/opt/stream/worker.ini", str(worker))
        (self.home / "user_environment.yaml").write_text(f"{environment}HOME: {self.folder}\nNO_PROXY: 127.0.0.1\n")

    def start(self) -> None:
        """Start the daemon and wait until the service has it online."""
        self.write()
        env = {
            "PATH": f"{ENDPOINT_VENV / 'bin'}:/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "GLOBUS_COMPUTE_USER_DIR": str(self.home.parent),
            "GLOBUS_COMPUTE_CLIENT_ID": CLIENT,
            "GLOBUS_COMPUTE_CLIENT_SECRET": SECRET,
            "GLOBUS_SDK_SERVICE_URL_AUTH": f"http://127.0.0.1:{self.service.port}/",
            "HTTP_PROXY": f"http://127.0.0.1:{self.service.port}",
            "http_proxy": f"http://127.0.0.1:{self.service.port}",
            "NO_PROXY": "127.0.0.1",
        }
        with (self.folder / "endpoint.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(ENDPOINT), "start", "stream", "--log-to-console"],
                env=env,
                cwd=self.folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait(self.is_online, f"the endpoint is online; see {self.folder / 'endpoint.log'}", 40)

    def is_online(self) -> bool:
        assert self.process is None or self.process.poll() is None, (self.folder / "endpoint.log").read_text()[-3000:]
        if not (self.home / "endpoint.json").exists():
            return False
        headers = {"Authorization": f"Bearer {self.service.token(CLIENT, 60)}"}
        answer = self.service.http.get(f"/v2/endpoints/{self.endpoint_id}/status", headers=headers)
        return answer.status_code == 200 and answer.json()["status"] == "online"

    def stop(self) -> None:
        """Stop the daemon as its administrator does."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                ended(self.process, 2)
            self.process = None

    def kill(self) -> None:
        """End it at once, at the end of a run; what it started is ended as `leftovers`."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)


def kit_template() -> str:
    """Return the kit's template, edited for this machine as its comments say."""
    text = (KIT / "user_config_template.yaml.j2").read_text()
    for line, own in {
        'scheduler = "slurm"': 'scheduler = "local"',
        'venv = "/opt/stream/venv"': f'venv = "{ENDPOINT_VENV}"',
        "heartbeat_period: 30": "heartbeat_period: 5",
    }.items():
        assert line in text, f"the kit's template has no {line!r}"
        text = text.replace(line, own)
    return text


THREADS = """\
heartbeat_period: 5
engine:
  type: ThreadPoolEngine
  max_workers: 4
  allowed_serializers:
    - globus_compute_sdk.serialize.PureSourceTextInspect
    - globus_compute_sdk.serialize.JSONData
"""
