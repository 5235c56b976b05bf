"""What the steps of a tree handed to workers of their own: counted by status, and those few that are worth a link.

Two queries however many there are: a fan-out of thousands is a handful of numbers, never thousands of rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from uuid import UUID

from django.db.models import Count, F, Q

from reactor_coord.engine.states import ExecutionStatus
from reactor_coord.models import Execution

from .shapes import UnitsView, UnitView
from .summaries import status_label

SHOWN = 100
"""Units linked on one page at most."""

WORTH_A_LOOK = tuple(
    str(each)
    for each in (
        ExecutionStatus.FAILED,
        ExecutionStatus.ABORTED,
        ExecutionStatus.NEEDS_DEFINITION,
        ExecutionStatus.ROLLING_BACK,
        ExecutionStatus.PAUSED,
    )
)
_ORDER = [str(each) for each in ExecutionStatus]
Slot = tuple[UUID | None, str]


def units_of(parents: Sequence[UUID]) -> dict[Slot, UnitsView]:
    """By parent and step."""
    below = Execution.objects.filter(parent_id__in=parents)
    elements = Q(element_index__isnull=False)
    counted = below.filter(Q(root_id=F("id")) | elements).order_by()
    counts: dict[Slot, dict[str, int]] = defaultdict(dict)
    fans: set[Slot] = set()
    rows = counted.values_list("parent_id", "parent_step", "status").annotate(
        times=Count("id"), elements=Count("element_index")
    )
    for parent, step, status, times, in_fan in rows:
        counts[parent, step][status] = times
        if in_fan:
            fans.add((parent, step))
    shown: dict[Slot, list[UnitView]] = defaultdict(list)
    if counts:
        own = below.filter(root_id=F("id")).filter(~elements | Q(status__in=WORTH_A_LOOK))
        columns = (
            "id",
            "label",
            "reactor",
            "status",
            "park_kind",
            "parent_id",
            "parent_step",
            "element_index",
            "reason",
        )
        for row in own.only(*columns).order_by("parent_id", "parent_step", "element_index", "id")[:SHOWN]:
            shown[row.parent_id, row.parent_step].append(_unit(row))
    return {
        slot: UnitsView(
            total=sum(by_status.values()),
            counts=tuple(sorted(by_status.items(), key=lambda each: _ORDER.index(each[0]))),
            shown=tuple(shown[slot]),
            is_fan_out=slot in fans,
        )
        for slot, by_status in counts.items()
    }


def _unit(row: Execution) -> UnitView:
    return UnitView(
        id=str(row.pk),
        label=row.label or row.reactor,
        status=str(row.status),
        status_label=status_label(row.status, row.park_kind),
        element_index=row.element_index,
        reason=row.reason or "",
    )
