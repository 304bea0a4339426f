"""The campus tier in the admin: endpoints to change, keys to look at without their secrets. Registered by `admin`."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from routing.hpc_models import HpcEndpoint, HpcKey


@admin.register(HpcEndpoint)
class HpcEndpointAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("name", "label", "control", "model", "enabled", "min_workers", "max_workers")
    list_filter = ("enabled", "control")


@admin.register(HpcKey)
class HpcKeyAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """To look at only: `manage.py hpc_keys` makes and retires keys. The secret is not even sealed on the page."""

    fields = ("endpoint", "kid", "purpose", "created", "activated", "last_used", "retired")
    list_display = ("kid", "endpoint", "purpose", "created", "activated", "last_used", "retired")
    list_filter = ("purpose", "endpoint")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False
