"""Who uses the site."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.db import models


class Theme(models.TextChoices):
    SYSTEM = "", "as the system"
    LIGHT = "light", "light"
    DARK = "dark", "dark"


class User(AbstractUser):
    """A person. Custom from the first migration, so that it can grow."""

    display_name = models.CharField(max_length=150, blank=True)
    theme = models.CharField(max_length=8, choices=Theme, blank=True, default=Theme.SYSTEM)

    @property
    def shown_name(self) -> str:
        return self.display_name or self.get_full_name() or self.username

    @property
    def initials(self) -> str:
        """One or two letters for the avatar."""
        parts = self.shown_name.split()
        return "".join(part[0] for part in (parts[:1] + parts[1:][-1:])).upper() or "?"
