"""The one writer of statuses: it takes a transition of the engine's table and writes what that says, or nothing.

A row that a process runs under its lease is moved in memory (`moved`, `move_step`), and written by that process's next
checkpoint. A row that no process runs is moved by one conditional UPDATE (`apply`, `apply_all`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.db import transaction
from django.db.models import Case, QuerySet, Value, When

from reactor_coord.engine.step_transitions import STEP_TABLE, StepMove, step_target_of
from reactor_coord.engine.transitions import TABLE, Transition
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.storage import clock
from reactor_coord.storage.checkpoint import insert_trace
from reactor_coord.storage.columns import execution_changes


def moved(row: Execution, transition: Transition) -> dict[str, Any]:
    """Move a row in memory; returns the columns that the next checkpoint is to write. Raises `ImpossibleMove`."""
    changes = transition.changes(row.status)
    for name, value in changes.items():
        setattr(row, name, value)
    return changes


def apply(
    row: Execution,
    transition: Transition,
    *,
    also: Mapping[str, Any] | None = None,
    trace: Sequence[TraceEvent] = (),
    unchanged_since: datetime | None = None,
    token: str = "",
) -> bool:
    """Move a row that no process runs, if it still has the status that `row` says. One transaction, with these trace rows.

    `token`: the lease under which the caller runs the row; without one it must have none.

    `also`: columns beside those of the transition. `unchanged_since`: the `updated_at` that the caller decided by; the update
    is refused when the row was written since. Returns False when the row has been moved, claimed or written meanwhile.
    """
    using = clock.alias()
    idle = Execution.objects.using(using).filter(pk=row.pk, lease_token=token, status=row.status)
    if unchanged_since is not None:
        idle = idle.filter(updated_at=unchanged_since)
    changes = {**transition.changes(row.status), **(also or {})}
    with transaction.atomic(using=using):
        if not idle.update(**execution_changes(changes, clock.present())):
            return False
        insert_trace(using, list(trace))
    return True


def apply_all(rows: QuerySet[Execution], transition: Transition) -> int:
    """Move all rows of the query that can make the move, in one UPDATE; returns how many.

    Values may be database expressions. The caller's query says which rows may be touched: a lease is not looked at here.
    """
    table = TABLE[transition.move]
    changes = {**transition.columns_of_all(), "status": _target(table)}
    movable = rows.filter(status__in=[each.value for each in table])
    return movable.update(**execution_changes(changes, clock.present()))


def _target(table: Mapping[Any, Any]) -> Any:
    """The status that each row gets, as a value or as an expression over its present one."""
    targets = set(table.values())
    if len(targets) == 1:
        return targets.pop().value
    return Case(*(When(status=source.value, then=Value(target.value)) for source, target in table.items()))


def move_step(run: StepRun, move: StepMove) -> None:
    """Move a step run in memory; the next checkpoint writes it. Raises `ImpossibleMove`."""
    run.status = step_target_of(run.status, move)


def apply_to_steps(runs: QuerySet[StepRun], move: StepMove, **columns: Any) -> int:
    """Move all step runs of the query that can make the move, setting these columns too; returns how many."""
    table = STEP_TABLE[move]
    movable = runs.filter(status__in=[each.value for each in table])
    return movable.update(status=_target(table), **columns)
