"""Writing what a run has come to: one transaction, and only under the lease of its root.

`save` and `park` take a `Batch`. On PostgreSQL it is one statement (`sql/checkpoint_postgresql.sql`), elsewhere a short
transaction. Inside an open transaction (an atomic step's) both join it. The caller publishes and sends after the commit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from django.db import InterfaceError, OperationalError, connections, models, transaction

from reactor_coord.engine.delays import RECONNECTS
from reactor_coord.errors import LeaseLost
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.storage import clock, postgresql
from reactor_coord.storage.columns import execution_changes, row_values

_STEP_RUN_KEY = ("execution", "step")
_STEP_RUN_COLUMNS = tuple(
    each.name for each in StepRun._meta.concrete_fields if not each.primary_key and each.name not in _STEP_RUN_KEY
)

Row = TypeVar("Row", bound=models.Model)


@dataclass(slots=True)
class Batch:
    """What one checkpoint writes. `executions` are column changes by id; `step_runs` are whole rows, new or changed."""

    executions: dict[UUID, dict[str, Any]] = field(default_factory=dict)
    new_executions: list[Execution] = field(default_factory=list)
    step_runs: list[StepRun] = field(default_factory=list)
    trace: list[TraceEvent] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Saved:
    """What the root's row said when it was written: somebody wants it cancelled, somebody sent a wake meanwhile."""

    cancel_requested: bool
    wake_pending: bool


def save(root_id: UUID, token: str, batch: Batch) -> Saved:
    """Write the batch, all or nothing. Raises `LeaseLost` when `token` no longer is the root's lease; nothing is written."""
    return _write(root_id, token, batch, parking=False)


def park(root_id: UUID, token: str, batch: Batch) -> bool:
    """Like `save`, and let go of the lease. True when a wake or a cancellation came in meanwhile: the caller looks again
    after commit.

    The mark of that wake is cleared in the same transaction, so it is answered once; that of a cancellation stays for
    whoever claims the row next. A wake that comes later finds the row without a lease and claims it.
    """
    said = _write(root_id, token, batch, parking=True)
    return said.wake_pending or said.cancel_requested


def _write(root_id: UUID, token: str, batch: Batch, *, parking: bool) -> Saved:
    using = clock.alias()
    changes = _changes(root_id, batch, parking=parking)
    step_runs = _latest(batch.step_runs)
    write = postgresql.write if clock.is_postgresql(using) else _write_with_orm
    parts = (using, root_id, token, changes, batch.new_executions, step_runs, batch.trace)
    try:
        answer = write(*parts)
    except (OperationalError, InterfaceError) as error:
        if not _is_cut_off(using):
            raise
        answer = _write_again(lambda: write(*parts), using, root_id, changes[root_id]["updated_at"], error)
    if answer is None:
        raise LeaseLost(execution_id=str(root_id), token=token)
    return Saved(*answer)


def _is_cut_off(using: str) -> bool:
    """Whether the connection, and nothing that was written on it before, is what failed."""
    connection = connections[using]
    return not connection.in_atomic_block and not connection.is_usable()


def _write_again(
    write: Callable[[], tuple[bool, bool] | None], using: str, root_id: UUID, stamp: datetime, error: Exception
) -> tuple[bool, bool] | None:
    """Write on a new connection what the lost one may have written: a body must not run again because it outlived that.

    The row's `updated_at` says whether it did. Whether a wake came is not known then: a message too many does no harm.
    """
    for pause in RECONNECTS:  # the lease outlives them all
        time.sleep(pause)
        connections[using].close()
        try:
            written = Execution.objects.using(using).filter(pk=root_id, updated_at=stamp)
            cancel_requested = written.values_list("cancel_requested", flat=True).first()
            return (cancel_requested, True) if cancel_requested is not None else write()
        except (OperationalError, InterfaceError) as failure:
            error = failure
    raise error


def _changes(root_id: UUID, batch: Batch, *, parking: bool) -> dict[UUID, dict[str, Any]]:
    """The column changes of rows that are there already, the root's first; those of new rows go into the rows."""
    present = clock.present()
    changes = {root_id: execution_changes(batch.executions.get(root_id, {}), present)}
    changes |= {each: execution_changes(columns, present) for each, columns in batch.executions.items()}
    for new in batch.new_executions:
        new.root_id = new.root_id or new.pk
        for name, value in changes.pop(new.pk, {}).items():
            setattr(new, name, value)
        new.created_at = new.created_at or present
        new.updated_at = present
    if parking:
        changes[root_id] |= {"lease_token": "", "lease_expires_at": None, "wake_requested": False}
    return changes


def _latest(step_runs: list[StepRun]) -> list[StepRun]:
    # A statement may not touch a row twice: of several for one step, the last counts.
    return list({(each.execution_id, each.step): each for each in step_runs}.values())


def _write_with_orm(
    using: str,
    root_id: UUID,
    token: str,
    changes: Mapping[UUID, Mapping[str, Any]],
    new_executions: Sequence[Execution],
    step_runs: Sequence[StepRun],
    trace: Sequence[TraceEvent],
) -> tuple[bool, bool] | None:
    rows = Execution.objects.using(using)
    columns = dict(changes[root_id])
    forgets_wake = columns.pop("wake_requested", None) is False
    # The first statement writes: SQLite then never has to upgrade a read to a write, which it may refuse.
    with transaction.atomic(using=using):
        if not rows.filter(pk=root_id, lease_token=token).update(**columns):
            return None
        answer = rows.values_list("cancel_requested", "wake_requested").get(pk=root_id)
        if forgets_wake and answer[1]:
            rows.filter(pk=root_id).update(wake_requested=False)
        for execution_id, others in changes.items():
            if execution_id != root_id:
                rows.filter(pk=execution_id).update(**others)
        rows.bulk_create(_cleaned(new_executions))
        _upsert(using, step_runs)
        insert_trace(using, trace)
    return answer


def _cleaned(new: Sequence[Row]) -> list[Row]:
    return [type(each)(**row_values(each)) for each in new]


def _upsert(using: str, step_runs: Sequence[StepRun]) -> None:
    # Copies without a key: one that came from the database would conflict on the key, not on (execution, step).
    copies = [StepRun(**row_values(each, without=frozenset({"id"}))) for each in step_runs]
    if copies:
        StepRun.objects.using(using).bulk_create(
            copies, update_conflicts=True, unique_fields=list(_STEP_RUN_KEY), update_fields=list(_STEP_RUN_COLUMNS)
        )


def insert_trace(using: str, trace: Sequence[TraceEvent]) -> None:
    """Append the events in the order given."""
    TraceEvent.objects.using(using).bulk_create(_cleaned(trace))
