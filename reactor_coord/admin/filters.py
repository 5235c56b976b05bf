"""List filters that cost no query of their own."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from reactor_coord.engine.states import ExecutionStatus
from reactor_coord.models import Execution
from reactor_coord.operations import views


class ReactorFilter(admin.SimpleListFilter):
    """By reactor: those the code has, and the one asked for even if the code lost it."""

    title = _("reactor")
    parameter_name = "reactor"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        known = {each.name: each.label for each in views.reactors()}
        asked = request.GET.get(self.parameter_name)
        if asked and asked not in known:
            known[asked] = f"{asked} (definition missing)"
        labels = list(known.values())
        return [(name, label if labels.count(label) == 1 else name) for name, label in known.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Execution]) -> QuerySet[Execution]:
        return queryset.filter(reactor=self.value()) if self.value() else queryset


class RollbackFilter(admin.SimpleListFilter):
    """Failed executions whose rollback left something for a person to put right."""

    title = _("rollback")
    parameter_name = "rollback"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [("incomplete", _("incomplete"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Execution]) -> QuerySet[Execution]:
        if self.value() != "incomplete":
            return queryset
        return queryset.filter(status=ExecutionStatus.FAILED, rollback_incomplete=True)  # type: ignore[misc] # annotated by `views.listing`
