"""Put the parts of routing together from the settings: the tiers as they stand, and one engine per process."""

from __future__ import annotations

from dataclasses import replace

from routing.backends.base import Backend
from routing.backends.config import BackendConfig, Timeouts
from routing.backends.ollama import OllamaBackend
from routing.backends.openai_compat import OpenAICompatBackend
from routing.catalog import read_catalog
from routing.conf import RoutingConf, conf
from routing.engine import Engine
from routing.judge import default_judge
from routing.types import ModelSpec, Price, Tier, TierStatus

OLLAMA_WINDOW = 8192


def tier_statuses(c: RoutingConf | None = None) -> tuple[TierStatus, ...]:
    """Return each tier of the catalogue, in order: configured or not, and why not. Raises `CatalogError`."""
    c = c or conf()
    catalog = read_catalog(c.tiers_file)
    found = []
    for tier, models in catalog.items():
        if tier is Tier.LOCAL:
            models = local_models(c, models)
        why = missing(c, tier)
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
            window=OLLAMA_WINDOW,
            max_output=OLLAMA_WINDOW // 4,
            price=Price(),
        ),
    )


def missing(c: RoutingConf, tier: Tier) -> str:
    """Return what the configuration of `tier` lacks, in words, or nothing."""
    if tier is Tier.LOCAL and not c.local_base_url:
        return "No local model server is connected (LOCAL_BASE_URL)."
    if tier is Tier.CLOUD and not c.cloud_api_key:
        return "No key for paid models is set (OPENROUTER_API_KEY)."
    if tier is Tier.HPC:
        return "No campus GPUs are connected."
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


def build_engine() -> Engine:
    """Return a new engine with its own connections. Raises `CatalogError`."""
    c = conf()
    statuses = tier_statuses(c)
    return Engine(
        judge=default_judge(), backends=build_backends(c, statuses), tiers=statuses, answer_timeout_s=c.answer_s
    )
