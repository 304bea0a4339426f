"""What the platform makes of a worker that holds the keys and says anything: events it can store, or one kind of error."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from hpc_worker import crypto, wire
from hpc_worker.bodies import Fin
from hpc_worker.keyring import Keyring
from hpc_worker.wire import Direction, FrameType, Kind
from relay.subscription import Timers
from routing.backends.hpc.channel import JobChannel, make_offer
from routing.backends.hpc.directory import Campus
from routing.backends.hpc.unseal import Unsealer
from routing.types import ReasoningDelta, StateNote, TextDelta, ToolDelta
from tests.calm import CALM

KEY = bytes(range(60, 92))
URL = "ws://relay.test/v1"
CAMPUS = Campus(
    id=1,
    name="lab",
    label="Lab",
    control="process",
    model="small",
    relays={URL: "relay.test"},
    content=Keyring("k1", {"k1": KEY}),
    producers=Keyring("p1", {"p1": bytes(range(1, 33))}),
    consumer=("c1", bytes(range(32))),
)
SALT_C, SALT_P = bytes(32), bytes(range(32))
SCOPE = crypto.Scope("k1", bytes(16), 1)
KEYS = crypto.derive_stream(KEY, SCOPE, SALT_C, SALT_P)
HEAD = wire.build_head(wire.Head("k1", 1, SALT_P, KEYS.commit))
TYPES = [(t, k) for t, kinds in wire.KINDS_OF.items() if t is not FrameType.CTRL for k in sorted(kinds)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.just("\ud800") | st.just("\0"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
TOOLS = st.builds(
    lambda index, rest: json.dumps({"index": index, **rest}).encode(),
    st.integers() | JSON,
    st.dictionaries(st.sampled_from(["id", "name", "arguments", "x"]), JSON, max_size=3),
)
BODIES = st.binary(max_size=60) | TOOLS | st.just(b"[" * 8000) | st.just(b"\xed\xa0\x80") | st.just(b"a\0b")


def strings_of(value: Any) -> list[str]:
    return [text for text in vars(value).values() if isinstance(text, str)]


@CALM
@given(st.sampled_from(TYPES), BODIES)
async def test_an_authentic_frame_with_any_body_is_an_event_that_can_be_stored_or_refused(
    what: tuple[FrameType, Kind], body: bytes
) -> None:
    offer = make_offer(CAMPUS, b"{}", 60)
    channel = JobChannel(CAMPUS, offer, Timers())
    keys = crypto.derive_stream(KEY, crypto.Scope("k1", offer.cid, 1), offer.salt_c, SALT_P)
    assert channel._open(wire.build_head(wire.Head("k1", 1, SALT_P, keys.commit))) is None
    try:
        channel._open(crypto.Sealer(keys, Direction.P2C).seal(*what, body))
    except ValueError:
        assert await channel.next(0) is None
        return
    item = await channel.next(1)
    assert isinstance(item, (TextDelta, ReasoningDelta, ToolDelta, StateNote, Fin))
    if not isinstance(item, Fin):  # its words are cleaned where they are shown
        for text in strings_of(item):
            assert text.encode().decode() == text
            assert "\0" not in text


@CALM
@given(st.lists(st.binary(max_size=120) | st.just(HEAD)), st.data())
def test_the_unsealer_refuses_whatever_was_not_sealed_for_it(frames: list[bytes], data: st.DataObject) -> None:
    unsealer = Unsealer(CAMPUS.content, SCOPE, SALT_C)
    for frame in frames:
        try:
            assert unsealer.open(frame) is None, "nothing but HEAD is genuine here"
        except ValueError:
            continue
    unsealer.open(HEAD)
    frame = bytearray(crypto.Sealer(KEYS, Direction.P2C).seal(FrameType.DATA, Kind.TEXT, b"text"))
    opened = unsealer.open(bytes(frame))
    assert opened is not None
    assert opened.body == b"text"
    frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        assert unsealer.open(bytes(frame)) is None
    except ValueError as error:
        assert isinstance(error, (crypto.CryptoError, wire.WireError))
