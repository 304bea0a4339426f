"""The catalogue of tiers: what it says, and how a mistake in it is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from routing.catalog import CatalogError, read_catalog
from routing.types import Tier

MODEL = '[[local.models]]\nname = "m"\nlabel = "M"\nwindow = 2048\nmax_output = 512\n'


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "tiers.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_one_that_comes_along_is_right() -> None:
    tiers = read_catalog(Path("routing/tiers.toml"))
    assert tiers[Tier.LOCAL][0].price.is_free
    sonnet = tiers[Tier.CLOUD][0]
    assert (sonnet.price.input, sonnet.price.output, sonnet.price.cached) == (3_000_000, 15_000_000, 300_000)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[local", "not valid TOML"),
        ('[local]\nlabel = "x"\n', "local.models"),
        (MODEL + "colour = 3\n", "local.models.0.colour"),
        (MODEL.replace("window = 2048", "window = 3"), "local.models.0.window"),
        (MODEL.replace("max_output = 512", "max_output = 4096"), "leaves no room"),
        (MODEL + 'input_usd = "0.0000001"\n', "more than six decimals"),
        (MODEL + 'input_usd = "-1"\n', "local.models.0.input_usd"),
        (MODEL + MODEL, "named twice"),
        ("[moon]\n", "moon"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match=words):
        read_catalog(written(tmp_path, text))


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="cannot be read"):
        read_catalog(tmp_path / "none.toml")
