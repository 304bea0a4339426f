"""The demonstration account: user `demo`, with a password made once per installation."""

from __future__ import annotations

import secrets
from pathlib import Path

from django.contrib.auth import get_user_model

DEMO_USER = "demo"


def demo_password(var_dir: Path) -> str:
    """Return the password kept in VAR_DIR, readable by its owner only; make it when there is none."""
    path = var_dir / "demo_password"
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(9) + "\n", encoding="ascii")
    return path.read_text(encoding="ascii").strip()


def ensure_demo_account(password: str) -> None:
    """Create the user `demo`, or set its password again when it differs."""
    users = get_user_model()._default_manager
    user, created = users.get_or_create(username=DEMO_USER, defaults={"first_name": "Demo"})
    if created or not user.check_password(password):
        user.set_password(password)
        user.save(update_fields=["password"])
