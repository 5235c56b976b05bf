"""The operations on rows, in one place: start, claim, checkpoint, park, sweep, and what operators and readers need.

All of them go to the database that the project's routers name for `Execution`; a transaction open there is joined. What
callers send or publish afterwards belongs into `on_commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction

from reactor_coord.conf import settings
from reactor_coord.engine.states import TERMINAL, ExecutionStatus, Mode, StepStatus
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.models.choices import values
from reactor_coord.storage import clock, governing
from reactor_coord.storage.checkpoint import Batch, Saved, insert_trace, park, save
from reactor_coord.storage.clock import alias
from reactor_coord.storage.columns import execution_changes, row_values
from reactor_coord.storage.ids import uuid7
from reactor_coord.storage.leases import claim, renew, request_wake
from reactor_coord.storage.sweeping import Due, LostLease, abort_children, due, expired_leases, mark_lost, push_look

__all__ = [
    "Batch",
    "Due",
    "LostLease",
    "NewExecution",
    "Saved",
    "abort_children",
    "alias",
    "atomic",
    "change",
    "claim",
    "create",
    "due",
    "expired_leases",
    "load",
    "load_tree",
    "mark_lost",
    "on_commit",
    "park",
    "prune",
    "push_look",
    "record",
    "renew",
    "reopen_undos",
    "request_cancel",
    "request_wake",
    "save",
    "step_runs",
    "trace",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewExecution:
    """An execution to be. `inputs` are encoded; without a root it is one.

    `worker` names the process that starts to run it at once (in-process runs): the row is inserted `running` and leased,
    which spares the claim.
    """

    reactor: str
    label: str = ""
    fingerprint: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    mode: str = Mode.WORKER.value
    queue: str = ""
    tags: Mapping[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None
    id: UUID = field(default_factory=uuid7)
    root_id: UUID | None = None
    parent_id: UUID | None = None
    parent_step: str = ""
    element_index: int | None = None
    status: str = ExecutionStatus.READY.value
    resume_at: datetime | None = None
    worker: str = ""


def create(new: NewExecution) -> tuple[Execution, bool]:
    """Insert it, or find the one that was started with the same idempotency key; the flag says whether it is new.

    A ready one is due for the sweep two sweep intervals from now, unless `resume_at` says otherwise: its message, sent
    after commit, usually comes long before. With a transaction open on another database only, it is inserted by that one's
    commit.
    """
    using = clock.alias()
    execution = _row(using, new)
    deciding = governing.database()
    if deciding != using and not new.worker:
        return _insert_when_committed(deciding, using, execution)
    return _insert(using, execution)


def _insert(using: str, execution: Execution) -> tuple[Execution, bool]:
    if execution.idempotency_key is None:
        execution.save(using=using, force_insert=True)
        return execution, True
    try:
        # Insert first, look after: looking first would race, and on SQLite turn a read into a write in mid-transaction.
        with transaction.atomic(using=using):
            execution.save(using=using, force_insert=True)
    except IntegrityError:
        found = _same_start(using, execution)
        if found is None:
            raise
        return found, False
    return execution, True


def _same_start(using: str, execution: Execution) -> Execution | None:
    same = Execution.objects.using(using).filter(
        reactor=execution.reactor, idempotency_key=execution.idempotency_key, idempotency_key__isnull=False
    )
    return same.first()


def _insert_when_committed(deciding: str, using: str, execution: Execution) -> tuple[Execution, bool]:
    found = _same_start(using, execution)
    if found is not None:
        return found, False
    # Of two starts with one key that commit at once the later finds the earlier's row, and its message finds none.
    transaction.on_commit(lambda: _insert(using, execution) and None, using=deciding)
    return execution, True


def _row(using: str, new: NewExecution) -> Execution:
    if new.idempotency_key is not None and len(new.idempotency_key) > 255:
        raise ValueError(f"An idempotency key has at most 255 characters; this one has {len(new.idempotency_key)}.")
    resume_at = new.resume_at
    if resume_at is None and new.status == ExecutionStatus.READY:
        resume_at = clock.present() + timedelta(seconds=2 * settings().SWEEP_INTERVAL)
    row = Execution(
        id=new.id,
        reactor=new.reactor,
        label=new.label,
        fingerprint=new.fingerprint,
        inputs=dict(new.inputs),
        mode=str(new.mode),
        queue=new.queue or "",
        tags=dict(new.tags),
        idempotency_key=new.idempotency_key,
        root_id=new.root_id or new.id,
        parent_id=new.parent_id,
        parent_step=new.parent_step,
        element_index=new.element_index,
        status=str(new.status),
        resume_at=resume_at,
    )
    if new.worker:
        present = clock.read(using)
        row.status = ExecutionStatus.RUNNING.value
        row.worker = new.worker
        row.lease_token = uuid4().hex
        row.lease_expires_at = present + timedelta(seconds=settings().LEASE_TTL)
        row.resume_at = None
    for name, value in row_values(row).items():
        setattr(row, name, value)
    return row


def atomic() -> AbstractContextManager[None]:
    """A transaction on the database of the rows."""
    return transaction.atomic(using=clock.alias())


def on_commit(act: Callable[[], object]) -> None:
    """Call `act` when the transaction that decides (see `governing`) commits, or at once when there is none."""
    transaction.on_commit(lambda: act() and None, using=governing.database())


def load(execution_id: UUID | str) -> Execution | None:
    """The row, or nothing."""
    return Execution.objects.using(clock.alias()).filter(pk=execution_id).first()


def load_tree(root_id: UUID | str) -> tuple[list[Execution], list[StepRun]]:
    """The root and all executions composed under it, in the order in which they began, and their step runs. Two queries."""
    using = clock.alias()
    executions = list(Execution.objects.using(using).filter(root=UUID(str(root_id))).order_by("id"))
    return executions, list(StepRun.objects.using(using).filter(execution__root=UUID(str(root_id))))


def step_runs(execution_ids: Iterable[UUID | str]) -> list[StepRun]:
    """The step runs of these executions, each execution's in the order in which they began. One query."""
    return list(StepRun.objects.using(clock.alias()).filter(execution_id__in=list(execution_ids)))


