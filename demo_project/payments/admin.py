"""Accounts and their ledger in the admin: to look at. Money is moved by reactors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest

from demo_project.payments.models import Account, LedgerEntry

if TYPE_CHECKING:
    AccountOptions = admin.ModelAdmin[Account]
    EntryOptions = admin.ModelAdmin[LedgerEntry]
else:
    AccountOptions = EntryOptions = admin.ModelAdmin


class ReadOnly:
    """Nobody writes here."""

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        """No."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """No."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        """No."""
        return False


@admin.register(Account)
class AccountAdmin(ReadOnly, AccountOptions):
    """An account; its balance and what its ledger says side by side."""

    list_display = ["number", "balance", "ledger_balance"]
    search_fields = ["number"]


@admin.register(LedgerEntry)
class LedgerEntryAdmin(ReadOnly, EntryOptions):
    """One movement."""

    list_display = ["at", "account", "kind", "amount", "key"]
    list_filter = ["kind", "account"]
    search_fields = ["key"]
    list_select_related = ["account"]
