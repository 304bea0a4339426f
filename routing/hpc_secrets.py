"""Seal the campus keys at rest: Fernet under a key of the settings, several for a rotation (the first one seals)."""

from __future__ import annotations

import base64

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

from stream_site.errors import InternalError

_INFO = b"stream campus keys at rest/v1"


def _fernet() -> MultiFernet:
    """Return the box. `STREAM_KEY_ENCRYPTION_KEY` is a comma-separated list; without it SECRET_KEY stands in."""
    texts = [text.strip() for text in settings.KEY_ENCRYPTION_KEY.split(",") if text.strip()] or [settings.SECRET_KEY]
    return MultiFernet([Fernet(_derive(text)) for text in texts])


def _derive(text: str) -> bytes:
    key = HKDF(algorithm=SHA256(), length=32, salt=None, info=_INFO).derive(text.encode())
    return base64.urlsafe_b64encode(key)


def seal_secret(secret: bytes) -> str:
    """Return `secret` as text for the database."""
    return _fernet().encrypt(secret).decode("ascii")


def open_secret(sealed: str) -> bytes:
    """Return the secret. Raises `InternalError` when the settings' key is another one."""
    try:
        return _fernet().decrypt(sealed.encode("ascii"))
    except InvalidToken:
        raise InternalError(
            "The campus keys in the database cannot be opened with this site's key.",
            todo="Set STREAM_KEY_ENCRYPTION_KEY (or STREAM_SECRET_KEY) to what it was when they were made, "
            "or make new ones with `manage.py hpc_keys new`.",
        ) from None


def reseal_secret(sealed: str) -> str:
    """Return the same secret under the settings' first key. Raises `InternalError`."""
    return seal_secret(open_secret(sealed))
