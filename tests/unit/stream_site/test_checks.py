from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stream_site.checks import check_files, check_production


def ids(found: Any) -> set[str]:
    return {message.id for message in found}


def test_the_files_that_come_with_the_site_are_in_order() -> None:
    assert ids(check_files()) == set()


def test_a_missing_tiers_file_is_an_error(settings: Any) -> None:
    settings.TIERS_FILE = "/no/such/tiers.toml"
    (message,) = check_files()
    assert message.id == "stream.E002"
    assert "/no/such/tiers.toml" in message.msg


def test_a_folder_that_is_not_there_is_an_error(settings: Any) -> None:
    settings.VAR_DIR = Path("/no/such/folder")
    assert ids(check_files()) == {"stream.E001"}


@pytest.fixture
def production(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    settings.DEBUG = settings.DEMO = False
    settings.HTTPS = True
    settings.SITE_URL = "https://ai.campus.example"
    settings.ALLOWED_HOSTS = ["ai.campus.example"]
    settings.SECRET_KEY = "set by the administrator of all machines"
    monkeypatch.setitem(settings.DATABASES["default"], "ENGINE", "django.db.backends.postgresql")
    return settings


def test_a_proper_production_site_has_no_findings(production: Any) -> None:
    assert ids(check_production()) == set()


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("DEBUG", True, "stream.E003"),
        ("HTTPS", False, "stream.E004"),
        ("DEMO", True, "stream.W006"),
        ("ALLOWED_HOSTS", ["*"], "stream.W008"),
    ],
)
def test_each_mistake_is_found(production: Any, name: str, value: Any, found: str) -> None:
    setattr(production, name, value)
    assert ids(check_production()) == {found}
    assert all(message.hint for message in check_production())


def test_sqlite_is_pointed_out(production: Any) -> None:
    production.DATABASES["default"]["ENGINE"] = "django.db.backends.sqlite3"
    assert ids(check_production()) == {"stream.W007"}


def test_a_machines_own_secret_key_does_not_serve_several_machines(production: Any, tmp_path: Path) -> None:
    production.VAR_DIR = tmp_path
    (tmp_path / "secret_key").write_text("made here", encoding="ascii")
    assert ids(check_production()) == set()
    production.SECRET_KEY = "made here"
    assert ids(check_production()) == {"stream.E005"}
