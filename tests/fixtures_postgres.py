"""Plugin for tests of the data layer: a real PostgreSQL, and a ledger that only a test's end may empty.

Tests marked `data` run on whatever DATABASE_URL names: on SQLite by default, on PostgreSQL under
`python -m tests.with_postgres`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.with_postgres import postgres


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Return the URL of a PostgreSQL: the one of this run if it has one, else one started for this session."""
    url = os.environ.get("DATABASE_URL", "")
    if url.startswith("postgres"):
        yield url
    else:
        with postgres() as url:
            yield url


@pytest.fixture(scope="session", autouse=True)
def ledger_may_be_flushed() -> Iterator[None]:
    """Lift the ledger's guard for as long as a transactional test's end empties the tables.

    Django empties them with DELETE (SQLite) or TRUNCATE (PostgreSQL), and the guard refuses both.
    """
    from django.db import connection

    guard = importlib.import_module("routing.migrations.0002_ledger_guard")
    operations: Any = connection.ops
    flush: Callable[..., list[str]] = operations.sql_flush

    def unguarded_flush(style: Any, tables: list[str], **options: Any) -> list[str]:
        statements = flush(style, tables, **options)
        if guard.TABLE not in tables:
            return statements
        return [*guard.OFF[connection.vendor], *statements, *guard.ON[connection.vendor]]

    operations.sql_flush = unguarded_flush
    yield
    operations.sql_flush = flush
