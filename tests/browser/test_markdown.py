"""An answer's Markdown in Chromium, under the page's own policy: what it shows, and what it never does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.browser.conftest import Watched, chat_page, until
from tests.fakes.chat_samples import WAVES
from tests.fakes.chat_site import ChatSite, make_turn

pytestmark = pytest.mark.browser

BARE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Markdown</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="/static/chat/icon.svg"><link rel="stylesheet" href="/static/chat/stream.css"></head>
<body><main class="log"><div class="prose" id="out" dir="auto"></div>
<p id="say"></p></main></body></html>"""
RENDER = """async (text) => {
  const { renderWhole } = await import('/static/chat/js/answer.js');
  const { finishLook } = await import('/static/chat/js/enhance.js');
  renderWhole(out, text); finishLook(out);
}"""
STREAM = """async ([text, step]) => {
  const { AnswerRenderer } = await import('/static/chat/js/answer.js');
  const live = new AnswerRenderer(out), bad = [];
  const isActive = (e) => /^(IMG|SCRIPT|IFRAME|OBJECT|STYLE|FORM|INPUT|VIDEO)$/i.test(e.tagName)
    || (e.namespaceURI.endsWith('svg') && !e.closest('.btn'));
  const isBad = (a) => /^on|^style$|^src$/i.test(a.name) || (a.name === 'href' && !/^(https?:|mailto:|#i-)/.test(a.value));
  const check = () => {
    for (const e of out.querySelectorAll('*')) {
      if (isActive(e)) bad.push(e.tagName);
      for (const a of e.attributes) if (isBad(a)) bad.push(`${e.tagName} ${a.name}=${a.value}`);
    }
  };
  for (let n = step; n < text.length + step; n += step) { live.update(text.slice(0, n)); check(); }
  live.finish(text); check();
  return bad;
}"""
SETTLED = """!document.querySelector('code.math')
  && [...document.querySelectorAll('[data-lang=r] code')].every((c) => c.dataset.lit)"""
PRICES = [
    "It costs $5 to $10, or R$ 12,29/metro and R$ 15,83",
    "It costs $5-$10 and then $20-$30.",
    "Between US$5 and US$7; A$3 (or NZ$4) per plot.",
    "Set $HOME/bin:$PATH before $HOME.",
    "~$0.79/m3 and ~$300/t",
    "I paid $1,000 in May, and $2,000 in June.",
    "Only $ 5 $ here, and a lone $$ too.",
]
FORMULAS = [
    ("The $N$-year level $x_N$.", 2),
    (r"A price of \$5 and $x$.", 1),
    (r"Inline \(a+b\) and display \[a^2\]", 2),
    ("$$\nE = mc^2\n$$", 1),
    ("Text before\n\\[\nE = mc^2\n\\]\ntext after", 1),
    ("- item\n\n  $$a$$\n- $b_1$, $2 \\times 3$", 3),
    ("`$x$` is code", 0),
]
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<img src='' onerror=alert(1)\n/>",
    "<svg/onload=alert(1)>",
    "<script>alert(1)</script>",
    "[x](javascript:alert(1)) [y](JaVaScRiPt:alert(1)) [z](data:text/html,<script>alert(1)</script>) [v](vbscript:x)",
    "<a href='javascript:alert(1)'>x</a>",
    "```<img src=x onerror=alert(1)>\n</code></pre><img src=x onerror=alert(1)>\n```",
    '```html" onmouseover="alert(1)\nx\n```',
    r"$$\href{javascript:alert(1)}{x}$$ and $\htmlStyle{color:red}{x}$ $\includegraphics{https://evil.test/x}$",
    "![x](javascript:alert(1)) ![x](data:image/svg+xml,<svg/onload=alert(1)>)",
    "|<img src=x onerror=alert(1)>|b|\n|-|-|\n|<svg/onload=alert(1)>|2|",
    "[a]: javascript:alert(1)\n\n[a] and ![a] <math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>",
]


@pytest.fixture
def bare(chat_site: ChatSite, context: BrowserContext) -> Iterator[Watched]:
    chat_site.pages["/"] = BARE
    page = context.new_page()
    watched = Watched(page, chat_site.url)
    page.goto(chat_site.url)
    yield watched
    assert watched.strays == []
    assert watched.errors == []


def shown(page: Page) -> str:
    return page.locator("#out").inner_text()


@pytest.mark.parametrize("text", PRICES)
def test_prices_and_variables_stay_text(bare: Watched, text: str) -> None:
    bare.page.evaluate(RENDER, text)
    assert shown(bare.page) == text
    assert bare.page.locator("#out math, #out code, #out em, #out s").count() == 0


@pytest.mark.parametrize(("text", "count"), FORMULAS)
def test_formulas_are_typeset(bare: Watched, text: str, count: int) -> None:
    bare.page.evaluate(RENDER, text)
    until(bare.page, "!document.querySelector('code.math')")
    assert bare.page.locator("#out math").count() == count


def test_katex_is_loaded_only_for_formulas(bare: Watched, chat_site: ChatSite) -> None:
    bare.page.evaluate(RENDER, "No formula, `code` and $5.")
    assert not any("katex" in path for path in chat_site.requests)
    bare.page.evaluate(RENDER, "Now $x$.")
    bare.page.wait_for_selector("#out math")
    assert any("katex" in path for path in chat_site.requests)


