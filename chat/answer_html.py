"""An answer's Markdown as HTML, for the moment before the page's script draws it.

The same grammar and the same elements as static/chat/js/markdown.js, without formulas, colours and bare addresses.
HTML in an answer stays text. Links lead only to http, https and mailto; pictures become links.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.utils.html import format_html
from django.utils.safestring import SafeString
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

MOST_CHARS = 20_000
SAFE_LINK = ("http://", "https://", "mailto:")
Env = MutableMapping[str, Any]


def answer_html(text: str) -> SafeString:
    """Return `text` as HTML; a very long one not at all, for it would hold up the page."""
    if len(text) > MOST_CHARS:
        return SafeString("")
    html = PARSER.render(text.replace("\r\n", "\n").replace("\r", "\n"))
    return SafeString(html)  # the parser escapes all that is not its own


def lower_headings(state: StateCore) -> None:
    """Put every heading below the page's own h1 and the turn's h2."""
    for token in state.tokens:
        if token.type.startswith("heading_"):
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"


def cell(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: Env) -> str:
    """Align a table's cell by class: the page's policy forbids style attributes."""
    token = tokens[at]
    style = str(token.attrs.pop("style", ""))
    side = next((name for word, name in (("right", "r"), ("center", "c")) if word in style), None)
    if side:
        token.attrSet("class", side)
    if token.type == "th_open":
        token.attrSet("scope", "col")
    return self.renderToken(tokens, at, options, env)


def link(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: Env) -> str:
    tokens[at].attrSet("rel", "noopener noreferrer nofollow")
    tokens[at].attrSet("target", "_blank")
    return self.renderToken(tokens, at, options, env)


def code(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: Env) -> str:
    words = tokens[at].info.split()
    template = '<div class="codebox"><header><span>{}</span></header><pre><code>{}</code></pre></div>\n'
    return format_html(template, (words[0] if words else "text")[:30], tokens[at].content)


def picture(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: Env) -> str:
    """Link to a picture: loading it would tell a stranger's server who reads."""
    href, words = str(tokens[at].attrGet("src") or ""), tokens[at].content.strip()
    name = f": {words}" if words else ""
    link = '<a class="pic" href="{}" rel="noopener noreferrer nofollow" target="_blank">Image{} ({})</a>'
    return format_html(link, href, name, urlsplit(href).netloc or href)


def table_open(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: Env) -> str:
    return '<div class="scroll-x"><table>\n'


def table_close(self: RendererHTML, tokens: Sequence[Token], at: int, options: OptionsDict, env: Env) -> str:
    return "</table></div>\n"


def make_parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    parser.validateLink = lambda url: url.strip().lower().startswith(SAFE_LINK)  # type: ignore[method-assign]
    parser.core.ruler.push("lower_headings", lower_headings)
    rules = {
        "th_open": cell,
        "td_open": cell,
        "link_open": link,
        "fence": code,
        "code_block": code,
        "image": picture,
        "table_open": table_open,
        "table_close": table_close,
    }
    for name, rule in rules.items():
        parser.add_render_rule(name, rule)
    return parser


PARSER = make_parser()
