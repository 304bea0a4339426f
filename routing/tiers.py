"""The tiers as pages show them."""

from __future__ import annotations

from typing import Any

from routing.types import ModelSpec, TierStatus
from routing.wiring import tier_statuses


def tier_cards() -> list[dict[str, Any]]:
    """Return every tier of the catalogue with its models, prices and, where it is shut, the reason."""
    return [card(status) for status in tier_statuses()]


def card(status: TierStatus) -> dict[str, Any]:
    return {
        "tier": status.tier.value,
        "label": status.tier.label,
        "configured": status.configured,
        "usable": status.usable,
        "why": status.why,
        "models": [model_card(model) for model in status.models],
    }


def model_card(model: ModelSpec) -> dict[str, Any]:
    """Prices in micro-dollars per million tokens."""
    return {
        "name": model.name,
        "label": model.label,
        "window": model.window,
        "price_in_micro": model.price.input,
        "price_out_micro": model.price.output,
        "free": model.price.is_free,
        "note": model.note,
        "typical_first_text_s": model.typical_first_text_s,
    }