def test_a_formula_that_cannot_be_read_keeps_its_source(bare: Watched) -> None:
    bare.page.evaluate(RENDER, r"Broken: $\frac{1$ and whole: $y$")
    bare.page.wait_for_selector("#out math")
    assert bare.page.locator("#out .math-bad").inner_text() == r"\frac{1"


def test_single_tildes_stay_and_double_ones_strike(bare: Watched) -> None:
    bare.page.evaluate(RENDER, "about ~5 and ~6, but ~~not~~ this")
    assert shown(bare.page) == "about ~5 and ~6, but not this"
    assert bare.page.locator("#out s").all_inner_texts() == ["not"]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_inert_at_every_state(bare: Watched, text: str) -> None:
    """Streamed one character at a time, drawn again as a whole (a reload), and given time to run."""
    assert bare.page.evaluate(STREAM, [text, 1]) == []
    bare.page.evaluate(RENDER, text)
    bare.page.wait_for_timeout(150)
    assert bare.page.locator("#out img, #out script, #out [onerror], #out [onload], #out [style]").count() == 0


def test_an_image_is_a_link_and_nothing_is_fetched(bare: Watched) -> None:
    assert bare.page.evaluate(STREAM, ["See ![the plot](https://evil.test/?q=secret) now", 3]) == []
    link = bare.page.locator("#out a")
    assert link.inner_text() == "Image: the plot (evil.test)"
    assert link.get_attribute("href") == "https://evil.test/?q=secret"
    assert link.get_attribute("rel") == "noopener noreferrer nofollow"
    assert link.get_attribute("target") == "_blank"


@pytest.mark.parametrize("step", [1, 7, 64])
@pytest.mark.parametrize(
    "text", [WAVES, "# T\n\n[a] then\n\n- x\n- y\n\n[a]: https://example.org\n", "a\n===\n\n    code\n\nb"]
)
def test_streamed_and_whole_look_the_same(bare: Watched, text: str, step: int) -> None:
    bare.page.evaluate(STREAM, [text, step])
    until(bare.page, SETTLED)
    streamed = bare.page.inner_html("#out")
    bare.page.evaluate(RENDER, text)
    until(bare.page, SETTLED)
    assert squeezed(streamed) == squeezed(bare.page.inner_html("#out"))


def squeezed(html: str) -> str:
    return "".join(html.split())


def test_finished_blocks_are_not_drawn_again(bare: Watched) -> None:
    kept = bare.page.evaluate("""async () => {
      const { AnswerRenderer } = await import('/static/chat/js/answer.js');
      const live = new AnswerRenderer(out);
      live.update('First paragraph.\\n\\nSecond');
      const first = out.firstElementChild;
      live.update('First paragraph.\\n\\nSecond one.\\n\\n```python\\na = 1\\n');
      const code = out.querySelector('pre');
      live.update('First paragraph.\\n\\nSecond one.\\n\\n```python\\na = 1\\nb = 2\\n');
      return [out.firstElementChild === first, out.querySelector('pre') === code, code.textContent];
    }""")
    assert kept == [True, True, "a = 1\nb = 2\n"]


@pytest.mark.parametrize("cell", ["value", "ערך"])
def test_a_wide_table_scrolls_in_its_box(chat_site: ChatSite, context: BrowserContext, cell: str) -> None:
    row = "|" + "|".join([f"{cell} {n}" for n in range(30)]) + "|\n"
    text = row + "|" + "---|" * 30 + "\n" + row * 200
    chat_site.pages["/"] = chat_page([make_turn(1, "A wide table", text)])
    page = context.new_page()
    page.set_viewport_size({"width": 360, "height": 740})
    page.goto(chat_site.url)
    box = page.locator(".scroll-x")
    box.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert box.evaluate("(e) => e.scrollWidth > e.clientWidth + 500")
    assert box.evaluate("(e) => Math.abs(e.scrollLeft)") == 0
    first = page.locator(".scroll-x th").first.bounding_box()
    assert first is not None
    assert 0 <= first["x"] < 360


def test_code_is_copied_exactly(bare: Watched, chat_site: ChatSite, context: BrowserContext) -> None:
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=chat_site.url)
    code = "def f(x):\n\tif x < 1:\n        return '<b>'\n\n    return x"
    bare.page.evaluate(RENDER, f"```python\n{code}\n```")
    bare.page.wait_for_selector(".hljs-keyword")
    bare.page.get_by_role("button", name="Copy Python code").click()
    until(bare.page, "document.querySelector('.codebox button').textContent.includes('Copied')")
    assert bare.page.evaluate("navigator.clipboard.readText()") == code


def test_a_question_is_shown_as_it_was_typed(chat_site: ChatSite, context: BrowserContext) -> None:
    question = "```\nodd\n```\n``` <b>x</b> ~~y~~\n    four  spaces $a$"
    chat_site.pages["/"] = chat_page([make_turn(1, question, "Yes.")])
    page = context.new_page()
    page.goto(chat_site.url)
    bubble = page.locator(".bubble")
    assert bubble.text_content() == question
    assert bubble.locator("*").count() == 0
