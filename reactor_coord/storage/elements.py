"""Units: the executions that a step handed to workers of their own, found by who dispatched them.

A unit is its own root. An element of a fan-out that has not been let begin is ready and due at no time, so that no sweep
and no message finds it.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, F, QuerySet

from reactor_coord.engine.states import TERMINAL, ExecutionStatus
from reactor_coord.models import Execution, StepRun
from reactor_coord.models.choices import values
from reactor_coord.storage import clock


def of_step(parent_id: UUID, step: str, *, newest_first: bool = False) -> list[Execution]:
    """The executions that a step handed off, in the order of their elements. One query."""
    rows = _rows(parent_id, step)
    return list(rows.order_by("-element_index" if newest_first else "element_index"))


def throw(parent_id: UUID, step: str, number: int, look_at: datetime) -> list[UUID]:
    """Let up to `number` elements begin that have not been let yet, in order; answers those that this call let."""
    rows = _rows(parent_id, step)
    waiting = rows.filter(status=ExecutionStatus.READY.value, resume_at__isnull=True, started_at__isnull=True)
    thrown: list[UUID] = []
    for identity in list(waiting.order_by("element_index").values_list("id", flat=True)[: number + 2]):
        if len(thrown) < number and waiting.filter(pk=identity).update(resume_at=look_at):
            thrown.append(identity)
    return thrown


def has_open(parent_id: UUID, step: str) -> bool:
    """Whether some of them are not over."""
    return _rows(parent_id, step).exclude(status__in=values(TERMINAL)).exists()


def count(parent_id: UUID, step: str) -> int:
    """How many were written."""
    return _rows(parent_id, step).count()


def in_flight(parent_id: UUID, step: str) -> int:
    """How many were let begin and are not over."""
    open_ones = _rows(parent_id, step).exclude(status__in=values(TERMINAL))
    return open_ones.exclude(
        status=ExecutionStatus.READY.value, resume_at__isnull=True, started_at__isnull=True
    ).count()


def counts(parent_id: UUID, step: str) -> dict[str, int]:
    """How many are in which status. One query."""
    rows = _rows(parent_id, step).order_by().values_list("status").annotate(times=Count("id"))
    return dict(rows)


def first(parent_id: UUID, step: str, statuses: Collection[str]) -> Execution | None:
    """The first of them in one of these statuses."""
    found = _rows(parent_id, step).filter(status__in=[str(status) for status in statuses])
    return found.order_by("element_index").first()


def results(parent_id: UUID, step: str) -> Generator[Any]:
    """Their encoded results in order, read in portions; close it when not all are read."""
    rows = _rows(parent_id, step).order_by("element_index").values_list("result", flat=True)
    yield from rows.iterator(chunk_size=500)


def cancel_unbegun(parent_id: UUID, step: str) -> int:
    """Cancel all that have not begun, at once."""
    present = clock.present()
    unbegun = _rows(parent_id, step).filter(status=ExecutionStatus.READY.value, started_at__isnull=True, lease_token="")
    return unbegun.update(
        status=ExecutionStatus.CANCELLED.value, finished_at=present, resume_at=None, updated_at=present
    )


def left_undone(root_id: UUID) -> list[Execution]:
    """The units whose own rollback is incomplete, and listed so by the steps of this tree that handed them off."""
    using = clock.alias()
    runs = StepRun.objects.using(using).filter(execution__root=root_id, rollback_failure__has_key="entries")
    failed = {"status": ExecutionStatus.FAILED.value, "root_id": F("id")}
    units = [
        unit
        for execution_id, step in runs.values_list("execution_id", "step")
        for unit in Execution.objects.using(using).filter(parent_id=execution_id, parent_step=step, **failed)
    ]
    return [unit for unit in units if (unit.failure or {}).get("rollback_failures")]


def parked(ids: Collection[UUID]) -> list[Execution]:
    """Those of these executions that are parked. One query."""
    rows = Execution.objects.using(clock.alias()).filter(pk__in=list(ids), status=ExecutionStatus.PARKED.value)
    return list(rows.only("id", "park_kind", "waiting_on", "queue", "updated_at"))


def begun_of_step(parent_id: UUID, step: str, limit: int = 100) -> list[Execution]:
    """The executions that a step handed off and that are under way or parked now, in the order of their elements."""
    rows = _rows(parent_id, step).filter(status__in=[ExecutionStatus.PARKED.value, ExecutionStatus.RUNNING.value])
    return list(rows.only("id", "label").order_by("element_index", "id")[:limit])


def _rows(parent_id: UUID, step: str) -> QuerySet[Execution]:
    own_roots = Execution.objects.using(clock.alias()).filter(parent_id=parent_id, parent_step=step)
    return own_roots.filter(root_id=F("id"))
