"""Parsers that read what others wrote, beyond those tested next to their module: one kind of error each, and an end."""

from __future__ import annotations

import json
import os
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_worker import bodies, config, crypto, wire
from hpc_worker.answer import JobRefused, open_prompt, push_job
from hpc_worker.bodies import BodyError, Offer, OfferAssembler
from hpc_worker.config import ConfigError
from hpc_worker.keyring import Keyring
from hpc_worker.sse import Fault, OpenAIStreamReader
from hpc_worker.transcript import open_transcript, seal_transcript
from hpc_worker.wire import FrameType, Kind, WireError
from hpc_worker.worker import Mailbox
from tests.calm import CALM

KEY = bytes(range(32))
RING = Keyring("k1", {"k1": KEY})
SCOPE = crypto.Scope("k1", bytes(16), 1)
SALT = bytes(32)
RELAY = "wss://relay.example.edu/v1"
SETTINGS = config.Settings(RING, Keyring("p1", {"p1": bytes(range(1, 33))}), {RELAY: "r"}, "http://127.0.0.1/v1", "m")
OFFER: dict[str, Any] = {
    "cid": "00" * 16,
    "attempt": 1,
    "salt_c": "00" * 32,
    "kid": "k1",
    "relay": RELAY,
    "deadline_s": 60,
    "prompt": "00",
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40) | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
PIECES = st.lists(st.tuples(st.sampled_from([Kind.OFFER, Kind.OFFER_PART, Kind.CANCEL]), st.binary(max_size=60)))


def changed(data: st.DataObject, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return `obj` with one field changed, added or taken away."""
    out = dict(obj)
    name = data.draw(st.sampled_from(sorted(out)) | st.text(max_size=6))
    if data.draw(st.booleans()):
        out[name] = data.draw(JSON)
    else:
        out.pop(name, None)
    return out


@CALM
@given(st.data())
def test_an_offer_from_task_arguments_is_read_or_refused(data: st.DataObject) -> None:
    try:
        offer = bodies.load_offer(changed(data, OFFER))
    except BodyError:
        return
    assert len(offer.cid) == 16
    assert len(offer.salt_c) == 32
    assert 0 < offer.deadline_s <= 86_400
    assert type(offer.again) is bool


@CALM
@given(st.data())
def test_an_offer_from_a_mailbox_is_read_or_refused(data: st.DataObject) -> None:
    body = json.dumps(changed(data, {**OFFER, "prompt_bytes": 3})).encode()
    try:
        assert OfferAssembler().add(Kind.OFFER, body) is None
    except BodyError:
        return


@CALM
@given(PIECES)
def test_any_pieces_of_offers_are_joined_or_refused_and_little_is_kept(pieces: list[tuple[Kind, bytes]]) -> None:
    assembler = OfferAssembler(limit=4)
    for kind, body in [*Offer(bytes(16), 1, SALT, "k1", RELAY, 60, b"x" * 9).dump(), *pieces]:
        try:
            assembler.add(kind, body)
        except BodyError:
            continue
        finally:
            assert len(assembler._open) <= 4


@CALM
@given(st.data())
def test_a_mailbox_is_read_or_refused(data: st.DataObject) -> None:
    try:
        mailbox = Mailbox.load(changed(data, OFFER))
    except JobRefused:
        return
    try:
        mailbox.push_job(SETTINGS, 60)
    except JobRefused:
        return
    assert mailbox.relay == RELAY


@CALM
@given(
    st.binary(max_size=300)
    | st.builds(lambda kid, rest: b"\1\0\0\0\0\1" + kid + rest, st.binary(max_size=4), st.binary())
)
def test_any_transcript_is_refused_in_one_of_three_ways(transcript: bytes) -> None:
    with pytest.raises((WireError, crypto.CryptoError, BodyError)):
        open_transcript(RING, SCOPE, SALT, transcript)


@CALM
@given(st.data())
def test_a_changed_transcript_is_refused(data: st.DataObject) -> None:
    keys = crypto.derive_stream(KEY, SCOPE, SALT, bytes(32))
    records = [bodies.Record(FrameType.DATA, Kind.TEXT, seq, b"text") for seq in (1, 2)]
    sealed = bytearray(seal_transcript(KEY, keys, (SALT, bytes(32)), records))
    assert open_transcript(RING, SCOPE, SALT, bytes(sealed)) == records
    at = data.draw(st.integers(0, len(sealed) - 1))
    if data.draw(st.booleans()):
        sealed[at] ^= data.draw(st.integers(1, 255))
    else:
        del sealed[at:]
    with pytest.raises((WireError, crypto.CryptoError, BodyError)):
        open_transcript(RING, SCOPE, SALT, bytes(sealed))


@CALM
@given(JSON | st.binary(max_size=80) | st.just(b"[" * 5000) | st.just({"messages": [], "tools": [[[]]]}))
def test_any_sealed_prompt_is_a_request_or_refused(request: Any) -> None:
    plain = request if isinstance(request, bytes) else json.dumps(request).encode()
    prompt = crypto.seal_request(KEY, SCOPE, SALT, plain)
    offer = Offer(SCOPE.cid, 1, SALT, "k1", RELAY, 60, prompt)
    try:
        got = open_prompt(push_job(SETTINGS, offer, eager=False), offer)
    except JobRefused:
        return
    assert type(got["messages"]) is list


ENV_TEXT = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=60)
LIKELY = st.sampled_from(
    ["k1:" + "ab" * 32, "wss://[::1/v1", "http://[x", "ws://127.0.0.1:99999999/v1", "٣", "1e9", "-1", ","]
)


@CALM
@given(st.dictionaries(st.sampled_from([*config.NAMES, *(f"{n}_FILE" for n in config.SECRETS)]), ENV_TEXT | LIKELY))
def test_any_environment_is_read_or_refused_in_words(environ: dict[str, str]) -> None:
    before = set(environ)
    try:
        config.read(environ)
    except ConfigError as error:
        assert error.problems
        assert all(problem.endswith(".") for problem in error.problems)
        assert not any("ab" * 32 in problem for problem in error.problems)
    assert set(environ) == before - set(config.SECRETS)


@CALM
@given(text=st.binary(max_size=200) | st.builds(lambda rest: b"[worker]\n" + rest, st.binary(max_size=200)))
def test_any_settings_file_is_read_or_refused_in_words(tmp_path_factory: pytest.TempPathFactory, text: bytes) -> None:
    path = Path(tmp_path_factory.getbasetemp(), "any-worker.ini")
    path.write_bytes(text)
    os.chmod(path, 0o600)
    with pytest.raises(ConfigError):
        config.read({config.CONFIG_FILE: str(path)})


def test_an_endless_line_of_the_models_stream_costs_little_memory_and_ends() -> None:
    reader = OpenAIStreamReader(max_line_bytes=100_000)
    tracemalloc.start()
    try:
        items = [item for _ in range(500) for item in reader.feed(b"data: " + b"x" * 10_000)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(items[-1], Fault)
    assert items[-1].kind == "too_long"
    assert peak < 2_000_000, f"{peak:,} bytes"


def test_a_frame_is_refused_by_its_size_before_anything_is_copied() -> None:
    frame = b"\2\0\0\0\1" + bytes(50_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="frame_size"):
            wire.parse_frame(frame)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()
