"""The trained judge: classifier for the message, context rule for the conversation around it."""

from __future__ import annotations

import time
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from routing.judge import context, features, words
from routing.judge.base import JudgeInput
from routing.judge.classifier import CLASSES, WEIGHTS, Classifier, Reading
from routing.types import Complexity, Judgement

SOURCE = "classifier"
KEPT_READINGS = 256


class ClassifierJudge:
    """Judges on the CPU in a few milliseconds; no network. Thread safe."""

    def __init__(self, folder: Path = WEIGHTS) -> None:
        self._folder = folder
        self._classifier = Classifier(folder)
        # Earlier turns come back with every message of a conversation; each is read once.
        self._earlier = lru_cache(maxsize=KEPT_READINGS)(self._classifier.read)

    @cached_property
    def _rule(self) -> context.ContextRule:
        with np.load(self._folder / "context.npz", allow_pickle=False) as stored:
            return context.ContextRule(dict(stored))

    def judge(self, question: JudgeInput) -> Judgement:
        """Return how complex `question` is. Never raises for any text."""
        began = time.perf_counter()
        if not question.text.strip():
            even = dict.fromkeys(CLASSES, 1 / len(CLASSES))
            return Judgement(Complexity.LOW, even, "default", "There is no text to judge.")
        alone = self._classifier.read(question.text)
        in_context = bool(context.earlier_questions(question.context) or context.last_answer(question.context))
        probabilities = alone.probabilities
        if in_context:
            values = context.signals(question.text, question.context, self.thread(question, alone))
            probabilities = self._rule.probabilities(values)
        shares = {c: float(p) for c, p in zip(CLASSES, probabilities, strict=True)}
        return Judgement(
            complexity=max(CLASSES, key=lambda c: shares[c]),
            probabilities=shares,
            source=SOURCE,
            reason=words.reason(probabilities, alone, in_context=in_context),
            took_ms=(time.perf_counter() - began) * 1000,
        )

    def thread(self, question: JudgeInput, alone: Reading) -> context.Thread:
        """Return the readings the context rule combines."""
        answer = context.last_answer(question.context)
        return context.Thread(
            alone=alone,
            joined=self._classifier.read(context.join(question.text, question.context)),
            before=[self._read_earlier(q) for q in context.earlier_questions(question.context)],
            answer=self._read_earlier(answer) if answer else None,
        )

    def _read_earlier(self, text: str) -> Reading:
        return self._earlier(features.bounded(text, features.MAX_CHARS))
