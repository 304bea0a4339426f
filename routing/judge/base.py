"""What a judge is: one method that turns a question into a `Judgement`. Pure, CPU only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from routing.types import Judgement, Message


@dataclass(frozen=True)
class JudgeInput:
    """The last user turn, and the turns before it, oldest first."""

    text: str
    context: Sequence[Message] = ()


class Judge(Protocol):
    def judge(self, question: JudgeInput) -> Judgement: ...
