"""Template tags of the pages: icons of the inline sprite, and numbers in words."""

from pathlib import Path

from django import template
from django.templatetags.static import static
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()
VENDOR = ("chat/vendor/markdown-it/markdown-it.js", "chat/vendor/dompurify/purify.js")
SCRIPTS = Path(__file__).resolve().parents[1] / "static" / "chat" / "js"
ICON = '<svg class="{}" aria-hidden="true" focusable="false"><use href="#i-{}"/></svg>'


@register.simple_tag
def page_scripts() -> list[str]:
    """Return the addresses of the page's scripts: it fetches them all at once, not import by import."""
    own = (f"chat/js/{path.name}" for path in sorted(SCRIPTS.glob("*.js")) if path.name != "start.js")
    return [static(name) for name in (*own, *VENDOR)]


@register.filter
def about_seconds(seconds: float) -> str:
    """Return a wait as people say it: "under 1 s", "about 12 s"."""
    return "under 1 s" if seconds < 1 else f"about {seconds:.0f} s"


@register.simple_tag
def icon(name: str) -> SafeString:
    """Return the icon `name` at text size plus a little."""
    return format_html(ICON, "i", name)


@register.simple_tag
def icons(name: str) -> SafeString:
    """Return the icon `name`, small."""
    return format_html(ICON, "i i-s", name)
