"""Template tags of the pages: icons of the inline sprite, and numbers in words."""

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()
ICON = '<svg class="{}" aria-hidden="true" focusable="false"><use href="#i-{}"/></svg>'


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
