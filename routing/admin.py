"""Money in the admin: the ledger to read, the limits of budgets to change."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from routing.hpc_admin import HpcEndpointAdmin, HpcKeyAdmin
from routing.models import Budget, LedgerEntry
from routing.money import MICRO, format_usd, format_usd_exact, usd_to_micro

__all__ = ["BudgetAdmin", "HpcEndpointAdmin", "HpcKeyAdmin", "LedgerEntryAdmin"]


class BudgetForm(forms.ModelForm):  # type: ignore[type-arg]
    limit_usd = forms.DecimalField(label="Limit in US dollars", min_value=0, max_digits=14, decimal_places=6)

    class Meta:
        model = Budget
        fields: list[str] = []

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        whole, micro = divmod(self.instance.limit_micro, MICRO)
        self.initial["limit_usd"] = f"{whole}.{micro:06d}"


@admin.register(Budget)
class BudgetAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    form = BudgetForm
    fields = ("scope", "scope_id", "period", "period_start", "limit_usd", "spent", "reserved")
    readonly_fields = ("scope", "scope_id", "period", "period_start", "spent", "reserved")
    list_display = ("scope", "scope_id", "period", "period_start", "limit", "spent", "reserved")
    list_filter = ("scope", "period")
    search_fields = ("scope_id",)
    date_hierarchy = "period_start"

    @admin.display(ordering="limit_micro")
    def limit(self, budget: Budget) -> str:
        return format_usd_exact(budget.limit_micro)

    @admin.display(ordering="spent_micro")
    def spent(self, budget: Budget) -> str:
        return format_usd_exact(budget.spent_micro)

    @admin.display(ordering="reserved_micro")
    def reserved(self, budget: Budget) -> str:
        return format_usd_exact(budget.reserved_micro)

    def save_model(self, request: HttpRequest, obj: Budget, form: Any, change: bool) -> None:
        # Only this column: the page was opened a while ago, and calls have moved the others since.
        obj.limit_micro = usd_to_micro(form.cleaned_data["limit_usd"])
        obj.save(update_fields=["limit_micro"])

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Budget | None = None) -> bool:
        return False


@admin.register(LedgerEntry)
class LedgerEntryAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("id", "created_at", "user_id", "kind", "purpose", "tier", "model", "amount", "source", "degraded")
    list_filter = ("kind", "degraded", "tier", "source", "purpose")
    search_fields = ("=turn_id", "=generation_id", "=user__username")
    date_hierarchy = "created_at"
    show_full_result_count = False

    @admin.display(ordering="amount_micro")
    def amount(self, entry: LedgerEntry) -> str:
        return format_usd(entry.amount_micro)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: LedgerEntry | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: LedgerEntry | None = None) -> bool:
        return False
