"""Which control plane starts the workers of an endpoint."""

from __future__ import annotations

from django.conf import settings

from routing.backends.hpc.control import ControlError, ControlPlane
from routing.backends.hpc.directory import Campus
from routing.backends.hpc.globus_settings import globus_control
from routing.backends.hpc.process import ProcessControl
from routing.hpc_models import Control


def control_for(campus: Campus) -> ControlPlane:
    """Return a new control plane for `campus`. Raises `ControlError` for one that this site does not have."""
    if campus.control == Control.PROCESS:
        return ProcessControl(campus, settings.HPC_DEMO_MODEL_URL, settings.HPC_DEMO_MODEL_KEY)
    if campus.control == Control.GLOBUS and not campus.globus_endpoint:
        raise ControlError(
            f"{campus.label} has no Globus endpoint.",
            todo="Set its UUID: `manage.py hpc_keys new NAME --globus-endpoint UUID`, or in the admin.",
        )
    if campus.control == Control.GLOBUS:
        return globus_control(campus.globus_endpoint)
    raise ControlError(
        f"{campus.label} is started by {campus.control}, which this site does not have.",
        todo="Choose another control in the endpoint's settings.",
    )
