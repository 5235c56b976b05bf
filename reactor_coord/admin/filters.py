"""List filters that cost no query of their own."""

from __future__ import annotations

from typing import Any
from uuid import UUID

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


class BelongingFilter(admin.SimpleListFilter):
    """Only what somebody started, unless asked otherwise: all of them, or what one step of one execution handed off.

    `?of=all`, `?of=<execution>` or `?of=<execution>/<step>`.
    """

    title = _("belonging")
    parameter_name = "of"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = [("all", _("with composed ones and units"))]
        parent, step = _of(request.GET.get(self.parameter_name))
        if parent is not None:
            where = _("of step %s") % step if step else _("of one execution")
            found.append((request.GET[self.parameter_name], f"{where} ({views.short(str(parent))})"))
        return found

    def choices(self, changelist: Any) -> Any:
        """The first choice is not everything, so it is not called that."""
        choices = list(super().choices(changelist))
        choices[0] = {**choices[0], "display": _("started by somebody")}
        return choices

    def queryset(self, request: HttpRequest, queryset: QuerySet[Execution]) -> QuerySet[Execution]:
        if self.value() == "all":
            return queryset
        parent, step = _of(self.value())
        if parent is None:
            return queryset.filter(parent__isnull=True)
        below = queryset.filter(parent_id=parent)
        return below.filter(parent_step=step) if step else below


def _of(value: str | None) -> tuple[UUID | None, str]:
    parent, _slash, step = (value or "").partition("/")
    try:
        return UUID(parent), step
    except ValueError:
        return None, ""
