"""Settings: words for what is wrong, and no secret left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpc_worker import config
from hpc_worker.config import ConfigError, read

A, B = "ab" * 32, "cd" * 32
GOOD = {
    "STREAM_E2E_KEYS": f"k1:{A}",
    "STREAM_PRODUCER_KEYS": f"p1:{B}",
    "STREAM_RELAY_URLS_ALLOWED": "wss://relay.example.edu/v1, demo=ws://127.0.0.1:9001/v1",
    "STREAM_MODEL_URL": "http://127.0.0.1:8000/v1/",
    "STREAM_MODEL_NAME": "qwen3-30b",
}


def test_good_settings() -> None:
    environ = {**GOOD, "STREAM_MODEL_API_KEY": "secret", "PATH": "/bin", "STREAM_CAPACITY": "4"}
    settings = read(environ)
    assert settings.e2e_keys.primary == "k1"
    assert settings.relays == {"wss://relay.example.edu/v1": "relay.example.edu", "ws://127.0.0.1:9001/v1": "demo"}
    assert settings.model_url == "http://127.0.0.1:8000/v1"
    assert (settings.capacity, settings.parked, settings.walltime_s) == (4, 8, 0)
    assert settings.model_api_key == "secret"
    assert not set(environ) & set(config.SECRETS), "secrets are gone"
    assert environ["PATH"] == "/bin"
    assert A not in repr(settings)


def test_all_that_is_missing_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        read({})
    for name in GOOD:
        assert f"{name} is not set." in caught.value.problems
    assert str(caught.value).startswith("The worker did not start and took no job.")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("STREAM_E2E_KEYS", f"k1:{A[1:]}", "STREAM_E2E_KEYS: entry 1"),
        ("STREAM_PRODUCER_KEYS", f"p1:{A}", "share a key"),
        ("STREAM_RELAY_URLS_ALLOWED", "ws://relay.example.edu/v1", "loopback only"),
        ("STREAM_RELAY_URLS_ALLOWED", "https://relay.example.edu/v1", "relay URL"),
        ("STREAM_RELAY_URLS_ALLOWED", "wss://relay.example.edu/v1,", "relay URL"),
        ("STREAM_MODEL_URL", "127.0.0.1:8000", "must be http"),
        ("STREAM_MODEL_URL", "http://u:p@127.0.0.1/v1", "password"),
        ("STREAM_MODEL_NAME", "a\nb", "printable"),
        ("STREAM_CAPACITY", "0", "from 1 to 256"),
        ("STREAM_CAPACITY", "many", "from 1 to 256"),
        ("STREAM_CAPACITY", "9" * 5000, "from 1 to 256"),
        ("STREAM_PARKED", "33", "from 0 to 32"),
        ("STREAM_WALLTIME_S", "60", "longer than STREAM_DRAIN_S"),
    ],
)
def test_a_wrong_value_is_said_in_words_without_keys(name: str, value: str, words: str) -> None:
    environ = {**GOOD, name: value}
    with pytest.raises(ConfigError, match=words) as caught:
        read(environ)
    assert len(caught.value.problems) == 1
    assert A[:10] not in str(caught.value)
    assert not set(environ) & set(config.SECRETS), "secrets are gone also after a failure"


def secret_file(path: Path, text: str, mode: int = 0o600) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_secrets_from_files(tmp_path: Path) -> None:
    environ = {**GOOD, "STREAM_E2E_KEYS": "", "STREAM_E2E_KEYS_FILE": secret_file(tmp_path / "k", f"k9:{A}\n")}
    assert read(environ).e2e_keys.primary == "k9"


def test_a_secret_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = secret_file(tmp_path / "k", f"k9:{A}\n", 0o640)
    with pytest.raises(ConfigError, match="chmod 600") as caught:
        read({**GOOD, "STREAM_E2E_KEYS": "", "STREAM_E2E_KEYS_FILE": path})
    assert len(caught.value.problems) == 1


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read({**GOOD, "STREAM_E2E_KEYS": "", "STREAM_E2E_KEYS_FILE": str(tmp_path / "none")})
    with pytest.raises(ConfigError, match="cannot be read"):
        read({**GOOD, "STREAM_WORKER_CONFIG": str(tmp_path / "none")})


def test_an_ini_file_gives_what_the_environment_does_not(tmp_path: Path) -> None:
    lines = ["[worker]", *(f"{name} = {value}" for name, value in GOOD.items()), "stream_capacity = 9"]
    path = secret_file(tmp_path / "worker.ini", "\n".join(lines))
    settings = read({"STREAM_WORKER_CONFIG": path, "STREAM_MODEL_NAME": "other"})
    assert (settings.capacity, settings.model_name, settings.producer_keys.primary) == (9, "other", "p1")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no section", "cannot be read as INI"),
        ("[other]\na=1", "cannot be read as INI"),
        ("[worker]\nstream_capacitty = 3", "unknown settings: stream_capacitty"),
    ],
)
def test_a_wrong_ini_file_is_said(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read({**GOOD, "STREAM_WORKER_CONFIG": secret_file(tmp_path / "worker.ini", text)})


def test_keys_in_an_open_ini_file_are_refused(tmp_path: Path) -> None:
    path = secret_file(tmp_path / "worker.ini", f"[worker]\nstream_e2e_keys = k1:{A}", 0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read({**GOOD, "STREAM_WORKER_CONFIG": path})


def test_every_setting_is_in_the_table() -> None:
    assert config.__doc__ is not None
    for name in config.NAMES:
        assert f"| {name} " in config.__doc__
