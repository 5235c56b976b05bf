"""The operations on rows, in one place: start, claim, checkpoint, park, sweep, and what operators and readers need.

All of them go to the database that the project's routers name for `Execution`; a transaction open there is joined. What
callers send or publish afterwards belongs into `on_commit`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction
from django.db.models import Q

from reactor_coord.conf import settings
from reactor_coord.engine import transitions
from reactor_coord.engine.delays import message_grace
from reactor_coord.engine.states import TERMINAL, ExecutionStatus, Mode, StepStatus
from reactor_coord.engine.step_transitions import StepMove
from reactor_coord.errors import LeaseLost
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.models.choices import values
from reactor_coord.storage import clock, governing
from reactor_coord.storage.checkpoint import Batch, Saved, insert_trace, park, save
from reactor_coord.storage.clock import alias
from reactor_coord.storage.columns import execution_changes, row_values
from reactor_coord.storage.ids import uuid7
from reactor_coord.storage.leases import claim, renew, request_wake
from reactor_coord.storage.sweeping import (
    Due,
    LostLease,
    abort_children,
    due,
    expired_leases,
    give_back,
    give_up,
    look_by,
    mark_lost,
    push_look,
)
from reactor_coord.storage.transitions import apply, apply_to_steps, move_step, moved

__all__ = [
    "Batch",
    "Due",
    "LostLease",
    "NewExecution",
    "Saved",
    "abort_children",
    "alias",
    "apply",
    "atomic",
    "claim",
    "create",
    "due",
    "expired_leases",
    "give_back",
    "give_up",
    "load",
    "load_tree",
    "look_by",
    "mark_lost",
    "move_step",
    "moved",
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
    trace_context: Mapping[str, str] = field(default_factory=dict)
    idempotency_key: str | None = None
    id: UUID = field(default_factory=uuid7)
    root_id: UUID | None = None
    parent_id: UUID | None = None
    parent_step: str = ""
    element_index: int | None = None
    status: str = ExecutionStatus.READY.value
    resume_at: datetime | None = None
    worker: str = ""
    first_step: str = ""
    """The step that begins first."""


def create(new: NewExecution) -> tuple[Execution, bool]:
    """Insert it, or find the one that was started with the same idempotency key; the flag says whether it is new.

    A ready one is due for the sweep two sweep intervals from now, unless `resume_at` says otherwise: its message, sent
    after commit, usually comes long before. With a transaction open on another database only, it is inserted by that one's
    commit.
    """
    using = clock.alias()
    execution = _row(new)
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


def _row(new: NewExecution) -> Execution:
    if new.idempotency_key is not None and len(new.idempotency_key) > 255:
        raise ValueError(f"An idempotency key has at most 255 characters; this one has {len(new.idempotency_key)}.")
    row = Execution(
        id=new.id,
        reactor=new.reactor,
        label=new.label,
        fingerprint=new.fingerprint,
        inputs=dict(new.inputs),
        mode=str(new.mode),
        queue=new.queue or "",
        tags=dict(new.tags),
        trace_context=dict(new.trace_context),
        idempotency_key=new.idempotency_key,
        root_id=new.root_id or new.id,
        parent_id=new.parent_id,
        parent_step=new.parent_step,
        element_index=new.element_index,
        status=str(new.status),
        resume_at=new.resume_at,
        current_step=f"{new.id}/{new.first_step}" if new.first_step else "",
    )
    if new.worker:
        lease_ends = clock.present() + timedelta(seconds=settings().LEASE_TTL)
        moved(row, transitions.claim(uuid4().hex, lease_ends, new.worker))
        row.resume_at = None
    elif row.resume_at is None and new.status == ExecutionStatus.READY:
        row.resume_at = clock.present() + timedelta(seconds=message_grace(settings().SWEEP_INTERVAL))
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


def request_cancel(
    execution_id: UUID | str, *, reason: str = "", as_it_stands: bool = False, trace: list[TraceEvent] | None = None
) -> bool:
    """Ask for it to be cancelled; the process that runs it reads that at its next checkpoint. False when it is over.

    `as_it_stands`: nothing is to be undone. Asked again, that counts which was asked last, and a reason that is left out stays.
    """
    using = clock.alias()
    asked: dict[str, Any] = {"cancel_requested": True, "cancel_as_it_stands": as_it_stands}
    asked |= {"cancel_reason": reason} if reason else {}
    columns = execution_changes(asked, clock.present())
    alive = Execution.objects.using(using).filter(pk=execution_id).exclude(status__in=values(TERMINAL))
    with transaction.atomic(using=using):
        if not alive.update(**columns):
            return False
        insert_trace(using, trace or [])
    return True


def cancellation(execution_id: UUID) -> tuple[str, bool]:
    """Why it is to be cancelled, and whether as it stands, by its row now."""
    rows = Execution.objects.using(clock.alias()).filter(pk=execution_id)
    return rows.values_list("cancel_reason", "cancel_as_it_stands").first() or ("", False)


def reopen_undos(root_id: UUID | str) -> int:
    """Have an incomplete rollback's failed cleanups tried again: they become what they were before it. Answers how many.

    A step with work below it that was cancelled half-way is looked through again, too; one that never began stays as it is.
    """
    using = clock.alias()
    runs = StepRun.objects.using(using).filter(execution__root=UUID(str(root_id)))
    never_began = Q(status=StepStatus.CANCELLED, rollback_failure__isnull=True, kind__in=("step", "interrupt"))
    reopened = apply_to_steps(runs.exclude(never_began), StepMove.REOPEN, rollback_failure=None)
    return reopened + runs.filter(rollback_failure__isnull=False).update(rollback_failure=None)


def rename_step(root: Execution, token: str, execution_id: UUID, before: str, now: str) -> None:
    """Give the rows of a step the name that it has now, in one transaction; `root` says so by then, too. Raises `LeaseLost`."""
    using, path, new_path = clock.alias(), f"{execution_id}/{before}", f"{execution_id}/{now}"
    columns: dict[str, Any] = {}
    waits_on = root.waits_on
    if waits_on is not None and waits_on.path == path:
        columns["waiting_on"] = replace(waits_on, path=new_path, step=now).to_json()
    if any(each.path == path for each in root.parked_holds):
        kept = [replace(each, path=new_path, step=now) if each.path == path else each for each in root.parked_holds]
        columns["holds_kept"] = [each.to_json() for each in kept]
    if root.current_step == path:
        columns["current_step"] = new_path
    with transaction.atomic(using=using):
        leased = Execution.objects.using(using).filter(pk=root.pk, lease_token=token)
        if not leased.update(**execution_changes(columns, clock.present())):
            raise LeaseLost(execution_id=str(root.pk), token=token)
        runs = StepRun.objects.using(using).filter(execution_id=execution_id, step=before)
        runs.filter(first_name="").update(first_name=before)
        runs.update(step=now)
        Execution.objects.using(using).filter(parent_id=execution_id, parent_step=before).update(parent_step=now)
    for name, value in columns.items():
        setattr(root, name, value)


def close_undos(root_id: UUID | str) -> int:
    """Count an incomplete rollback's failed cleanups as dealt with: what they left stays as it is. Answers how many."""
    runs = StepRun.objects.using(clock.alias()).filter(execution__root=UUID(str(root_id)))
    return runs.filter(rollback_failure__isnull=False).update(rollback_failure=None)


PRUNED_AT_ONCE = 50
"""Trees deleted in one transaction: what is below them is read with its payloads, for the receivers of its deletion."""


def prune(before: datetime, limit: int = 500) -> int:
    """Delete trees that ended before then, with their step runs and traces. Returns how many; call again while it is `limit`."""
    using = clock.alias()
    ended = Execution.objects.using(using).filter(
        status__in=values(TERMINAL), finished_at__lt=before, parent__isnull=True
    )
    doomed = list(ended.order_by("finished_at").values_list("id", flat=True)[:limit])
    for start in range(0, len(doomed), PRUNED_AT_ONCE):
        Execution.objects.using(using).filter(id__in=doomed[start : start + PRUNED_AT_ONCE]).delete()
    return len(doomed)
