"""What a model is sent."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from routing.context import Ask, build_prompt, cost_tokens, prompt_room
from routing.types import Message, Tier
from tests.fakes.engine_parts import model

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3000)
histories = st.lists(st.tuples(texts, texts), max_size=12).map(
    lambda pairs: tuple(m for q, a in pairs for m in (Message("user", q), Message("assistant", a)))
)


@given(question=texts, history=histories, window=st.integers(1024, 16_000))
def test_what_is_sent_keeps_system_and_question_whole_and_the_newest_history_in_pairs(
    question: str, history: tuple[Message, ...], window: int
) -> None:
    spec = model(Tier.LOCAL, window=window)
    prompt = build_prompt(Ask(question, history), spec)
    assert prompt.messages[0].role == "system"
    assert prompt.messages[-1] == Message("user", question)
    kept = prompt.messages[1:-1]
    assert kept == history[len(history) - len(kept) :]
    assert len(kept) % 2 == 0
    assert prompt.dropped == len(history) - len(kept)
    assert prompt.tokens == sum(cost_tokens(m) for m in prompt.messages)
    if kept:
        assert prompt.tokens <= prompt_room(spec)


def test_the_output_is_clamped_to_what_the_window_leaves() -> None:
    spec = model(Tier.LOCAL, window=2048)
    prompt = build_prompt(Ask("word " * 1400), spec)
    assert prompt.tokens + prompt.max_tokens <= spec.window
    assert prompt.max_tokens < spec.max_output


def test_going_on_sends_the_partial_answer_and_asks_not_to_repeat_it() -> None:
    prompt = build_prompt(Ask("Count to ten.", partial="1, 2, 3"), model(Tier.LOCAL))
    assert [m.role for m in prompt.messages] == ["system", "user", "assistant", "user"]
    assert prompt.messages[2].text == "1, 2, 3"
    assert "Do not repeat" in prompt.messages[3].text
