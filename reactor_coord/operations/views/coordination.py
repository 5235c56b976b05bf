"""Coordination as operators look at it: what is held, marked, planned and in order, who is in line, who stepped aside and why."""

from __future__ import annotations

from dataclasses import replace

from django.db.models import QuerySet

from reactor_coord.engine.states import ExecutionStatus
from reactor_coord.models import Execution

from . import live
from .shapes import BucketRow, HoldRow, LimitRow, LineRow, Live, ParkRow, SlotRow, WaiterRow
from .summaries import LIST_COLUMNS, roots, wait_of

PARKS_SHOWN = 1000


def holds() -> Live[HoldRow]:
    """Every live hold."""
    return live.holds()


def hold(key: str, primitive: str = "lock", fence: int | None = None) -> HoldRow | None:
    """The live hold of one key, of a semaphore's several the one with that fence, else the oldest; None when it is free.

    Raises one of NO_ANSWER, for a verb must not guess.
    """
    return live.hold(key, primitive, fence)


def waiters() -> Live[WaiterRow]:
    """Everybody in line, by key and place."""
    return live.waiters()


def waiter(key: str, primitive: str, ticket: int) -> WaiterRow | None:
    """Who stands in line with that ticket; None when nobody does any more. Raises one of NO_ANSWER."""
    return live.waiter(key, primitive, ticket)


def limits() -> Live[LimitRow]:
    """Rate limits with their windows and planned slots."""
    return live.limits()


def slot(key: str, who: str) -> SlotRow | None:
    """The planned slot of somebody, if there is one. Raises one of NO_ANSWER."""
    found = live.limit_of(key)
    return next((each for each in found.planned if each.who == who), None) if found is not None else None


def buckets() -> Live[BucketRow]:
    """Marked buckets of periods."""
    return live.buckets()


def bucket(key: str, name: str) -> BucketRow | None:
    """One marked bucket; None when it is free. Raises one of NO_ANSWER."""
    return live.bucket(key, name)


def lines() -> Live[LineRow]:
    """Ordered lines with their first positions."""
    return live.ordered()


def line(key: str) -> LineRow | None:
    """One ordered line; None when nobody is in it. Raises one of NO_ANSWER."""
    return live.ordered_line(key)


def parks(queryset: QuerySet[Execution] | None = None, limit: int = PARKS_SHOWN) -> Live[ParkRow]:
    """Executions that are parked or paused, units of others too, the longest first, with holder and place from Redis."""
    rows = Execution.objects.all() if queryset is None else queryset
    parked = list(
        rows.filter(roots(), status__in=[ExecutionStatus.PARKED, ExecutionStatus.PAUSED])
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
