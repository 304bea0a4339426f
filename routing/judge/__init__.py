"""The judge: how much reasoning a question needs. The public door is `default_judge()`.

Importing this package is cheap: numpy, the runtime and the weights are loaded by the first `default_judge().judge`.
"""

from __future__ import annotations

import os
from functools import lru_cache

from routing.judge.base import Judge, JudgeInput

# Read by numpy when it is first imported, which is later. One question is a few thousand multiplications: a second
# thread would wait for a core longer than it could save.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__all__ = ["Judge", "JudgeInput", "default_judge"]


@lru_cache(maxsize=1)
def default_judge() -> Judge:
    """Return the one judge of this process."""
    from routing.judge.judge import ClassifierJudge

    return ClassifierJudge()
