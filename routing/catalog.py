"""The catalogue: which tiers and models there are, read from one validated file (`routing/tiers.toml`)."""

from __future__ import annotations

import tomllib
from decimal import Decimal
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from routing.types import ModelSpec, Price, Tier


class CatalogError(ValueError):
    """The file cannot be used; the message names the place and the fault."""


class ModelEntry(BaseModel):
    """One `[[tier.models]]` table. Prices in US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=200)
    label: str = Field(min_length=1, max_length=100)
    window: int = Field(ge=512)
    max_output: int = Field(ge=16)
    prompt_limit: int = Field(default=0, ge=0)
    input_usd: Decimal = Field(default=Decimal(0), ge=0, lt=100_000)
    output_usd: Decimal = Field(default=Decimal(0), ge=0, lt=100_000)
    cached_usd: Decimal | None = Field(default=None, ge=0, lt=100_000)
    reasoning_usd: Decimal | None = Field(default=None, ge=0, lt=100_000)
    vision: bool = False
    tools: bool = False
    typical_first_text_s: float = Field(default=1.0, gt=0)
    note: str = ""

    def spec(self, tier: Tier) -> ModelSpec:
        if self.max_output >= self.window:
            raise CatalogError(f"{tier}: {self.name}: max_output leaves no room for a question in the window.")
        return ModelSpec(
            tier=tier,
            name=self.name,
            label=self.label,
            window=self.window,
            max_output=self.max_output,
            prompt_limit=self.prompt_limit,
            price=Price(
                input=micro(self.input_usd) or 0,
                output=micro(self.output_usd) or 0,
                cached=micro(self.cached_usd),
                reasoning=micro(self.reasoning_usd),
            ),
            vision=self.vision,
            tools=self.tools,
            typical_first_text_s=self.typical_first_text_s,
            note=self.note,
        )


class TierEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    label: str = ""
    models: list[ModelEntry] = Field(min_length=1)


class CatalogFile(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    local: TierEntry | None = None
    hpc: TierEntry | None = None
    cloud: TierEntry | None = None


def micro(usd: Decimal | None) -> int | None:
    """Return micro-dollars. Raises `CatalogError` when `usd` has more than six decimals."""
    if usd is None:
        return None
    scaled = usd * 1_000_000
    if scaled != scaled.to_integral_value():
        raise CatalogError(f"{usd} has more than six decimals.")
    return int(scaled)


def read_catalog(path: Path) -> dict[Tier, tuple[ModelSpec, ...]]:
    """Return the models of each tier in `path`, in order. Raises `CatalogError`."""
    try:
        parsed = CatalogFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise CatalogError(f"{path} cannot be read: {error.strerror}.") from error
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{path} is not valid TOML: {error}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise CatalogError(f"{path}: {place}: {first['msg']}.") from error
    tiers = {}
    for tier in Tier:
        entry: TierEntry | None = getattr(parsed, tier.value)
        if entry is None:
            continue
        models = tuple(model.spec(tier) for model in entry.models)
        names = [model.name for model in models]
        if len(set(names)) != len(names):
            raise CatalogError(f"{path}: {tier}: a model is named twice.")
        tiers[tier] = models
    return tiers
