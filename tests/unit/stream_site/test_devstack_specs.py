from __future__ import annotations

from pathlib import Path

from stream_site.devstack import specs
from stream_site.devstack.local_model import embedded

SITE = specs.Site("/venv/bin/python", Path("/srv/var"), "127.0.0.1", 8000)


def test_the_key_value_server_has_no_tcp_port_and_a_private_socket() -> None:
    argv = specs.kv_server(Path("/bin/kv"), Path("/srv/var/kv.sock"), Path("/srv/var/kv")).argv
    options = dict(zip(argv[1::2], argv[2::2], strict=True))
    assert options["--port"] == "0"
    assert options["--unixsocket"] == "/srv/var/kv.sock"
    assert options["--unixsocketperm"] == "700"
    assert options["--appendonly"] == "yes"


def test_the_models_key_is_not_on_its_command_line() -> None:
    child = specs.model_server(SITE, 8081, "secret")
    assert "secret" not in child.argv
    assert child.env == {"MODEL_SERVER_API_KEY": "secret"}


def test_the_key_value_server_and_the_model_stop_last() -> None:
    env: dict[str, str] = {}
    front = (specs.web(SITE, env), *specs.background_children(SITE, env))
    assert [child.name for child in front] == ["web", "worker", "beat"]
    assert {child.stop_stage for child in front} == {specs.FRONT}
    assert specs.model_server(SITE, 8081, "key").stop_stage == specs.BACK
    assert sum(specs.STOP_GRACE_S.values()) < 10


def test_what_the_administrator_set_is_left_alone() -> None:
    admin = {"STREAM_SITE_URL": "https://ai.campus.example", "RUNNER_DRAIN_S": "20"}
    env = specs.site_environment(SITE, None, admin)
    assert "STREAM_SITE_URL" not in env
    assert "RUNNER_DRAIN_S" not in env
    assert "LOCAL_BASE_URL" not in env
    assert env["STREAM_DEMO"] == "1"


def test_the_local_model_is_told_to_the_site() -> None:
    env = specs.site_environment(SITE, embedded(8081, "key"), {})
    assert env["LOCAL_BASE_URL"] == "http://127.0.0.1:8081/v1"
    assert env["STREAM_SITE_URL"] == "http://127.0.0.1:8000"


def test_a_wildcard_address_is_reached_on_loopback() -> None:
    assert specs.Site("p", Path("/v"), "0.0.0.0", 80).url == "http://127.0.0.1:80"
    assert specs.Site("p", Path("/v"), "::", 80).url == "http://[::1]:80"
    assert specs.Site("p", Path("/v"), "fd00::7", 80).url == "http://[fd00::7]:80"


def test_the_served_address_is_an_allowed_host() -> None:
    assert specs.allowed_hosts(SITE) == "127.0.0.1,localhost,[::1]"
    assert specs.allowed_hosts(specs.Site("p", Path("/v"), "10.1.2.3", 80)).endswith(",10.1.2.3")
