"""What a judge is: one method from a question to a `Judgement`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from routing.types import Judgement, Message


@dataclass(frozen=True)
class JudgeInput:
    """A question: the last user turn and the turns before it, oldest first."""

    text: str
    context: Sequence[Message] = ()


class Judge(Protocol):
    def judge(self, question: JudgeInput) -> Judgement:
        """Return how complex `question` is. Never raises for any text."""
        ...
