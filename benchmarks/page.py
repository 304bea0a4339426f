"""Open a conversation of 400 messages beside 300 others: time to the first text, in Chromium and at the server.

Starts its own site. Needs Chromium.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from benchmarks.common import parser, report
from tests.chromium import MISSING, find_chromium
from tests.site import Site, running_site

SEED = """
import uuid
from django.utils import timezone
from accounts.models import User
from chat.models import Conversation, Turn
alice = User.objects.get(username="alice")
now = timezone.now()
talks = Conversation.objects.bulk_create(
    Conversation(owner=alice, title=f"Conversation number {n}", created_at=now, updated_at=now) for n in range(301))
answer = ("Use **peaks over threshold**; see the table.\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |\\n\\n"
          "```python\\nprint('x')\\n```\\n\\nThe level is $x_N = u + \\\\sigma$.\\n\\n") + "Some more words. " * 40
Turn.objects.bulk_create(
    Turn(conversation=talks[0], owner=alice, client_id=uuid.uuid4(), position=n + 1, question=f"Question {n}?",
         state="ended", outcome="complete", answer=answer, tier="local", model="m", model_label="M", created_at=now,
         started_at=now, ended_at=now) for n in range(200))
print(talks[0].id)
"""
FIRST_TEXT = """() => new Promise((done) => {
  const look = () => {
    const said = document.querySelector('article.answer .prose');
    if (said && said.textContent.trim()) done(performance.now()); else requestAnimationFrame(look);
  };
  look();
})"""


def opened(page: Page, url: str) -> float:
    """Return the milliseconds from navigation to the first text of an answer, the browser at rest before."""
    page.wait_for_timeout(500)
    page.goto(url, wait_until="commit")
    return float(page.evaluate(FIRST_TEXT))


def measure(site: Site, chromium: str, rounds: int) -> dict[str, float]:
    """Return milliseconds: medians over `rounds` openings after two that warm up."""
    talk = site.manage("shell", "--no-imports", "-c", SEED).strip()
    server, shown, in_new_tab = [], [], []
    with contextlib.closing(site.sign_in("alice")) as http, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        context.add_cookies([{"name": name, "value": value, "url": site.url} for name, value in http.cookies.items()])
        for number in range(rounds + 2):
            began = time.perf_counter()
            size = len(http.get(f"/c/{talk}").content)
            answered = (time.perf_counter() - began) * 1000
            page = context.new_page()
            cold = opened(page, f"{site.url}/c/{talk}")
            page.goto(f"{site.url}/")
            warm = opened(page, f"{site.url}/c/{talk}")
            page.close()
            if number >= 2:
                server.append(answered)
                shown.append(warm)
                in_new_tab.append(cold)
        browser.close()
    return {
        "first_text_ms_p50": statistics.median(shown),
        "first_text_new_tab_ms_p50": statistics.median(in_new_tab),
        "server_ms_p50": statistics.median(server),
        "page_kib": size / 1024,
    }


NOTES = {
    "first_text_ms_p50": "from navigation to an answer's text, in Chromium, coming from another page of the site",
    "first_text_new_tab_ms_p50": "the same in a new tab, whose process has just started",
    "server_ms_p50": "the whole page from the server",
}


def main() -> int:
    given = parser(__doc__).parse_args()
    chromium = find_chromium()
    if chromium is None:
        print(MISSING, file=sys.stderr)
        return 1
    with (
        tempfile.TemporaryDirectory(prefix="page-") as folder,
        running_site(Path(folder), STREAM_SERVE_STATIC="1") as site,
    ):
        site.start_web()
        figures = measure(site, chromium, 6 if given.quick else 20)
    report("opening a conversation of 400 messages beside 300 others", figures, NOTES, given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
