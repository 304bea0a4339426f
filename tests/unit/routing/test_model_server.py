from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from routing.embedded.model_server import ModelMissing, model_path, verify


def test_finds_the_installed_model() -> None:
    assert model_path().stat().st_size == 98_362_432


def test_a_damaged_file_is_refused_in_words(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"not a model")
    with pytest.raises(ModelMissing, match=r"is damaged.*make install"):
        verify(file)
    verify(file, hashlib.sha256(b"not a model").hexdigest())
