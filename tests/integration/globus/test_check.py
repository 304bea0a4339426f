"""`manage.py hpc_check` against the real endpoint."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.globus_processes import CLIENT, SECRET, EndpointDaemon, GlobusService
from tests.integration.globus.campus import GLOBUS, Campus

pytestmark = GLOBUS


@pytest.fixture
def configured(settings: Any, monkeypatch: pytest.MonkeyPatch, globus_service: GlobusService, function_id: str) -> Any:
    settings.GLOBUS_COMPUTE_CLIENT_ID = CLIENT
    settings.GLOBUS_COMPUTE_CLIENT_SECRET = SECRET
    settings.GLOBUS_COMPUTE_FUNCTION_ID = function_id
    settings.GLOBUS_COMPUTE_AMQP_PORT = 0
    monkeypatch.setenv("GLOBUS_SDK_ENVIRONMENT", "local")
    return settings


def check(endpoint: EndpointDaemon, *, fails: str = "") -> list[str]:
    """Run the command; return its lines."""
    out = StringIO()
    if fails:
        with pytest.raises(CommandError, match=fails):
            call_command("hpc_check", endpoint.endpoint_id, stdout=out)
    else:
        call_command("hpc_check", endpoint.endpoint_id, stdout=out)
    return out.getvalue().splitlines()


def test_every_part_works(configured: Any, endpoint: EndpointDaemon, campus: Campus) -> None:
    lines = check(endpoint)
    assert [line[:9].strip() for line in lines[:4]] == ["ok"] * 4
    assert "A worker started on the cluster, and its settings are complete." in lines[3]
    assert lines[4] == "Workers can be started."


def test_the_part_that_fails_is_named_with_what_to_do(
    configured: Any, endpoint: EndpointDaemon, campus: Campus, function_id: str
) -> None:
    campus.settings.chmod(0o640)
    try:
        lines = check(endpoint, fails="“worker” fails")
    finally:
        campus.settings.chmod(0o600)
    assert lines[3].startswith("FAILS      worker:")
    assert "chmod 600" in lines[3]
    configured.GLOBUS_COMPUTE_FUNCTION_ID = ""
    lines = check(endpoint, fails="“function” fails")
    assert lines[3].strip().startswith("What to do: The HPC administrator adds ")
    assert "GLOBUS_COMPUTE_FUNCTION_ID=" in lines[3]
    assert lines[4].startswith("not asked")
    configured.GLOBUS_COMPUTE_CLIENT_SECRET = "expired"
    lines = check(endpoint, fails="“credential and endpoint” fails")
    assert "no longer accepts the credential" in lines[1]
    configured.GLOBUS_COMPUTE_CLIENT_SECRET = ""
    lines = check(endpoint, fails="“settings” fails")
    assert "GLOBUS_COMPUTE_CLIENT_SECRET is not set." in lines[0]
