"""Settings of hypothesis for machines that are busy with other work: slowness is no failure."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

CALM = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
