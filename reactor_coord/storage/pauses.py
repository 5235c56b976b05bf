"""Questions that executions wait to have answered: step runs of interrupts, found by correlation id, answered once."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from reactor_coord.engine.states import ExecutionStatus, Mode, StepStatus
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.storage import clock
from reactor_coord.storage.checkpoint import insert_trace

KIND = "interrupt"

ON_ITS_WAY = (ExecutionStatus.PAUSED, ExecutionStatus.READY, ExecutionStatus.RUNNING, ExecutionStatus.PARKED)


def find(correlation_id: str, reactor: str, step: str | None = None) -> StepRun | None:
    """The question of that name that is open, in a tree whose root is this reactor; the newest if there are several."""
    rows = _open().filter(correlation_id=correlation_id, execution__root__reactor=reactor)
    if step is not None:
        rows = rows.filter(step=step)
    return rows.select_related("execution").order_by("-id").first()


def of_tree(root_id: UUID) -> list[StepRun]:
    """The open questions of a tree."""
    return list(_open().filter(execution__root_id=root_id).select_related("execution"))


def is_waited_for(correlation_id: str, reactor: str) -> bool:
    """Whether a paused execution of this reactor waits under that name."""
    paused = _open().filter(correlation_id=correlation_id, execution__root__reactor=reactor)
    return paused.filter(execution__root__status=ExecutionStatus.PAUSED.value).exists()


def claim_answer(run: StepRun, payload: Any, root_id: UUID, look_at: datetime, note: TraceEvent) -> bool:
    """Give the answer to the question, once, and make its execution ready: one transaction. False when it was answered."""
    using = clock.alias()
    present = clock.present()
    open_one = StepRun.objects.using(using).filter(pk=run.pk, status=StepStatus.WAITING.value)
    paused = Execution.objects.using(using).filter(pk=root_id, status=ExecutionStatus.PAUSED.value)
    with transaction.atomic(using=using):
        if not open_one.update(status=StepStatus.RUNNING.value, result=payload):
            return False
        ready = paused.update(
            status=ExecutionStatus.READY.value, mode=Mode.WORKER.value, resume_at=look_at, updated_at=present
        )
        if not ready:
            transaction.set_rollback(True, using=using)
            return False
        insert_trace(using, [note])
    return True


def is_open(run: StepRun) -> bool:
    """Whether the question still waits, in an execution that is paused or may come back to its pause."""
    return _open().filter(pk=run.pk, execution__root__status__in=[status.value for status in ON_ITS_WAY]).exists()


def end_overdue(limit: int = 200) -> list[tuple[UUID, str]]:
    """Make paused executions ready whose answer did not come in time; answers id and queue of each."""
    using = clock.alias()
    overdue = Execution.objects.using(using).filter(
        status=ExecutionStatus.PAUSED.value, resume_at__lte=clock.now(using)
    )
    ended = []
    for identity, queue in list(overdue.values_list("id", "queue")[:limit]):
        if overdue.filter(pk=identity).update(status=ExecutionStatus.READY.value, mode=Mode.WORKER.value):
            ended.append((identity, queue))
    return ended


def _open() -> QuerySet[StepRun]:
    return StepRun.objects.using(clock.alias()).filter(kind=KIND, status=StepStatus.WAITING.value)
