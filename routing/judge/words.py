"""One plain sentence on why a question was judged as it was. Pure; says only what was measured."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from routing.judge import features
from routing.judge.classifier import Reading

_LEAD = (
    "Reads like a question for one fact or a short calculation",
    "Reads like a standard procedure or a few concepts together",
    "Reads like a question whose path must be worked out first",
)
_SHORT = ("a single fact", "a standard procedure", "an open-ended path")
CLOSE_CALL = 0.5
TELLING = 0.15

# What the feature says when it is above the average text, and when it is below; "" where that says nothing to people.
_PHRASES: dict[str, tuple[str, str]] = {
    "log_chars": ("its length", "how short it is"),
    "log_words": ("its number of words", "how few words it has"),
    "words_per_sentence": ("its long sentences", "its short sentences"),
    "long_words": ("its many long words", "its plain short words"),
    "numbers": ("the numbers in it", "the absence of numbers"),
    "digits": ("the figures in it", ""),
    "acronyms": ("its abbreviations", ""),
    "mark_mathematics": ("the mathematical notation", ""),
    "mark_code": ("the code in it", ""),
    "mark_commas": ("its listing of several parts", "its having a single part"),
    "says_why": ("that it asks for a reason", ""),
    "says_how_to": ("that it asks how something is done", ""),
    "says_how_many": ("that it asks for a quantity", ""),
    "says_yes_no": ("that it opens as a yes-or-no question", ""),
    "says_who_when_where": ("that it asks for a person, place or time", ""),
    "says_if": ("the conditions it sets", ""),
    "says_prove": ("that it asks for a proof or derivation", ""),
    "says_compute": ("that it asks to work something out", ""),
    "says_explain": ("that it asks for an explanation or comparison", ""),
    "says_name": ("that it asks for a name", ""),
    "says_definition": ("that it asks for a definition, unit or symbol", ""),
    "says_design": ("that it asks for a design or plan", ""),
    "says_judge": ("that it asks for a judgement", ""),
    "says_cause": ("that it is about causes", ""),
    "says_failure": ("that something goes wrong in it", ""),
    "says_contrast": ("the contrast it draws", ""),
    "says_possible": ("that it asks what is possible", ""),
    "says_every": ("that it speaks of all cases", ""),
    "says_between": ("that it relates several things", ""),
    "says_evidence": ("that it speaks of evidence or theory", ""),
    "says_open": ("that it speaks of limits or open points", ""),
    "says_steps": ("that it speaks of a method or example", ""),
}


def reason(probabilities: NDArray[np.float32], reading: Reading, *, in_context: bool) -> str:
    """Return the sentence. Only features of `reading` that moved the score towards the class are named."""
    order = np.argsort(-probabilities)
    best, second = int(order[0]), int(order[1])
    where = "With the conversation before it: " if in_context else ""
    close = f"A close call between {_SHORT[best]} and {_SHORT[second]}"
    lead = close if probabilities[best] < CLOSE_CALL else _LEAD[best]
    if where:
        lead = where + lead[0].lower() + lead[1:]
    # In a conversation the combination decides, so naming features of the message alone would mislead.
    told = [] if in_context else telling(reading, best)
    because = f"; among what was measured, {' and '.join(told)} told most" if told else ""
    return f"{lead} ({probabilities[best]:.0%} sure{because})."


def telling(reading: Reading, best: int) -> list[str]:
    """Return at most two phrases for the features that moved the score most towards class `best`."""
    found: list[str] = []
    pull = reading.pull
    for at in np.argsort(-pull[:, best]):
        if pull[at, best] < TELLING or len(found) == 2:
            break
        above, below = _PHRASES.get(features.NAMES[at], ("", ""))
        phrase = above if reading.standing[at] > 0 else below
        if phrase:
            found.append(phrase)
    return found
