"""What a list of executions can be narrowed by."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable
from typing import Any

import django_filters
from django import forms
from django.db.models import Q, QuerySet
from django.db.models.fields.json import KeyTransform
from django_filters.fields import IsoDateTimeField
from rest_framework.exceptions import ValidationError

from reactor_coord.declare.suggest import did_you_mean
from reactor_coord.engine.states import ExecutionStatus, Mode
from reactor_coord.models import Execution
from reactor_coord.operations import views

PAGING = frozenset({"page", "page_size", "format"})


def refuse_unknown(asked: Iterable[str]) -> None:
    """Raise for a filter that there is not: what is misspelt would be ignored, and everything listed."""
    known = [*ExecutionFilter.base_filters, *PAGING]
    unknown = [name for name in asked if name not in known]
    if unknown:
        problems = {name[:100]: [f"There is no such filter.{did_you_mean(name[:100], known)}"] for name in unknown[:10]}
        raise ValidationError(problems)


class _Moment(IsoDateTimeField):
    """A time that the database can be asked about."""

    def clean(self, value: Any) -> Any:
        """Raises `forms.ValidationError` for one that no clock of the world shows."""
        found = super().clean(value)
        try:
            return found and found.astimezone(dt.UTC)
        except (OverflowError, ValueError):
            raise forms.ValidationError("Give a time between the years 1 and 9999, in UTC.") from None


class _MomentFilter(django_filters.IsoDateTimeFilter):
    field_class = _Moment


class ExecutionFilter(django_filters.FilterSet):
    """`?status=parked&status=failed&reactor=Payment&tag=customer:5&waiting_key=acct:1&created_after=…`."""

    status = django_filters.MultipleChoiceFilter(choices=[(each.value, each.value) for each in ExecutionStatus])
    mode = django_filters.ChoiceFilter(choices=[(each.value, each.value) for each in Mode])
    reactor = django_filters.CharFilter(method="by_reactor", label="Dotted path or class name")
    tag = django_filters.CharFilter(method="by_tag", label="A tag's name, or name:value")
    waiting_key = django_filters.CharFilter(field_name="waiting_key", label="The key it waits for")
    idempotency_key = django_filters.CharFilter(
        field_name="idempotency_key", label="The idempotency key it was started with"
    )
    correlation_id = django_filters.CharFilter(
        method="by_correlation_id", label="The name of a question that it, or a part of it, asks or has asked"
    )
    created_after = _MomentFilter(field_name="created_at", lookup_expr="gte", label="Created at or after")
    created_before = _MomentFilter(field_name="created_at", lookup_expr="lt", label="Created before")

    roots_only = django_filters.BooleanFilter(
        method="by_belonging", label="Only what somebody started: true, unless `parent` is given"
    )
    parent = django_filters.UUIDFilter(field_name="parent_id", label="What this execution composed or dispatched")
    parent_step = django_filters.CharFilter(field_name="parent_step", label="And at which step")

    class Meta:
        model = Execution
        fields: list[str] = []

    def filter_queryset(self, queryset: QuerySet[Execution]) -> QuerySet[Execution]:
        """Without a word about it, what others composed or dispatched is left out."""
        found: QuerySet[Execution] = super().filter_queryset(queryset)
        asked = self.form.cleaned_data
        is_narrow = asked["roots_only"] is not None or asked["parent"] is not None
        return found if is_narrow else found.filter(parent__isnull=True)

    def by_belonging(self, queryset: QuerySet[Execution], name: str, value: bool) -> QuerySet[Execution]:
        """Both ways: false is all of them."""
        return queryset.filter(parent__isnull=True) if value else queryset

    def by_reactor(self, queryset: QuerySet[Execution], name: str, value: str) -> QuerySet[Execution]:
        """By dotted path, or by the class's own name."""
        return queryset.filter(Q(reactor=value) | Q(label=value))

    def by_correlation_id(self, queryset: QuerySet[Execution], name: str, value: str) -> QuerySet[Execution]:
        """What asks under that name, and what that is a part of."""
        return queryset.filter(pk__in=views.asking_under(value))

    def by_tag(self, queryset: QuerySet[Execution], name: str, value: str) -> QuerySet[Execution]:
        """By a tag's presence, or by its value as text or as the JSON it reads as (`5` finds 5 and "5")."""
        tag, colon, wanted = value.partition(":")
        if not colon:
            return queryset.filter(tags__has_key=tag)
        values: list[Any] = [wanted]
        try:
            values.append(json.loads(wanted, parse_constant=_no_constant))
        except (ValueError, RecursionError):
            pass  # not JSON: only the text can match
        matches = Q()
        for each in values:
            matches |= Q(filtered_tag=each)
        return queryset.alias(filtered_tag=KeyTransform(tag, "tags")).filter(matches)


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
