"""What the socket accepts."""

from __future__ import annotations

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat import protocol
from stream_site.errors import InputError

anything = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=5),
    max_leaves=12,
)
TYPES = ["ping", "watch", "turn.start", "turn.stop", "turn.again", "turn.continue", "ack"]
FIELDS = ["id", "turn", "conversation", "text", "tier", "model", "turns", "after", "seq", "at"]


@given(st.sampled_from(TYPES) | st.text(), st.dictionaries(st.sampled_from(FIELDS), anything | st.uuids().map(str)))
def test_any_message_is_understood_or_refused_in_words(kind: str, fields: dict[str, object]) -> None:
    try:
        protocol.parse(json.dumps({"t": kind} | fields))
    except InputError as error:
        assert error.happened.endswith(".")


@given(st.text())
def test_any_text_is_understood_or_refused_in_words(raw: str) -> None:
    try:
        protocol.parse(raw)
    except InputError as error:
        assert error.happened.endswith(".")


def test_a_deeply_nested_message_is_refused() -> None:
    with pytest.raises(InputError):
        protocol.parse("[" * 100_000)


@pytest.mark.parametrize(
    ("text", "word"), [("", "empty"), (" \n", "empty"), ("a\0b", "Character 2"), ("x\ud800", "U\\+D800")]
)
def test_a_question_that_cannot_be_stored_is_named(text: str, word: str) -> None:
    with pytest.raises(InputError, match=word):
        protocol.question_text(text)


def test_a_question_over_the_limit_keeps_the_text_and_names_both_numbers() -> None:
    with pytest.raises(InputError, match="200,001 characters; at most 200,000") as caught:
        protocol.question_text("x" * 200_001)
    assert caught.value.kept == "Your text stays in the box."


def test_a_start_is_read_whole() -> None:
    fields = {"id": str(uuid.uuid4()), "conversation": str(uuid.uuid4()), "text": " q\n", "tier": "local", "model": "m"}
    message = protocol.parse(json.dumps({"t": "turn.start", "campus_only": True} | fields))
    assert isinstance(message, protocol.TurnStart)
    assert (message.text, message.tier, message.model, message.campus_only) == (" q\n", "local", "m", True)
    assert str(message.id) == fields["id"]


def test_the_table_names_every_message_and_every_event() -> None:
    table = protocol.__doc__ or ""
    for name in TYPES:
        assert f"| `{name}`" in table
