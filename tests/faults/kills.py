"""Questions to the campus while relay, runners and workers are killed by their process ids at random moments.

    python -m tests.faults.kills [--streams 100] [--seed 1]

Everything is the real thing in a process of its own, but for the model server, which writes "0 1 2 ...". Checked:

* every turn ends; its stored answer is exactly what the model wrote so far; it is called complete only if it is whole
* the page was shown exactly what is stored; it looks for gaps and repetitions in the numbers of what it is sent
* the model was called at most once for each (channel, attempt)
* afterwards no process is left and nothing listens

Ends with 1 when anything of this does not hold.
"""

from __future__ import annotations

import argparse
import queue
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import httpx
from websockets.exceptions import WebSocketException

from tests.fakes import scripts
from tests.faults.stage import Killer, MortalSite, stage, upstream
from tests.fixtures_upstream import UpstreamControl
from tests.integration.hpc.rig import MODEL, CampusRig
from tests.site import Page, Site

TOKENS, RATE = 60, 30.0
WHOLE = "".join(f"{n} " for n in range(TOKENS))
PAGES = 10
TURN_S = 90.0
EVERY_S = (1.0, 4.0)  # between two kills; an answer takes about 2 s
MARKED = ("interrupted", "failed")


@dataclass
class Result:
    """`broken`: every promise that was not kept, in words."""

    outcomes: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    calls: int = 0
    seconds: float = 0.0
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        parts = [
            f"{self.outcomes.total()} streams in {self.seconds:.0f} s, {self.calls} calls of the model",
            "killed: " + ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items())),
            "ended: " + ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items())),
            f"broken promises: {len(self.broken)}",
        ]
        return "\n".join(parts + self.broken[:20])


class Asker(threading.Thread):
    """One open page that asks until no question is left; `shown` is what it showed of each turn."""

    def __init__(self, site: Site, http: httpx.Client, questions: queue.SimpleQueue[str]) -> None:
        super().__init__(name="page")
        self._site, self._http, self._questions = site, http, questions
        self.shown: dict[str, str] = {}
        self.errors: list[str] = []

    def run(self) -> None:
        while not self._questions.empty():
            try:
                with Page(self._site, self._http) as page:
                    self._ask(page)
            except (AssertionError, OSError, TimeoutError, WebSocketException) as error:
                self.errors.append(f"a page failed: {type(error).__name__}: {error}")
                return

    def ask_one(self) -> None:
        with Page(self._site, self._http) as page:
            self._turn(page)

    def _ask(self, page: Page) -> None:
        while not self._questions.empty():
            self._turn(page)

    def _turn(self, page: Page) -> None:
        turn = page.ask(self._questions.get(), tier="hpc", campus_only=True)
        page.until_done(turn, TURN_S)
        self.shown[turn] = page.text(turn)


def ask_under_fire(rig: CampusRig, streams: int, killer: Killer) -> list[Asker]:
    """Ask `streams` questions on several pages while `killer` is at work."""
    questions: queue.SimpleQueue[str] = queue.SimpleQueue()
    for number in range(streams):
        questions.put(f"Count, for the time number {number}.")
    with closing(rig.site.sign_in("alice")) as http:
        pages = [Asker(rig.site, http, questions) for _ in range(PAGES)]
        pages[0].ask_one()  # until a worker has answered, there is little to kill
        killer.start()
        try:
            for page in pages:
                page.start()
            for page in pages:
                page.join(600)
        finally:
            killer.end()
    return pages


def check_turn(row: dict[str, Any], shown: str) -> list[str]:
    """Return what does not hold of one turn."""
    answer, outcome = row["answer"], row["outcome"]
    broken = []
    if row["state"] != "ended":
        broken.append(f"it is still {row['state']}")
    if not WHOLE.startswith(answer):
        broken.append(f"its answer was never written: {answer[-60:]!r}")
    if (outcome == "complete") != (answer == WHOLE) and outcome not in MARKED:
        broken.append(f"it is called {outcome} with {len(answer)} of {len(WHOLE)} characters")
    if outcome not in ("complete", *MARKED):
        broken.append(f"it is called {outcome}")
    if shown != answer:
        broken.append(f"the page showed {len(shown)} characters, stored are {len(answer)}")
    return broken


def check(rig: CampusRig, pages: Sequence[Asker], streams: int, result: Result) -> None:
    """Compare database, pages and the model's log."""
    shown = {turn: text for page in pages for turn, text in page.shown.items()}
    result.broken += [error for page in pages for error in page.errors]
    turns = rig.site.rows("SELECT * FROM chat_turn")
    if len(turns) != streams or len(shown) != streams:
        result.broken.append(f"{streams} were asked, {len(turns)} are stored, {len(shown)} were shown to their end")
    by_hex = {turn.replace("-", ""): text for turn, text in shown.items()}
    for row in turns:
        result.outcomes[row["outcome"]] += 1
        found = check_turn(row, by_hex.get(row["id"], ""))
        result.broken += [f"turn {row['id']}: {words}" for words in found]
    asked = Counter(request["headers"].get("x-request-id", "") for request in rig.upstream.log())
    result.calls = asked.total()
    result.broken += [f"the model was called {n} times for job {name!r}" for name, n in asked.items() if n > 1]


def check_nothing_left(site: MortalSite, ports: Sequence[int], result: Result) -> None:
    """Wait a little for every process to end."""
    end = time.monotonic() + 12
    while (left := site.alive()) and time.monotonic() < end:
        time.sleep(0.1)
    if left:
        result.broken.append(f"processes are left: {left}")
    for port in ports:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                result.broken.append(f"something still listens on {port}")


def run(folder: Path, model: UpstreamControl, *, streams: int, seed: int, every_s: tuple[float, float]) -> Result:
    """Ask `streams` questions, killing something every `every_s` seconds; return what came of it."""
    result = Result()
    began = time.monotonic()
    with stage(folder, model) as rig:
        model.reset()
        model.script(scripts.numbered(TOKENS, RATE), model=MODEL)
        killer = Killer(rig, Random(seed), every_s)
        pages = ask_under_fire(rig, streams, killer)
        result.kills = killer.kills
        result.broken += killer.errors
        check(rig, pages, streams, result)
    assert isinstance(rig.site, MortalSite)
    check_nothing_left(rig.site, (rig.relay_port, rig.site.port), result)
    result.seconds = time.monotonic() - began
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder for database and logs, to look at afterwards")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="stream-kills-") as made, upstream() as model:
        folder = options.keep or Path(made)
        result = run(folder, model, streams=options.streams, seed=options.seed, every_s=EVERY_S)
    print(result)
    return 1 if result.broken else 0


if __name__ == "__main__":
    sys.exit(main())
