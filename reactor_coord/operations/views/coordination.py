"""Coordination as operators look at it: what is held, who is in line for it, which executions stepped aside and why."""

from __future__ import annotations

from dataclasses import replace

from django.db.models import QuerySet

from reactor_coord.engine.states import ExecutionStatus
from reactor_coord.models import Execution

from . import live
from .shapes import HoldRow, Live, ParkRow, WaiterRow
from .summaries import LIST_COLUMNS, wait_of

PARKS_SHOWN = 1000


def holds() -> Live[HoldRow]:
    """Every live hold."""
    return live.holds()


def hold(key: str, primitive: str = "lock", fence: int | None = None) -> HoldRow | None:
    """The live hold of one key, of a semaphore's several the one with that fence, else the oldest; None when it is free.

    Raises CoordinationUnavailable, for a verb must not guess.
    """
    return live.hold(key, primitive, fence)


def waiters() -> Live[WaiterRow]:
    """Everybody in line, by key and place."""
    return live.waiters()


def parks(queryset: QuerySet[Execution] | None = None, limit: int = PARKS_SHOWN) -> Live[ParkRow]:
    """Root executions that are parked or paused, the longest first, with holder and place from Redis."""
    rows = Execution.objects.all() if queryset is None else queryset
    parked = list(
        rows.filter(parent__isnull=True, status__in=[ExecutionStatus.PARKED, ExecutionStatus.PAUSED])
        .only(*LIST_COLUMNS, "updated_at")
        .order_by("updated_at")[: limit + 1]
    )
    holders, lines = live.holds(), live.waiters()
    places = {
        (place.primitive, place.key, name): place.place
        for place in lines.rows
        for name in (place.owner, place.execution)
    }
    found = []
    for row in parked[:limit]:
        wait = wait_of(row, holders)
        if wait is None:
            continue
        is_recorded = lines.notice or wait.primitive not in live.PRIMITIVES
        place = wait.place if is_recorded else places.get((wait.primitive, wait.key, str(row.pk)))
        wait = replace(wait, place=place, since=wait.since or row.updated_at)
        found.append(ParkRow(str(row.pk), row.reactor, row.label or row.reactor, str(row.status), wait))
    return Live(tuple(found), notice=holders.notice or lines.notice, truncated=len(parked) > limit)
