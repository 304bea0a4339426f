"""Template tags of the pages: icons of the inline sprite, and numbers in words."""

from pathlib import Path

from django import template
from django.templatetags.static import static
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

register = template.Library()
SCRIPTS = Path(__file__).resolve().parents[1] / "static" / "chat" / "js"
ICON = '<svg class="{}" aria-hidden="true" focusable="false"><use href="#i-{}"/></svg>'


@register.simple_tag
def preload_scripts() -> SafeString:
    """Return a preload link for each script of the page: the browser fetches all at once, not import by import."""
    names = sorted(path.name for path in SCRIPTS.glob("*.js"))
    return format_html_join(
        "\n", '<link rel="modulepreload" href="{}">', ((static(f"chat/js/{name}"),) for name in names)
    )


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
