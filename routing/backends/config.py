"""How a backend reaches its server. Frozen; made from the settings, never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from routing.types import Tier


@dataclass(frozen=True)
class Timeouts:
    """Seconds.

    `first_byte_s` runs from the request to the first piece of the answer, `between_bytes_s` from one piece to the
    next. Any byte counts as life, also the keepalives of a server whose model is still thinking: `total_s` ends that.
    """

    connect_s: float = 5.0
    first_byte_s: float = 60.0
    between_bytes_s: float = 60.0
    total_s: float = 900.0


@dataclass(frozen=True)
class BackendConfig:
    """`base_url`: up to and without /chat/completions (OpenAI form) or /api/chat (Ollama). `keep_alive`: Ollama's word
    for how long the model stays loaded ("10m", -1 for always), not sent when None."""

    tier: Tier
    base_url: str
    api_key: str = field(default="", repr=False)
    timeouts: Timeouts = Timeouts()
    max_tokens_param: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    include_usage_cost: bool = False
    extra_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    keep_alive: str | int | None = None
    max_connections: int = 1000