def trace(root_id: UUID | str) -> list[TraceEvent]:
    """All that happened in a tree, in order."""
    return list(TraceEvent.objects.using(clock.alias()).filter(root_id=root_id))


def record(events: list[TraceEvent]) -> None:
    """Append events that happen outside a checkpoint: what an operator did, what a keeper found lost."""
    insert_trace(clock.alias(), events)


def change(
    execution_id: UUID | str,
    *,
    expect: Collection[str],
    changes: Mapping[str, Any],
    trace: list[TraceEvent] | None = None,
    as_of: datetime | None = None,
) -> bool:
    """Change a row nobody runs, if its status is one of `expect`: the ground of every operator's verb. One transaction.

    `as_of`, the row's `updated_at`, for who decided by more than its status: it has not been run since either.
    """
    using = clock.alias()
    columns = execution_changes(changes, clock.present())
    idle = Execution.objects.using(using).filter(pk=execution_id, lease_token="", status__in=[str(s) for s in expect])
    if as_of is not None:
        idle = idle.filter(updated_at=as_of)
    with transaction.atomic(using=using):
        if not idle.update(**columns):
            return False
        insert_trace(using, trace or [])
    return True


def request_cancel(execution_id: UUID | str, *, reason: str = "", trace: list[TraceEvent] | None = None) -> bool:
    """Ask for it to be cancelled; whoever runs it reads that at its next checkpoint. False when it is over."""
    using = clock.alias()
    columns = execution_changes({"cancel_requested": True, "cancel_reason": reason}, clock.present())
    alive = Execution.objects.using(using).filter(pk=execution_id).exclude(status__in=values(TERMINAL))
    with transaction.atomic(using=using):
        if not alive.update(**columns):
            return False
        insert_trace(using, trace or [])
    return True


def reopen_undos(root_id: UUID | str) -> int:
    """Have an incomplete rollback's failed cleanups tried again: they become what they were before it. Answers how many.

    A step with work below it that was cancelled half-way is looked through again, too.
    """
    using = clock.alias()
    runs = StepRun.objects.using(using).filter(execution__root=UUID(str(root_id)))
    runs.filter(status=StepStatus.CANCELLED.value).update(status=StepStatus.FAILED.value)
    undone = runs.filter(status=StepStatus.UNDO_FAILED.value).update(
        status=StepStatus.SUCCEEDED.value, rollback_failure=None
    )
    return undone + runs.filter(rollback_failure__isnull=False).update(rollback_failure=None)


def prune(before: datetime, limit: int = 500) -> int:
    """Delete trees that ended before then, with their step runs and traces. Returns how many; call again while it is `limit`."""
    using = clock.alias()
    ended = Execution.objects.using(using).filter(
        status__in=values(TERMINAL), finished_at__lt=before, parent__isnull=True
    )
    doomed = list(ended.order_by("finished_at").values_list("id", flat=True)[:limit])
    Execution.objects.using(using).filter(id__in=doomed).delete()
    return len(doomed)
