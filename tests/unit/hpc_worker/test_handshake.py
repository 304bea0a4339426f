"""Hop-by-hop messages and the admission mac."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpc_worker import handshake as hs
from hpc_worker import keyring, wire
from hpc_worker.wire import Close, WireError


def check(error: WireError) -> None:
    assert error.reason in wire.REASONS


B8, B16, B32 = (st.binary(min_size=n, max_size=n) for n in (8, 16, 32))
KIDS = st.from_regex(r"[a-z0-9-]{1,16}", fullmatch=True)
SEQ = st.integers(0, wire.MAX_SEQ)
MESSAGES: st.SearchStrategy[hs.Message] = st.one_of(
    st.builds(hs.Challenge, nonce=B32, epoch=B8),
    st.builds(hs.Park, kid=KIDS, mac=B32),
    st.builds(hs.ConsumerOpen, kid=KIDS, cid=B16, last=SEQ, fin=st.booleans(), mailbox=st.booleans(), mac=B32),
    st.builds(hs.ProducerOpen, kid=KIDS, cid=B16, attempt=st.integers(1, 65535), instance=B16, mac=B32),
    st.builds(hs.ConsumerOk, epoch=B8, producer=st.booleans(), top=SEQ),
    st.builds(hs.ProducerOk, epoch=B8, have=st.integers(-1, wire.MAX_SEQ), ack=SEQ),
    st.builds(hs.Ack, n=SEQ),
    st.builds(hs.Restarting, after_ms=st.integers(0, 600_000)),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(MESSAGES)
def test_round_trip(message: hs.Message) -> None:
    text = hs.build_text(message)
    assert hs.parse_text(text) == message
    assert hs.parse_text(text.encode()) == message
    assert len(text) <= hs.MAX_TEXT_BYTES
    shuffled = json.dumps(dict(reversed(json.loads(text).items())), indent=1)
    assert hs.parse_text(shuffled) == message


@given(st.text(max_size=300) | st.binary(max_size=300))
def test_any_text_raises_nothing_but_wire_error(text: str | bytes) -> None:
    with pytest.raises(WireError) as caught:
        hs.parse_text(text)
    assert caught.value.reason in wire.REASONS


@given(MESSAGES, st.data())
def test_a_field_changed_added_or_taken_away(message: hs.Message, data: st.DataObject) -> None:
    obj: dict[str, Any] = json.loads(hs.build_text(message))
    name = data.draw(st.sampled_from(sorted(obj)) | st.text(max_size=6))
    if name in obj and data.draw(st.booleans()):
        del obj[name]
    else:
        obj[name] = data.draw(JSON)
    try:
        parsed = hs.parse_text(json.dumps(obj))
    except WireError as error:
        check(error)
    else:
        assert hs.parse_text(hs.build_text(parsed)) == parsed


CID, MAC = "00" * 16, "00" * 32
OPEN: dict[str, Any] = {"t": "open", "v": 1, "role": "producer", "kid": "p1", "cid": CID, "attempt": 1, "mac": MAC}
OPEN["instance"] = CID


@pytest.mark.parametrize(
    ("text", "reason", "close"),
    [
        ("", "json", Close.MALFORMED),
        ("[]", "json", Close.MALFORMED),
        ("[" * 2000, "json", Close.MALFORMED),
        ('{"t":"ack","n":NaN}', "json", Close.MALFORMED),
        ('{"t":"ack","n":Infinity}', "json", Close.MALFORMED),
        ('{"t":"ack","n":1,"n":2}', "duplicate_field", Close.MALFORMED),
        ('{"t":"ack","n":{"a":1,"a":2}}', "duplicate_field", Close.MALFORMED),
        ('{"t":"ack","n":1.0}', "field_value", Close.MALFORMED),
        ('{"t":"ack","n":true}', "field_value", Close.MALFORMED),
        ('{"t":"ack","n":-1}', "field_value", Close.MALFORMED),
        ('{"t":"ack","n":4294967295}', "field_value", Close.MALFORMED),
        ('{"t":"ack"}', "fields", Close.MALFORMED),
        ('{"t":"ack","n":1,"x":1}', "fields", Close.MALFORMED),
        ('{"t":"ack","n":1,"v":1}', "fields", Close.MALFORMED),
        ('{"t":"hello"}', "message_type", Close.MALFORMED),
        ('{"t":"open/producer","v":1}', "message_type", Close.MALFORMED),
        ('{"t":7}', "message_type", Close.MALFORMED),
        ('{"n":7}', "message_type", Close.MALFORMED),
        ('{"t":"ack","n":1' + " " * 2048 + "}", "text_size", Close.FRAME_SIZE),
        (b"\xff\xfe", "text_encoding", Close.MALFORMED),
        ("\ud800", "text_encoding", Close.MALFORMED),
        (json.dumps({**OPEN, "v": 2}), "version", Close.VERSION),
        (json.dumps({**OPEN, "v": True}), "version", Close.VERSION),
        (json.dumps({**OPEN, "role": "relay"}), "role", Close.MALFORMED),
        (json.dumps({**OPEN, "role": "consumer"}), "fields", Close.MALFORMED),
        (json.dumps({**OPEN, "kid": "P1"}), "kid", Close.MALFORMED),
        (json.dumps({**OPEN, "kid": "p1\n"}), "kid", Close.MALFORMED),
        (json.dumps({**OPEN, "cid": CID.upper() + "0"}), "field_value", Close.MALFORMED),
        (json.dumps({**OPEN, "mac": "AB" * 32}), "field_value", Close.MALFORMED),
        (json.dumps({**OPEN, "attempt": 0}), "field_value", Close.MALFORMED),
        (json.dumps({"t": "park", "v": 1, "role": "consumer", "kid": "p1", "mac": MAC}), "role", Close.MALFORMED),
    ],
)
def test_malformed_messages_have_a_stable_reason(text: str | bytes, reason: str, close: Close) -> None:
    with pytest.raises(WireError) as caught:
        hs.parse_text(text)
    assert (caught.value.reason, caught.value.close) == (reason, close)


def test_a_value_that_would_be_refused_is_not_built() -> None:
    with pytest.raises(WireError):
        hs.build_text(hs.Ack(-1))
    with pytest.raises(WireError):
        hs.build_text(hs.ProducerOpen("P", bytes(16), 1, bytes(16)))


AUTHENTICATED = st.one_of(
    st.builds(hs.Park, kid=KIDS),
    st.builds(hs.ConsumerOpen, kid=KIDS, cid=B16, last=SEQ, fin=st.booleans(), mailbox=st.booleans()),
    st.builds(hs.ProducerOpen, kid=KIDS, cid=B16, attempt=st.integers(1, 65535), instance=B16),
)


@given(AUTHENTICATED, B32, B32, B32)
def test_a_mac_is_good_for_one_key_nonce_relay_and_message(
    message: hs.Authenticated, key: bytes, nonce: bytes, other: bytes
) -> None:
    signed: hs.Authenticated = keyring.sign(key, nonce, "relay.example.edu", message)
    received = hs.parse_text(hs.build_text(signed))
    assert isinstance(received, (hs.Park, hs.ConsumerOpen, hs.ProducerOpen))
    assert keyring.admitted(key, nonce, "relay.example.edu", received)
    assert not keyring.admitted(key, nonce, "other.example.edu", received)
    if other != nonce:
        assert not keyring.admitted(key, other, "relay.example.edu", received)
    if other != key:
        assert not keyring.admitted(other, nonce, "relay.example.edu", received)


def test_every_field_is_under_the_mac() -> None:
    key, nonce = b"k" * 32, b"n" * 32
    signed = keyring.sign(key, nonce, "r", hs.ConsumerOpen("c1", bytes(16), 5, False))
    obj = json.loads(hs.build_text(signed))
    changes: dict[str, Any] = {"kid": "c2", "cid": "11" * 16, "last": 6, "fin": True, "mailbox": True}
    for name, value in changes.items():
        changed = hs.parse_text(json.dumps({**obj, name: value}))
        assert isinstance(changed, hs.ConsumerOpen)
        assert not keyring.admitted(key, nonce, "r", changed), name
