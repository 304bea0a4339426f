"""What the server draws of an answer before the page's script does: our elements, and nothing an answer could smuggle in."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chat.answer_html import MOST_CHARS, answer_html

ELEMENTS = {
    "p",
    "br",
    "strong",
    "em",
    "s",
    "code",
    "pre",
    "a",
    "ul",
    "ol",
    "li",
    "blockquote",
    "hr",
    "div",
    "span",
    "header",
}
ELEMENTS |= {"h3", "h4", "h5", "h6", "table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"href", "class", "start", "rel", "target", "scope", "title"}
HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1))",
    "[a](JaVaScRiPt:alert(1))",
    "[a](&#106;avascript:alert(1))",
    "![a](data:text/html,x)",
    "<https://a.b/?\"onmouseover='x'>",
    '[a](https://b.c "\\" onclick=alert(1)")',
    '```"><script>x</script>\n</code></pre><script>y</script>\n```',
    "| <b onclick=x> |\n|---|\n| <style>*{}</style> |",
    "[a]: javascript:alert(1)\n\n[a]",
    "\x00<b>\ufffd",
]


class Reader(HTMLParser):
    """Collects what a browser would find."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def check(html: str) -> None:
    for tag, attributes in Reader(html).found:
        assert tag in ELEMENTS
        assert set(attributes) <= ATTRIBUTES
        if "href" in attributes:
            assert str(attributes["href"]).lower().startswith(("http://", "https://", "mailto:"))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_answers_stay_text(text: str) -> None:
    check(answer_html(text))


@given(st.text(st.sampled_from("<>\"'&[]()!`|-*_~#\\\n :/ajvscript.ht0\x00")))
def test_nothing_but_our_elements_comes_out(text: str) -> None:
    check(answer_html(text))


def test_the_elements_are_those_of_the_page() -> None:
    html = answer_html(
        "# Top\n\n| a | b |\n|:-:|--:|\n| 1 | 2 |\n\n```python x\nif a < b:\n```\n\n![A cat](https://c.d/e.png) [l](https://x.y)"
    )
    assert "<h3>Top</h3>" in html
    assert '<div class="scroll-x"><table>' in html
    assert '<th class="c" scope="col">a</th>' in html
    assert '<td class="r">2</td>' in html
    assert (
        '<div class="codebox"><header><span>python</span></header><pre><code>if a &lt; b:\n</code></pre></div>' in html
    )
    assert ">Image: A cat (c.d)</a>" in html
    assert '<a href="https://x.y" rel="noopener noreferrer nofollow" target="_blank">l</a>' in html


def test_prices_and_line_ends() -> None:
    assert answer_html("$5 to $10\r\nand more") == "<p>$5 to $10\nand more</p>\n"


def test_a_very_long_answer_is_left_to_the_script() -> None:
    assert answer_html("a" * (MOST_CHARS + 1)) == ""
