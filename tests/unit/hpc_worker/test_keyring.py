"""Key rings fail loudly and never print keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_worker.keyring import Keyring, KeyringError, relay_name

A, B = "ab" * 32, "cd" * 32


def test_the_first_is_primary_and_all_are_accepted() -> None:
    ring = Keyring.parse(f" new:{A}, old-1:{B} ")
    assert ring.primary == "new"
    assert list(ring) == ["new", "old-1"]
    assert ring.get("old-1") == bytes.fromhex(B)
    assert ring.get("other") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        (A, "entry 1"),
        (f"k1:{A[:-1]}", "entry 1"),
        (f"k1:{A}0", "entry 1"),
        (f"k1:{A.upper()}", "entry 1"),
        (f"K1:{A}", "entry 1"),
        (f":{A}", "entry 1"),
        (f"{'k' * 17}:{A}", "entry 1"),
        (f"k1:{A},", "entry 2"),
        (f"k1:{A},,k2:{B}", "entry 2"),
        (f"k1:{A};k2:{B}", "entry 1"),
        (f"k1:{A},k1:{B}", "written twice"),
        (f"k1:{A},k2:{A}", "same key"),
        (f"k1:{'00' * 32}", "zeros"),
    ],
)
def test_a_bad_ring_is_refused_in_words_without_the_key(text: str, words: str) -> None:
    with pytest.raises(KeyringError, match=words) as caught:
        Keyring.parse(text, "STREAM_E2E_KEYS")
    assert "STREAM_E2E_KEYS" in str(caught.value)
    assert A[:8] not in str(caught.value).lower()
    assert B[:8] not in str(caught.value).lower()


def test_a_ring_is_printed_without_keys() -> None:
    assert repr(Keyring.parse(f"k1:{A}")) == "Keyring(k1)"


@given(st.text(max_size=200))
def test_any_text_raises_nothing_else(text: str) -> None:
    with pytest.raises(KeyringError):
        Keyring.parse(text)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("wss://relay.example.edu/v1", "relay.example.edu"),
        ("wss://Relay.Example.edu:443/v1", "relay.example.edu"),
        ("wss://relay.example.edu:8443/v1", "relay.example.edu:8443"),
        ("ws://127.0.0.1:9001/v1", "127.0.0.1:9001"),
        ("ws://[::1]:9001/v1", "[::1]:9001"),
    ],
)
def test_relay_name(url: str, name: str) -> None:
    assert relay_name(url) == name


@pytest.mark.parametrize(
    "url", ["https://relay.example.edu/v1", "relay.example.edu", "", "wss://", "wss://u:p@h/v1", "wss://h/v1?token=1"]
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match="relay URL"):
        relay_name(url)
