"""What a model is sent: a system text, as many earlier messages as fit, and the question. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing.tokens import estimate_tokens
from routing.types import Message, ModelSpec

SYSTEM_TEXT = (
    "You are the assistant of a university research group. Answer the question directly and correctly. "
    "Use Markdown; write formulas in LaTeX between dollar signs. Say so when you are not sure."
)
CONTINUE_TEXT = (
    "Your answer above was cut off. Go on exactly where it stopped. "
    "Do not repeat any of it and do not comment on the cut."
)
PER_MESSAGE_TOKENS = 6  # role markers of the chat template
LEAST_OUTPUT_TOKENS = 64


@dataclass(frozen=True)
class Ask:
    """What there is to send. `partial` is the beginning of an answer to go on from."""

    question: str
    history: tuple[Message, ...] = ()
    partial: str = ""


@dataclass(frozen=True)
class Prompt:
    """Messages that fit a model. `tokens` is an estimate of them, `max_tokens` what is left for the answer."""

    messages: tuple[Message, ...]
    tokens: int
    max_tokens: int
    dropped: int


def cost_tokens(message: Message) -> int:
    return estimate_tokens(message.text) + PER_MESSAGE_TOKENS


def tail_of(ask: Ask) -> tuple[Message, ...]:
    """Return the messages that must be sent whole."""
    question = Message("user", ask.question)
    if not ask.partial:
        return (question,)
    return (question, Message("assistant", ask.partial), Message("user", CONTINUE_TEXT))


def fixed_tokens(ask: Ask) -> int:
    """Return the tokens of what cannot be left out: system text and question."""
    return cost_tokens(Message("system", SYSTEM_TEXT)) + sum(cost_tokens(m) for m in tail_of(ask))


def prompt_room(model: ModelSpec) -> int:
    """Return the most prompt tokens of `model` when it writes an answer of full length."""
    room = model.window - model.max_output
    return min(room, model.prompt_limit) if model.prompt_limit else room


def whole_tokens(ask: Ask) -> int:
    """Return the tokens of everything, history included."""
    return fixed_tokens(ask) + sum(cost_tokens(m) for m in ask.history)


def question_fits(ask: Ask, model: ModelSpec) -> bool:
    """Whether the question itself can be sent: a shorter answer is accepted, a cut question is not."""
    return fixed_tokens(ask) + LEAST_OUTPUT_TOKENS <= model.window


def build_prompt(ask: Ask, model: ModelSpec) -> Prompt:
    """Return what to send to `model`: the newest messages that fit, whole, in order; the system text always first.

    Earlier messages are left out in pairs, question with answer, oldest first.
    """
    fixed = fixed_tokens(ask)
    room = prompt_room(model) - fixed
    kept: list[Message] = []
    used = 0
    for pair in reversed(pairs(ask.history)):
        cost = sum(cost_tokens(m) for m in pair)
        if used + cost > room:
            break
        used += cost
        kept[:0] = pair
    messages = (Message("system", SYSTEM_TEXT), *kept, *tail_of(ask))
    tokens = fixed + used
    return Prompt(
        messages=messages,
        tokens=tokens,
        max_tokens=max(LEAST_OUTPUT_TOKENS, min(model.max_output, model.window - tokens)),
        dropped=len(ask.history) - len(kept),
    )


def pairs(history: Sequence[Message]) -> list[tuple[Message, ...]]:
    """Split `history` before each user message."""
    groups: list[list[Message]] = []
    for message in history:
        if message.role == "user" or not groups:
            groups.append([])
        groups[-1].append(message)
    return [tuple(group) for group in groups]
