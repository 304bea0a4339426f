"""Strict readers of environment variables: a value that cannot be used stops the start, in words.

A secret `NAME` may also come from the file named by `NAME_FILE` (container secrets, systemd credentials).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})


class Env:
    """Readers over one mapping, normally `os.environ`. An empty value counts as unset."""

    def __init__(self, source: Mapping[str, str] | None = None) -> None:
        self.source = os.environ if source is None else source

    def text(self, name: str, default: str = "") -> str:
        return self.source.get(name, "").strip() or default

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.text(name).lower()
        if not value:
            return default
        if value in TRUE:
            return True
        if value in FALSE:
            return False
        raise ImproperlyConfigured(f"{name}={value!r} is neither yes nor no. Use 1 or 0.")

    def integer(self, name: str, default: int, *, least: int = 0, most: int = 2**31) -> int:
        return int(self.number(name, default, least=least, most=most, whole=True))

    def number(self, name: str, default: float, *, least: float = 0, most: float = 1e12, whole: bool = False) -> float:
        value = self.text(name)
        if not value:
            return default
        try:
            parsed = int(value) if whole else float(value)
        except ValueError:
            kind = "whole number" if whole else "number"
            raise ImproperlyConfigured(f"{name}={value!r} is not a {kind}.") from None
        if not least <= parsed <= most:
            raise ImproperlyConfigured(f"{name}={value} is outside {least} to {most}.")
        return parsed

    def words(self, name: str, default: tuple[str, ...] = ()) -> list[str]:
        """Comma-separated list."""
        value = self.text(name)
        return [part.strip() for part in value.split(",") if part.strip()] if value else list(default)

    def choice(self, name: str, default: str, allowed: tuple[str, ...]) -> str:
        value = self.text(name, default)
        if value not in allowed:
            raise ImproperlyConfigured(f"{name}={value!r} is not one of {', '.join(allowed)}.")
        return value

    def secret(self, name: str, default: str = "") -> str:
        """The variable itself, or the first line of the file named by `NAME_FILE`."""
        path = self.text(f"{name}_FILE")
        if not path:
            return self.text(name, default)
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE={path!r} cannot be read: {error.strerror}.") from None
