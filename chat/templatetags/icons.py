"""Template tags for the icons of the inline sprite."""

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

register = template.Library()
ICON = '<svg class="{}" aria-hidden="true" focusable="false"><use href="#i-{}"/></svg>'


@register.simple_tag
def icon(name: str) -> SafeString:
    """Return the icon `name` at text size plus a little."""
    return format_html(ICON, "i", name)


@register.simple_tag
def icons(name: str) -> SafeString:
    """Return the icon `name`, small."""
    return format_html(ICON, "i i-s", name)
