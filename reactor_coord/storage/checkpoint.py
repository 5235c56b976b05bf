"""Writing what a run has come to: one transaction, and only under the lease of its root.

`save` and `park` take a `Batch`. On PostgreSQL it is one statement (`sql/checkpoint_postgresql.sql`), elsewhere a short
transaction. Inside an open transaction (an atomic step's) both join it. The caller publishes and sends after the commit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils import timezone

from reactor_coord.errors import LeaseLost
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.storage import clock
from reactor_coord.storage.columns import execution_changes, row_values

_STEP_RUN_KEY = ("execution", "step")
_STEP_RUN_COLUMNS = tuple(
    each.name for each in StepRun._meta.concrete_fields if not each.primary_key and each.name not in _STEP_RUN_KEY
)


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
    """Like `save`, and let go of the lease. True when a wake came in meanwhile: the caller sends the message after commit.

    The mark of that wake is cleared in the same transaction, so it is answered once. A wake that comes later finds the
    row without a lease and claims it.
    """
    return _write(root_id, token, batch, parking=True).wake_pending


def _write(root_id: UUID, token: str, batch: Batch, *, parking: bool) -> Saved:
    present = timezone.now()
    changes = {each: execution_changes(columns, present) for each, columns in batch.executions.items()}
    root_changes = changes.pop(root_id, None) or execution_changes({}, present)
    if parking:
        root_changes |= {"lease_token": "", "lease_expires_at": None}
    return _write_with_orm(root_id, token, batch, root_changes, changes, parking=parking)


def _write_with_orm(
    root_id: UUID,
    token: str,
    batch: Batch,
    root_changes: Mapping[str, Any],
    changes: Mapping[UUID, Mapping[str, Any]],
    *,
    parking: bool,
) -> Saved:
    using = clock.alias()
    rows = Execution.objects.using(using)
    # The first statement writes: SQLite then never has to upgrade a read to a write, which it may refuse.
    with transaction.atomic(using=using):
        if not rows.filter(pk=root_id, lease_token=token).update(**root_changes):
            raise _lease_lost(root_id, token)
        cancel_requested, wake_pending = rows.values_list("cancel_requested", "wake_requested").get(pk=root_id)
        if parking and wake_pending:
            rows.filter(pk=root_id).update(wake_requested=False)
        for execution_id, columns in changes.items():
            rows.filter(pk=execution_id).update(**columns)
        insert_executions(using, batch.new_executions)
        upsert_step_runs(using, batch.step_runs)
        insert_trace(using, batch.trace)
    return Saved(cancel_requested, wake_pending)


def _lease_lost(root_id: UUID, token: str) -> LeaseLost:
    return LeaseLost(execution_id=str(root_id), token=token)


def insert_executions(using: str, executions: list[Execution]) -> None:
    """Insert new rows, parents before children, each with its root named."""
    for each in executions:
        each.root_id = each.root_id or each.pk
        for name, value in row_values(each).items():
            setattr(each, name, value)
    Execution.objects.using(using).bulk_create(executions)


def latest(step_runs: list[StepRun]) -> list[StepRun]:
    """One row a step: the last one given. A statement may not touch a row twice."""
    return list({(each.execution_id, each.step): each for each in step_runs}.values())


def upsert_step_runs(using: str, step_runs: list[StepRun]) -> None:
    """Insert or overwrite by (execution, step). The given objects keep the primary key they have, or none."""
    # Copies without a key: one that came from the database would conflict on the key, not on (execution, step).
    copies = [StepRun(**row_values(each, without=frozenset({"id"}))) for each in latest(step_runs)]
    if copies:
        StepRun.objects.using(using).bulk_create(
            copies, update_conflicts=True, unique_fields=list(_STEP_RUN_KEY), update_fields=list(_STEP_RUN_COLUMNS)
        )


def insert_trace(using: str, trace: list[TraceEvent]) -> None:
    """Append the events in the order given."""
    for each in trace:
        for name, value in row_values(each).items():
            setattr(each, name, value)
    TraceEvent.objects.using(using).bulk_create(trace)
