"""Fixtures for all tests."""

pytest_plugins = ["tests.fixtures_upstream"]
