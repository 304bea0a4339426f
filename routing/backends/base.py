"""What a backend is: one method that yields.

A backend owns its HTTP connections, its time limits (connect, first byte, between bytes) and the translation of
foreign errors into `stream_site.errors`. Closing the generator closes the upstream request at once.

Contract (tests/integration/test_backend_contract.py holds every backend to it):
* yields `TextDelta`s whose joined text is byte-exact, then `UsageReport` at most once, then `Finish` once, last;
* a stream that ends without a finish reason raises `StreamBroken`; nothing is ever reported as complete by silence;
* raises only `UpstreamError`s (and `AccessError` when the call's data policy forbids the tier).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from routing.types import BackendEvent, ModelCall, Tier


class Backend(Protocol):
    tier: Tier

    def stream(self, call: ModelCall) -> AsyncGenerator[BackendEvent, None]:
        """Yield the events of one answer. Raises `UpstreamError`."""
        ...

    async def close(self) -> None:
        """Close pooled connections."""
        ...
