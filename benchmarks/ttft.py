"""Time to first text through the whole site against the same request sent straight to the model server.

Both are measured in turn, warm, with short prompts, on one machine: `added_ms` is what socket, database, judge, runner
and key-value server add. Starts its own site and its own embedded model.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from benchmarks.common import parser, report
from routing.context import SYSTEM_TEXT
from stream_site.devstack.local_model import EMBEDDED_MODEL
from tests.site import Page, Site, free_port, running_site, wait_until

WARM_UP = 6
QUESTIONS = (
    "What is the capital of France?",
    "How many metres are in a mile?",
    "Name a noble gas.",
    "What does DNA stand for?",
    "Who wrote Hamlet?",
    "What is the boiling point of water?",
)


def direct_s(http: httpx.Client, question: str) -> float:
    """Return seconds until the model server's own first text."""
    body = {
        "model": EMBEDDED_MODEL,
        "messages": [{"role": "system", "content": SYSTEM_TEXT}, {"role": "user", "content": question}],
        "stream": True,
        "max_tokens": 8,
    }
    began, taken = time.perf_counter(), 0.0
    with http.stream("POST", "/v1/chat/completions", json=body) as answer:
        for line in answer.iter_lines():  # to the end: the next request must find the server free
            if not taken and line.startswith("data: {") and json.loads(line[6:])["choices"][0]["delta"].get("content"):
                taken = time.perf_counter() - began
    if not taken:
        raise RuntimeError("the model server said nothing")
    return taken


def through_site_s(page: Page, question: str) -> float:
    """Return seconds until a page shows the first text of a new conversation; end the answer."""
    began = time.perf_counter()
    turn_id = page.ask(question, tier="auto")
    page.until_text(turn_id, 1)
    taken = time.perf_counter() - began
    page.send(t="turn.stop", turn=turn_id)
    page.until_done(turn_id)
    return taken


def start_model(site: Site, port: int, key: str) -> None:
    site.spawn(
        "model", sys.executable, "-m", "routing.embedded.model_server", "--port", str(port), MODEL_SERVER_API_KEY=key
    )

    def healthy() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}/health", timeout=1, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    wait_until(healthy, "the model server's start", 60)


def measure(rounds: int, folder: Path) -> dict[str, float]:
    port, key = free_port(), secrets.token_hex(16)
    env = {"LOCAL_BASE_URL": f"http://127.0.0.1:{port}/v1", "LOCAL_MODEL": EMBEDDED_MODEL, "LOCAL_API_KEY": key}
    direct, through = [], []
    with contextlib.ExitStack() as stack:
        site = stack.enter_context(running_site(folder, **env))
        start_model(site, port, key)
        site.start_web()
        web = stack.enter_context(contextlib.closing(site.sign_in("alice")))
        headers = {"Authorization": f"Bearer {key}"}
        limits = httpx.Limits(max_keepalive_connections=0)  # a connection each: no meeting with one that just closed
        opened = httpx.Client(
            limits=limits, base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60, trust_env=False
        )
        http = stack.enter_context(opened)
        for number in range(rounds + WARM_UP):
            question = QUESTIONS[number % len(QUESTIONS)]
            with Page(site, web) as page:
                page.watch()  # as a browser does when it has loaded
                direct_s(http, question)  # the prompt is in the model server's cache now, for both
                if number % 2:
                    alone, shown = direct_s(http, question), through_site_s(page, question)
                else:
                    shown, alone = through_site_s(page, question), direct_s(http, question)
            if number >= WARM_UP:
                direct.append(alone * 1000)
                through.append(shown * 1000)
    added = [t - d for d, t in zip(direct, through, strict=True)]
    return {
        "direct_ms_p50": statistics.median(direct),
        "through_ms_p50": statistics.median(through),
        "added_ms_p50": statistics.median(added),
        "added_ms_p90": statistics.quantiles(added, n=10)[-1],
    }


NOTES = {
    "direct_ms_p50": "the model server alone",
    "through_ms_p50": "page, socket, database, judge, runner, model server",
    "added_ms_p50": "median of the differences, pair by pair",
}


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--tier", choices=["local"], default="local")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="ttft-") as folder:
        figures = measure(18 if given.quick else 60, Path(folder))
    report("time to first text, tier local", figures, NOTES, given.json)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.SubprocessError as error:
        sys.exit(str(error))
