"""Campus endpoints and their keys: rings, rotation, sealing at rest, the command."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.contrib import admin
from django.core.management import CommandError, call_command

from hpc_worker import config
from hpc_worker.keyring import Keyring
from routing.backends.hpc.directory import CampusSetupError, campus_for, campus_of, note_key_used, parse_relays
from routing.hpc_keys import accepted_keys, active_key, demo_endpoint_ensure, key_activate, key_create, key_retire
from routing.hpc_models import HpcEndpoint, HpcKey, Purpose
from routing.hpc_secrets import open_secret, reseal_secret, seal_secret
from stream_site.errors import ConflictError, InternalError, NotFound

RELAY = "ws://127.0.0.1:8000/relay/v1"


@pytest.fixture
def endpoint(db: None) -> HpcEndpoint:
    return demo_endpoint_ensure(relay=RELAY, model="small")


def run(*args: str) -> str:
    out = StringIO()
    call_command("hpc_keys", *args, stdout=out)
    return out.getvalue()


def test_a_new_endpoint_has_one_key_for_each_purpose_and_no_two_are_the_same(endpoint: HpcEndpoint) -> None:
    keys = list(endpoint.keys.all())
    assert sorted(key.purpose for key in keys) == ["consumer", "e2e", "producer"]
    assert len({open_secret(key.secret) for key in keys}) == 3
    assert demo_endpoint_ensure(relay=RELAY, model="small").keys.count() == 3


def test_the_campus_has_the_keys_of_its_endpoint(endpoint: HpcEndpoint) -> None:
    campus = campus_for("small")
    assert campus.relays == {RELAY: "127.0.0.1:8000"}
    assert campus.content.primary == active_key(endpoint, Purpose.E2E).kid  # type: ignore[union-attr]
    assert campus.content.keys.keys().isdisjoint(campus.producers.keys)
    for key in endpoint.keys.all():
        assert open_secret(key.secret).hex() not in repr(campus)


def test_a_rotated_key_is_accepted_at_once_and_used_once_activated(endpoint: HpcEndpoint) -> None:
    old = active_key(endpoint, Purpose.E2E)
    assert old is not None
    new = key_create(endpoint=endpoint, purpose=Purpose.E2E)
    assert campus_of(endpoint).content.primary == old.kid
    assert set(campus_of(endpoint).content) == {old.kid, new.kid}
    with pytest.raises(ConflictError, match="in use"):
        key_retire(kid=old.kid)
    key_activate(kid=new.kid)
    assert campus_of(endpoint).content.primary == new.kid
    key_retire(kid=old.kid)
    assert set(campus_of(endpoint).content) == {new.kid}
    with pytest.raises(ConflictError, match="retired"):
        key_activate(kid=old.kid)
    with pytest.raises(NotFound):
        key_retire(kid="e-none")


def test_the_printed_lines_are_what_worker_and_relay_read(endpoint: HpcEndpoint) -> None:
    lines = dict(line.partition("    #")[0].split("=", 1) for line in run("print", "demo").splitlines() if "=" in line)
    environ = {
        "STREAM_E2E_KEYS": lines["STREAM_E2E_KEYS"],
        "STREAM_PRODUCER_KEYS": lines["STREAM_PRODUCER_KEYS"],
        "STREAM_RELAY_URLS_ALLOWED": RELAY,
        "STREAM_MODEL_URL": "http://127.0.0.1:1/v1",
        "STREAM_MODEL_NAME": "small",
    }
    assert config.read(environ).e2e_keys == campus_of(endpoint).content
    assert lines["RELAY_PRODUCER_KEYS"] == lines["STREAM_PRODUCER_KEYS"]
    assert Keyring.parse(lines["RELAY_CONSUMER_KEYS"]).primary == campus_of(endpoint).consumer[0]


def test_the_list_and_the_admin_show_no_secret(endpoint: HpcEndpoint, admin_client: Any) -> None:
    note_key_used(accepted_keys(endpoint, Purpose.E2E)[0].kid)
    shown = run("list")
    assert shown.count("in use") == 3
    assert shown.count("last used") == 1
    key = endpoint.keys.first()
    assert key is not None
    page = admin_client.get(f"/admin/routing/hpckey/{key.pk}/change/").content.decode()
    assert key.kid in page
    for text in (shown, page):
        for one in endpoint.keys.all():
            assert one.secret not in text
            assert open_secret(one.secret).hex() not in text
    assert "secret" not in admin.site.get_model_admin(HpcKey).get_fields(None)  # type: ignore[arg-type]


def test_keys_at_rest_are_opened_by_the_settings_key_alone(settings: Any) -> None:
    settings.KEY_ENCRYPTION_KEY = "old"
    sealed = seal_secret(b"x" * 32)
    settings.KEY_ENCRYPTION_KEY = "new, old"
    again = reseal_secret(sealed)
    settings.KEY_ENCRYPTION_KEY = "new"
    assert open_secret(again) == b"x" * 32
    with pytest.raises(InternalError, match="cannot be opened"):
        open_secret(sealed)


def test_what_an_endpoint_lacks_is_said(db: None, settings: Any) -> None:
    settings.RELAY_URLS = []
    endpoint = HpcEndpoint.objects.create(name="lab", label="Lab", control="globus", model="big")
    with pytest.raises(CampusSetupError, match="no relay"):
        campus_of(endpoint)
    settings.RELAY_URLS = ["wss://relay.example.edu/v1"]
    with pytest.raises(CampusSetupError, match="no keys"):
        campus_of(endpoint)
    with pytest.raises(CampusSetupError, match="runs other"):
        campus_for("other")
    with pytest.raises(CommandError, match="--model"):
        run("new", "elsewhere")


def test_relays_are_read_as_workers_read_them() -> None:
    assert parse_relays("a=ws://h:1/v1, wss://relay.example.edu/v1") == {
        "ws://h:1/v1": "a",
        "wss://relay.example.edu/v1": "relay.example.edu",
    }
    with pytest.raises(ValueError):
        parse_relays("http://h")
