"""Which model answers as the local tier: the administrator's, this machine's Ollama, or the embedded one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from stream_site.devstack.http_get import NoAnswer, get

OLLAMA_PORT = 11434
OLLAMA_TIMEOUT_S = 1.0
EMBEDDED_MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True)
class LocalModel:
    """A local model server. `kind` is that of LOCAL_KIND: openai or ollama."""

    kind: str
    base_url: str
    name: str
    api_key: str
    words: str

    def environment(self) -> dict[str, str]:
        return {
            "LOCAL_KIND": self.kind,
            "LOCAL_BASE_URL": self.base_url,
            "LOCAL_MODEL": self.name,
            "LOCAL_API_KEY": self.api_key,
        }


def embedded(port: int, key: str) -> LocalModel:
    """Return the embedded model as served on `port`."""
    words = "SmolLM2 135M, embedded: a real but tiny demonstration model"
    return LocalModel("openai", f"http://127.0.0.1:{port}/v1", EMBEDDED_MODEL, key, words)


def ollama_url(value: str) -> str:
    """Return the address of Ollama for OLLAMA_HOST's `value`: host, host:port, :port or a URL; empty is the default.

    Ollama's own reading: a wildcard address, which only a server can listen on, is reached on loopback.
    """
    text = value.strip()
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "http", text
    parts = urlsplit(f"//{rest}")
    host = parts.hostname or "127.0.0.1"
    if host in ("0.0.0.0", "::"):  # noqa: S104
        host = "127.0.0.1"
    port = parts.port or {"https": 443, "http": OLLAMA_PORT if not separator else 80}.get(scheme, OLLAMA_PORT)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def smallest_chat_model(tags: Any) -> str:
    """Return the smallest model of Ollama's /api/tags answer that can chat, or "" when there is none.

    Source: https://docs.ollama.com/api/tags. Embedding models are told by their family or name.
    """
    found: list[tuple[int, str]] = []
    models = tags.get("models") if isinstance(tags, dict) else None
    for model in models if isinstance(models, list) else []:
        if not isinstance(model, dict) or not isinstance(model.get("name"), str):
            continue
        details = model.get("details")
        family = str(details.get("family", "")) if isinstance(details, dict) else ""
        if "bert" in family.lower() or "embed" in model["name"].lower():
            continue
        size = model.get("size")
        found.append((size if isinstance(size, int) else 2**62, model["name"]))
    return min(found)[1] if found else ""


async def find_ollama(env: Mapping[str, str]) -> LocalModel | None:
    """Return the Ollama of this machine when it answers within a second and has a model that chats."""
    try:
        url = ollama_url(env.get("OLLAMA_HOST", ""))
        status, body = await get(f"{url}/api/tags", OLLAMA_TIMEOUT_S)
        smallest = smallest_chat_model(json.loads(body))
    except (NoAnswer, ValueError):
        return None
    if status != 200 or not smallest:
        return None
    name = env.get("LOCAL_MODEL") or smallest
    return LocalModel("ollama", url, name, "", f"{name} by Ollama at {url}")
