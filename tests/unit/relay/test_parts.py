"""Ring, pace, addresses, choice of a relay, configuration."""

from __future__ import annotations

import os
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay.config import RelayConfig, RelayConfigError
from relay.limits import Limits, address_group
from relay.rendezvous import choose, ranked
from relay.ring import Ring

ENV = {
    "RELAY_NAME": "relay.test",
    "RELAY_CONSUMER_KEYS": "c1:" + "11" * 32,
    "RELAY_PRODUCER_KEYS": "p-1:" + "22" * 32,
}


@given(st.lists(st.tuples(st.sampled_from("attr"), st.integers(0, 30)), max_size=60), st.integers(0, 20))
def test_a_ring_is_a_window_of_what_was_appended(steps: list[tuple[str, int]], top: int) -> None:
    ring, model, position = Ring(10**6, 1000, top), {}, top
    for step, n in steps:
        if step == "a":
            position += 1
            model[position] = bytes(n)
            ring.append(bytes(n))
        elif step == "t":
            freed = sum(len(model.pop(p)) for p in [p for p in model if p <= n])
            assert ring.trim(n) == freed
        elif step == "r" and n > 25:
            model.clear()
            position = n
            ring.reset(n)
        assert ring.top == position
        assert ring.bytes == sum(map(len, model.values()))
        assert ring.after(n, 5) == [model[p] for p in sorted(model) if p > n][:5]


def test_a_ring_is_full_when_the_largest_frame_would_not_fit() -> None:
    ring = Ring(20_000, 100)
    ring.append(bytes(3616))
    assert not ring.full
    ring.append(bytes(1))
    assert ring.full


def test_addresses_are_grouped() -> None:
    assert address_group("10.1.2.3") == "10.1.2.3"
    assert address_group("2001:db8:1:2:3::4") == address_group("2001:db8:1:2::9") == "2001:db8:1:2"
    assert address_group("::1") == "0:0:0:0"


def test_relays_share_channels_evenly_and_a_new_one_moves_few() -> None:
    urls = [f"wss://r{n}.example/v1" for n in range(4)]
    cids = [os.urandom(16) for _ in range(4000)]
    before = {cid: choose(cid, urls) for cid in cids}
    assert all(800 < count < 1200 for count in Counter(before.values()).values())
    after = {cid: choose(cid, [*reversed(urls), "wss://r4.example/v1"]) for cid in cids}
    moved = [cid for cid in cids if before[cid] != after[cid]]
    assert all(after[cid].startswith("wss://r4") for cid in moved)
    assert 600 < len(moved) < 1000
    assert ranked(cids[0], urls)[0] == before[cids[0]]
    with pytest.raises(ValueError, match="no relay"):
        choose(cids[0], [])


def test_the_environment_is_read_and_limits_may_be_set() -> None:
    config = RelayConfig.from_environ({**ENV, "RELAY_LIMIT_CHANNELS": "7", "RELAY_LIMIT_DRAIN_S": "0.5"})
    assert config.limits == Limits(channels=7, drain_s=0.5)
    assert "22" * 32 not in repr(config)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"STREAM_E2E_KEYS": "k1:" + "33" * 32}, "must not be able to read"),
        ({"STREAM_E2E_KEYS_FILE": "/run/secrets/e2e"}, "must not be able to read"),
        ({"RELAY_NAME": ""}, "RELAY_NAME"),
        ({"RELAY_CONSUMER_KEYS": ""}, "RELAY_CONSUMER_KEYS is empty"),
        ({"RELAY_PRODUCER_KEYS": "p-1:zz"}, "entry 1"),
        ({"RELAY_PRODUCER_KEYS": "c1:" + "22" * 32}, "'c1' is in"),
        ({"RELAY_PRODUCER_KEYS": "p-1:" + "11" * 32}, "the same key"),
        ({"RELAY_LIMIT_CHANELS": "7"}, "RELAY_LIMIT_CHANELS is not a limit"),
        ({"RELAY_LIMIT_CHANNELS": "many"}, "not a whole number"),
        ({"RELAY_LIMIT_CHANNELS": "0"}, "above zero"),
        ({"RELAY_CONSUMER_KEYS_FILE": "/nowhere"}, "cannot be read"),
    ],
)
def test_a_wrong_environment_is_refused_in_words(change: dict[str, str], words: str) -> None:
    with pytest.raises(RelayConfigError, match=words) as refused:
        RelayConfig.from_environ({**ENV, **change})
    assert refused.value.todo
    assert "33" * 32 not in str(refused.value)
