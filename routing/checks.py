"""System checks of routing: the catalogue of tiers and models can be read."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error, register

from routing.catalog import CatalogError, read_catalog
from routing.conf import conf


@register()
def catalogue_can_be_read(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    try:
        tiers = read_catalog(conf().tiers_file)
    except CatalogError as error:
        return [
            Error(
                str(error),
                hint="Mend the file, or unset STREAM_TIERS_FILE for the one that comes along.",
                id="routing.E001",
            )
        ]
    if not tiers:
        return [Error("The catalogue has no tier.", hint="Name at least one of local, hpc, cloud.", id="routing.E002")]
    return []
