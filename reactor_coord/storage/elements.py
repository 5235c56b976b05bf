"""Units: the executions that a step handed to workers of their own, found by who dispatched them.

A unit is its own root. An element of a fan-out that has not been let begin is ready and due at no time, so that no sweep
and no message finds it. Elements that ran in process are executions of their owner's tree: what a map came to counts both.
"""

from __future__ import annotations

from collections.abc import Collection, Generator
from datetime import datetime
from uuid import UUID

from django.db.models import Count, F, QuerySet

from reactor_coord.engine import transitions
from reactor_coord.engine.records import Failure, RollbackFailure
from reactor_coord.engine.states import TERMINAL, ExecutionStatus
from reactor_coord.models import Execution, StepRun
from reactor_coord.models.choices import values
from reactor_coord.storage import clock, journal
from reactor_coord.storage.transitions import apply_all

PARENT_ROLLED_BACK = "its parent rolled back"
"""The reason of a unit that ends because the execution that dispatched it does not go on."""


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


def count_open(parent_id: UUID, step: str) -> int:
    """How many of them are not over."""
    return _rows(parent_id, step).exclude(status__in=values(TERMINAL)).count()


def indexes(parent_id: UUID, step: str) -> set[int | None]:
    """The indexes of what a step has below it, in the tree or as units; None is that of what is no element. One query."""
    return set(_of_either_kind(parent_id, step).order_by().values_list("element_index", flat=True))


def in_flight(parent_id: UUID, step: str) -> int:
    """How many were let begin and are not over."""
    open_ones = _rows(parent_id, step).exclude(status__in=values(TERMINAL))
    return open_ones.exclude(
        status=ExecutionStatus.READY.value, resume_at__isnull=True, started_at__isnull=True
    ).count()


def counts(parent_id: UUID, step: str) -> dict[str, int]:
    """How many elements are in which status. One query."""
    rows = _of_either_kind(parent_id, step).order_by().values_list("status").annotate(times=Count("id"))
    return dict(rows)


def first(parent_id: UUID, step: str, statuses: Collection[str], *, admitted: bool = False) -> Execution | None:
    """The first element in one of these statuses; of those that passed their own gates, if `admitted`."""
    found = _of_either_kind(parent_id, step).filter(status__in=[str(status) for status in statuses])
    if admitted:
        found = found.filter(admitted_at__isnull=False)
    return found.order_by("element_index").first()


def in_order(parent_id: UUID, step: str) -> Generator[Execution]:
    """The elements as they ended, in order, read in portions; close it when not all are read."""
    rows = _of_either_kind(parent_id, step).order_by("element_index")
    yield from rows.only("id", "label", "status", "result", "failure", "reason").iterator(chunk_size=500)


def open_of_step(parent_id: UUID, step: str) -> list[Execution]:
    """Those of them that are not over, in the order of their elements; only their ids are read."""
    rows = _rows(parent_id, step).exclude(status__in=values(TERMINAL))
    return list(rows.only("id").order_by("element_index"))


def cancel_unbegun(parent_id: UUID, step: str, reason: str) -> list[Execution]:
    """Cancel all that have not begun, at once. Returns their rows, with what a note reads of them; in a transaction."""
    present = clock.present()
    unbegun = _rows(parent_id, step).filter(
        status=ExecutionStatus.READY.value, started_at__isnull=True, workers_lost=0, lease_token=""
    )
    apply_all(unbegun, transitions.cancel_unbegun(present, reason))
    cancelled = _rows(parent_id, step).filter(status=ExecutionStatus.CANCELLED.value, finished_at=present)
    return list(cancelled.only(*journal.COLUMNS).order_by("element_index"))


def open_ones(parent_id: UUID, step: str) -> list[Execution]:
    """Those that are not over, the last one first."""
    return list(_rows(parent_id, step).exclude(status__in=values(TERMINAL)).order_by("-element_index"))


def standing(parent_id: UUID, step: str, limit: int = 5) -> list[Execution]:
    """The last of the elements whose work is done and not undone, the last one first."""
    done = [ExecutionStatus.COMPLETED.value, ExecutionStatus.HALTED.value]
    return list(_rows(parent_id, step).filter(status__in=done).order_by("-element_index")[:limit])


def rollback_failures(parent_id: UUID, step: str) -> list[RollbackFailure]:
    """What of the units of a step could not be undone, those of the last one first."""
    failed = _rows(parent_id, step).filter(status=ExecutionStatus.FAILED.value).order_by("-element_index")
    failures = (unit.why_failed for unit in failed.only("failure").iterator(chunk_size=500))
    return [each for failure in failures if failure is not None for each in failure.rollback_failures]


def left_undone(root_id: UUID) -> list[tuple[Execution, Failure]]:
    """Units whose own rollback is incomplete, listed so by the steps of this tree that handed them off; each with its failure."""
    using = clock.alias()
    runs = StepRun.objects.using(using).filter(execution__root=root_id, rollback_failure__has_key="entries")
    failed = {"status": ExecutionStatus.FAILED.value, "root_id": F("id")}
    units = [
        unit
        for execution_id, step in runs.values_list("execution_id", "step")
        for unit in Execution.objects.using(using).filter(parent_id=execution_id, parent_step=step, **failed)
    ]
    found = ((unit, unit.why_failed) for unit in units)
    return [(unit, failure) for unit, failure in found if failure is not None and failure.is_incomplete]


def parked(ids: Collection[UUID]) -> list[Execution]:
    """Those of these executions that are parked. One query."""
    rows = Execution.objects.using(clock.alias()).filter(pk__in=list(ids), status=ExecutionStatus.PARKED.value)
    return list(rows.only("id", "park_kind", "waiting_on", "queue", "updated_at"))


def begun_of_step(parent_id: UUID, step: str, limit: int = 100) -> list[Execution]:
    """The executions that a step handed off and that are under way or parked now, in the order of their elements."""
    rows = _rows(parent_id, step).filter(status__in=[ExecutionStatus.PARKED.value, ExecutionStatus.RUNNING.value])
    return list(rows.only("id", "label").order_by("element_index", "id")[:limit])


def _of_either_kind(parent_id: UUID, step: str) -> QuerySet[Execution]:
    """What a step dispatched, and the elements that ran in its own tree."""
    return Execution.objects.using(clock.alias()).filter(parent_id=parent_id, parent_step=step)


def _rows(parent_id: UUID, step: str) -> QuerySet[Execution]:
    return _of_either_kind(parent_id, step).filter(root_id=F("id"))
