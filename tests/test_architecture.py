"""What holds for the whole project: import directions, documents that are complete, templates that compile."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.apps import apps
from django.template.loader import get_template
from django.urls import URLPattern, URLResolver, get_resolver

from chat.ws_urls import websocket_urlpatterns
from routing.ws_urls import RELAY_ROUTE
from stream_site.errors import StreamError
from tests.setting_names import ROOT, setting_names

OUR_APPS = [config for config in apps.get_app_configs() if Path(config.path).is_relative_to(ROOT / config.name)]
# Written in parts, or this file would mention them.
REGISTRY_HOSTS = ["pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "npmjs" + ".com", "deb.debian" + ".org"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def table_rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of every table row that starts with a `name` in code style."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def error_classes(parent: type[StreamError] = StreamError) -> Iterator[type[StreamError]]:
    for child in parent.__subclasses__():
        if child.__module__ == "stream_site.errors":
            yield child
            yield from error_classes(child)


def routes(resolver: URLResolver, prefix: str = "/") -> Iterator[tuple[str, URLPattern]]:
    for entry in resolver.url_patterns:
        if isinstance(entry, URLPattern):
            yield prefix + str(entry.pattern), entry
        elif entry.namespace != "admin":
            yield from routes(entry, prefix + str(entry.pattern))


def test_imports_point_down_only() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([program, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_worker_imports_without_django_or_the_site() -> None:
    code = """
import importlib, pkgutil, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("django", "channels", "celery", "stream_site", "accounts", "chat", "routing", "relay"):
            raise ImportError(f"the worker must not import {name}")
sys.meta_path.insert(0, Blocked())
import hpc_worker
names = [module.name for module in pkgutil.walk_packages(hpc_worker.__path__, "hpc_worker.")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
print(len(names))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) == len(list((ROOT / "hpc_worker").rglob("*.py"))) - 1


def test_every_setting_is_documented_and_nothing_else() -> None:
    site = read("docs/settings.md").partition("## Variables of the commands")[0]
    rows = {cells[0].strip("`"): cells for cells in table_rows(site)}
    secret_files = {
        name for name in setting_names() if name.removesuffix("_FILE") in setting_names() and name.endswith("_FILE")
    }
    assert set(rows) == setting_names() - secret_files
    assert {f"{name}_FILE" for name, cells in rows.items() if "*secret*" in cells[1]} == secret_files
    assert all(all(cells) for cells in rows.values())


def test_every_error_has_words_and_a_row() -> None:
    rows = {cells[0].strip("`"): cells for cells in table_rows(read("docs/errors.md"))}
    classes = list(error_classes())
    assert set(rows) == {error.code for error in classes}
    assert len(rows) == len(classes), "two errors share a code"
    for error in classes:
        again = "yes" if error.retryable else "no"
        assert rows[error.code][1:] == [error.title, str(error.http_status), str(error.ws_close), again]
        assert error.default_kept.endswith(".")
        assert error.default_todo.endswith(".")


def test_every_route_says_who_may_call_it() -> None:
    rows = {cells[0].partition(" ")[0].strip("`"): cells[1] for cells in table_rows(read("docs/routes.md"))}
    found = dict(routes(get_resolver()))
    sockets = {f"/{entry.pattern}" for entry in websocket_urlpatterns}
    assert set(rows) == set(found) | sockets | {"/admin/", f"/{RELAY_ROUTE}"}
    for route, entry in found.items():
        open_to_all = not getattr(entry.callback, "login_required", True)
        assert open_to_all == rows[route].startswith("anyone"), route


@pytest.mark.parametrize("config", OUR_APPS, ids=lambda config: config.name)
def test_every_command_is_documented(config: object) -> None:
    commands = sorted(Path(config.path, "management", "commands").glob("[!_]*.py"))  # type: ignore[attr-defined]
    text = read("README.md") + "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md"))
    missing = [path.stem for path in commands if not re.search(rf"manage\.py {path.stem}\b", text)]
    assert missing == []


def test_every_template_compiles() -> None:
    folders = [ROOT / "templates", *(Path(config.path) / "templates" for config in OUR_APPS)]
    names = [str(path.relative_to(folder)) for folder in folders for path in folder.rglob("*.*") if path.is_file()]
    assert "base.html" in names
    for name in names:
        assert get_template(name).template is not None


def test_no_file_names_a_package_registry() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in listed.split("\0") if name]
    assert files
    bad = [
        f"{path.relative_to(ROOT)}: {host}"
        for path in files
        if path.is_file()
        for host in REGISTRY_HOSTS
        if host.encode() in path.read_bytes()
    ]
    assert bad == []


def test_nobody_waits_with_asyncio_wait_for() -> None:
    """Before Python 3.12 `asyncio.wait_for` can swallow a cancellation; `asyncio.timeout` and `within` cannot."""
    for package in ("accounts", "chat", "hpc_worker", "relay", "routing", "stream_site"):
        for path in (ROOT / package).rglob("*.py"):
            assert "asyncio.wait_for(" not in path.read_text(encoding="utf-8"), path
