"""Fixtures of all tests."""

pytest_plugins = ["tests.fixtures_postgres"]
