"""The trained judge: classifier for the message, context rule for the conversation around it."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from threading import Lock

import numpy as np

from routing.judge import context, features, words
from routing.judge.base import JudgeInput
from routing.judge.classifier import CLASSES, WEIGHTS, Classifier, Reading
from routing.types import Complexity, Judgement

SOURCE = "classifier"
KEPT_READINGS = 256


class KeptReadings:
    """The last readings, found by a hash of their text; the texts themselves are not kept. Thread safe."""

    def __init__(self, read: Callable[[str], Reading], size: int = KEPT_READINGS) -> None:
        self._read = read
        self._size = size
        self._kept: OrderedDict[bytes, Reading] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def read(self, text: str) -> Reading:
        """Return the reading of `text`."""
        text = features.bounded(text, features.MAX_CHARS)
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        reading = self._read(text)  # outside the lock: another thread's question does not wait for it
        with self._lock:
            self._kept[key] = reading
            while len(self._kept) > self._size:
                self._kept.popitem(last=False)
        return reading


class ClassifierJudge:
    """Judges on the CPU in a few milliseconds; no network. Thread safe."""

    def __init__(self, folder: Path = WEIGHTS) -> None:
        self._folder = folder
        self._classifier = Classifier(folder)
        # A message is an earlier turn of the next one's conversation: each is read once.
        self._readings = KeptReadings(self._classifier.read)

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
        alone = self._readings.read(question.text)
        in_context = bool(context.earlier_questions(question.context) or context.last_answer(question.context))
        probabilities = alone.probabilities
        if in_context:
            thread = self._thread(question, alone)
            values = context.signals(question.text, question.context, thread)
            probabilities = self._rule.probabilities(values)
        shares = {c: float(p) for c, p in zip(CLASSES, probabilities, strict=True)}
        return Judgement(
            complexity=max(CLASSES, key=lambda c: shares[c]),
            probabilities=shares,
            source=SOURCE,
            reason=words.reason(probabilities, alone, in_context=in_context),
            took_ms=(time.perf_counter() - began) * 1000,
        )

    def _thread(self, question: JudgeInput, alone: Reading) -> context.Thread:
        """Return the readings the context rule combines: at most four texts, of which the earlier ones are kept."""
        return context.Thread(
            alone=alone,
            joined=self._classifier.read(context.join(question.text, question.context)),
            before=[self._readings.read(q) for q in context.earlier_questions(question.context)],
            acts=self._rule.acts(question.text, alone),
        )
