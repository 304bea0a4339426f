"""Put the parts of routing together from the settings: the tiers as they stand, and one engine per process."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from django.db import connections

from routing.backends.base import Backend
from routing.backends.config import BackendConfig, Timeouts
from routing.backends.hpc.backend import HpcBackend
from routing.backends.hpc.watch import HpcLimits
from routing.backends.ollama import OllamaBackend
from routing.backends.openai_compat import OpenAICompatBackend
from routing.catalog import read_catalog
from routing.conf import RoutingConf, conf
from routing.engine import Engine
from routing.hpc_models import HpcEndpoint
from routing.judge import default_judge
from routing.types import ModelSpec, Price, Tier, TierStatus

UNKNOWN_WINDOW = 8192


def tier_statuses(c: RoutingConf | None = None) -> tuple[TierStatus, ...]:
    """Return each tier of the catalogue, in order: configured or not, and why not. Raises `CatalogError`."""
    c = c or conf()
    catalog = read_catalog(c.tiers_file)
    found = []
    for tier, models in catalog.items():
        why = missing(c, tier)
        if tier is Tier.LOCAL:
            models = local_models(c, models)
        elif tier is Tier.HPC:
            running = campus_models()
            models, why = served(models, running), "" if running else "No campus GPUs are connected."
        found.append(TierStatus(tier, configured=not why, models=models, why=why))
    return tuple(found)


def local_models(c: RoutingConf, models: tuple[ModelSpec, ...]) -> tuple[ModelSpec, ...]:
    """Return the models of the local tier: the one named by LOCAL_MODEL, as the catalogue has it where it does."""
    if not c.local_model:
        return models
    known = [m for m in models if m.name == c.local_model]
    if known:
        return tuple(known)
    return (
        ModelSpec(
            tier=Tier.LOCAL,
            name=c.local_model,
            label=c.local_model,
            window=UNKNOWN_WINDOW,
            max_output=UNKNOWN_WINDOW // 4,
            price=Price(),
        ),
    )


def campus_models() -> list[tuple[str, str]]:
    """Return model and label of each campus endpoint that is switched on.

    The engine is built inside the event loop, where the database may not be asked: then a thread asks, once a start.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return _campus_models()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_campus_models_of_thread).result()


def _campus_models() -> list[tuple[str, str]]:
    return list(HpcEndpoint.objects.filter(enabled=True).values_list("model", "label"))


def _campus_models_of_thread() -> list[tuple[str, str]]:
    try:
        return _campus_models()
    finally:
        connections.close_all()


def served(models: tuple[ModelSpec, ...], running: list[tuple[str, str]]) -> tuple[ModelSpec, ...]:
    """Return the models that campus endpoints run, as the catalogue has them where it does; all while none runs."""
    if not running:
        return models
    names = dict(running)
    known = tuple(m for m in models if m.name in names)
    new = [name for name in names if name not in {m.name for m in known}]
    return known + tuple(
        ModelSpec(Tier.HPC, name, name, window=UNKNOWN_WINDOW, max_output=UNKNOWN_WINDOW // 4) for name in new
    )


def missing(c: RoutingConf, tier: Tier) -> str:
    """Return what the configuration of `tier` lacks, in words, or nothing."""
    if tier is Tier.LOCAL and not c.local_base_url:
        return "No local model server is connected (LOCAL_BASE_URL)."
    if tier is Tier.CLOUD and not c.cloud_api_key:
        return "No key for paid models is set (OPENROUTER_API_KEY)."
    return ""


def build_backends(c: RoutingConf, statuses: tuple[TierStatus, ...]) -> dict[Tier, Backend]:
    """Return a backend for each configured tier."""
    backends: dict[Tier, Backend] = {}
    for status in statuses:
        if not status.configured:
            continue
        if status.tier is Tier.LOCAL:
            kind = OllamaBackend if c.local_kind == "ollama" else OpenAICompatBackend
            backends[Tier.LOCAL] = kind(backend_config(c, Tier.LOCAL, c.local_base_url, c.local_api_key))
        elif status.tier is Tier.HPC:
            backends[Tier.HPC] = HpcBackend(c.redis_url, hpc_limits(c))
        elif status.tier is Tier.CLOUD:
            config = backend_config(c, Tier.CLOUD, c.cloud_base_url, c.cloud_api_key)
            backends[Tier.CLOUD] = OpenAICompatBackend(
                replace(config, include_usage_cost="openrouter" in c.cloud_base_url)
            )
    return backends


def backend_config(c: RoutingConf, tier: Tier, base_url: str, api_key: str) -> BackendConfig:
    timeouts = Timeouts(
        connect_s=c.connect_s, first_byte_s=c.first_byte_s, between_bytes_s=c.between_bytes_s, total_s=c.answer_s
    )
    return BackendConfig(tier=tier, base_url=base_url, api_key=api_key, timeouts=timeouts)


def hpc_limits(c: RoutingConf) -> HpcLimits:
    return HpcLimits(
        worker_s=c.hpc_worker_s,
        first_text_s=c.hpc_first_text_s,
        between_text_s=c.between_bytes_s,
        total_s=c.answer_s,
    )


def build_engine() -> Engine:
    """Return a new engine with its own connections. Raises `CatalogError`."""
    c = conf()
    statuses = tier_statuses(c)
    return Engine(
        judge=default_judge(), backends=build_backends(c, statuses), tiers=statuses, answer_timeout_s=c.answer_s
    )
