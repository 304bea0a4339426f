"""The control plane as the settings describe it."""

from __future__ import annotations

from django.conf import settings

from routing.backends.hpc.globus import GlobusControl
from routing.backends.hpc.globus_executor import Destination
from routing.backends.hpc.globus_identity import ServiceIdentity


def globus_control(endpoint_id: str) -> GlobusControl:
    """Return the control plane of one endpoint, in the platform's own name. Nothing is asked yet."""
    identity = ServiceIdentity(settings.GLOBUS_COMPUTE_CLIENT_ID, settings.GLOBUS_COMPUTE_CLIENT_SECRET)
    destination = Destination(endpoint_id, amqp_port=settings.GLOBUS_COMPUTE_AMQP_PORT or None)
    return GlobusControl(identity, destination, function_id=settings.GLOBUS_COMPUTE_FUNCTION_ID)
