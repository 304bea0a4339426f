"""A conversation with everything an answer can hold, for screens and layout checks."""

from __future__ import annotations

from typing import Any

from tests.fakes.chat_site import make_turn

WAVES = r"""Use **peaks over threshold**. Twelve annual maxima are too few for a GEV; a threshold keeps every storm.

| | Block maxima (GEV) | Peaks over threshold (GPD) |
|---|---|---|
| Data used | 12 values | about 90 to 150 storms |
| Parameters | location, scale, shape | scale, shape, storm rate |
| You must choose | block length | threshold, declustering gap |

The $N$-year return level is

$$x_N = u + \frac{\sigma}{\xi}\left[(\lambda N)^{\xi} - 1\right]$$

with threshold *u*, scale $\sigma$, shape $\xi$, and $\lambda$ the mean number of storms per year.

```r
library(extRemes)

hs   <- read.csv("buoy.csv")$hs            # hourly, metres
u    <- quantile(hs, 0.98, na.rm = TRUE)
fit  <- fevd(peak, threshold = u, type = "GP")
```

1. Take the profile-likelihood interval.
2. Check the threshold with `threshrange.plot()`:
   - keep the lowest *u* above which the shape stays level,
   - see [the manual](https://example.org/evd) and ![a plot](https://example.org/p.png).

> Costs stay between $5 and $10 a month.
"""
ROUTE: dict[str, Any] = {
    "tier": "local",
    "model": "small",
    "model_label": "Small 3B",
    "reason": "Local is the cheapest tier that can answer it.",
    "pinned": False,
    "judgement": {
        "complexity": "MEDIUM",
        "probabilities": {"LOW": 0.07, "MEDIUM": 0.81, "HIGH": 0.12},
        "source": "classifier",
        "reason": "The question asks for a method choice and code in several steps.",
        "took_ms": 1.2,
    },
    "candidates": [
        {"tier": "local", "model": "small", "allowed": True, "why_not": "", "cost_micro": 0, "wait_s": 1.0},
        {"tier": "hpc", "model": "", "allowed": False, "why_not": "Not set up here.", "cost_micro": 0, "wait_s": 0.0},
        {"tier": "cloud", "model": "lab/large", "allowed": True, "why_not": "", "cost_micro": 4100, "wait_s": 2.0},
    ],
    "fallbacks": ["cloud"],
}
BROKEN: dict[str, Any] = {
    "code": "upstream_busy",
    "title": "The model server is busy",
    "happened": "Local answered with status 503 three times in a row.",
    "kept": "Your question is saved and nothing was charged.",
    "todo": "Wait a little and try again, or pick another tier.",
    "retryable": True,
    "ref": "7f3a2c1b",
    "field": "",
    "retry_after_s": None,
}


def sample_turns() -> list[dict[str, Any]]:
    """Return a rich answer, two versions of a short one, a partial one and a failed one."""
    question = "Hourly significant wave height from one buoy, 12 years, about 4 % gaps. I need the 100-year return level, in R."
    return [
        make_turn(1, question, WAVES, route=ROUTE, reasoning="They have twelve years.\nThat is few."),
        make_turn(2, "One sentence for the methods section, past tense.", "We estimated it.", route=ROUTE),
        make_turn(
            2,
            "One sentence for the methods section, past tense.",
            "We fitted it.",
            route=ROUTE,
            version=2,
            tier="cloud",
        )
        | {"model_label": "Large", "cost_micro": 3400},
        make_turn(
            3, "Derive the smoother.", "Start from the joint density, which is", route=ROUTE, outcome="interrupted"
        )
        | {"error": BROKEN | {"happened": "The connection to the model closed."}},
        make_turn(4, "```\nunbalanced\n```\n`` ` ~~x~~ <b>bold</b>", "", route=ROUTE, outcome="failed", error=BROKEN)
        | {"tokens_in": 0, "tokens_out": 0},
    ]
