"""Typed view of the settings of routing."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from django.conf import settings


@dataclass(frozen=True)
class RoutingConf:
    tiers_file: Path
    local_kind: str
    local_base_url: str
    local_model: str
    local_api_key: str = field(repr=False)
    cloud_base_url: str
    cloud_api_key: str = field(repr=False)
    connect_s: float
    first_byte_s: float
    between_bytes_s: float
    answer_s: float
    redis_url: str = field(repr=False)
    hpc_worker_s: float
    hpc_first_text_s: float


@cache
def conf() -> RoutingConf:
    """Return the settings of routing, read once."""
    return RoutingConf(
        tiers_file=Path(settings.TIERS_FILE),
        local_kind=settings.LOCAL_KIND,
        local_base_url=settings.LOCAL_BASE_URL,
        local_model=settings.LOCAL_MODEL,
        local_api_key=settings.LOCAL_API_KEY,
        cloud_base_url=settings.CLOUD_BASE_URL,
        cloud_api_key=settings.CLOUD_API_KEY,
        connect_s=settings.CONNECT_TIMEOUT_S,
        first_byte_s=settings.FIRST_BYTE_TIMEOUT_S,
        between_bytes_s=settings.BETWEEN_BYTES_TIMEOUT_S,
        answer_s=settings.ANSWER_TIMEOUT_S,
        redis_url=settings.REDIS_URL,
        hpc_worker_s=settings.HPC_WORKER_TIMEOUT_S,
        hpc_first_text_s=settings.HPC_FIRST_TEXT_TIMEOUT_S,
    )
