"""Questions that executions wait to have answered: step runs of interrupts, found by correlation id, answered once."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet

from reactor_coord.engine import transitions
from reactor_coord.engine.states import ExecutionStatus, Mode, StepStatus
from reactor_coord.engine.step_transitions import StepMove
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.storage import clock
from reactor_coord.storage.checkpoint import insert_trace
from reactor_coord.storage.columns import clean_text
from reactor_coord.storage.transitions import apply_all, apply_to_steps

KIND = "interrupt"

LONGEST_NAME = 255


def is_name(correlation_id: str) -> bool:
    """Whether a question can be stored under this name as it is: neither too long nor with what no database takes."""
    return 0 < len(correlation_id) <= LONGEST_NAME and clean_text(correlation_id) == correlation_id


TAKEN_UP = (ExecutionStatus.READY, ExecutionStatus.RUNNING, ExecutionStatus.PARKED)
"""Of an execution that was paused, has no answer and is looked at, or was by a worker that is dead."""

ON_ITS_WAY = (ExecutionStatus.PAUSED, *TAKEN_UP)


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
    open_one = StepRun.objects.using(using).filter(pk=run.pk)
    paused = Execution.objects.using(using).filter(pk=root_id)
    with transaction.atomic(using=using):
        if not apply_to_steps(open_one, StepMove.ANSWER, result=payload):
            return False
        if not apply_all(paused, transitions.answer(look_at)):
            transaction.set_rollback(True, using=using)
            return False
        insert_trace(using, [note])
    return True


def leave_answer(run: StepRun, payload: Any, root_id: UUID, note: TraceEvent) -> bool:
    """Give the answer to a question whose execution a worker has taken up, living or dead: the next look finds it.

    A worker writes the row of a question that waits to end it, and to count a death that it found: while one may do that the
    answer is not left. The worker is told that it was woken; what a dead one left is a worker's to go on with. False when the
    question was answered, its execution ends, or the answer cannot be left now.
    """
    using = clock.alias()
    open_one = StepRun.objects.using(using).filter(pk=run.pk)
    looked_at = Execution.objects.using(using).filter(
        pk=root_id, status__in=[status.value for status in TAKEN_UP], cancel_requested=False
    )
    looked_at = looked_at.filter(Q(workers_lost=0) | Q(lease_token=""))
    with transaction.atomic(using=using):
        if not looked_at.update(wake_requested=True, mode=Mode.WORKER.value):
            return False
        if not apply_to_steps(open_one, StepMove.ANSWER, result=payload):
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
        if apply_all(overdue.filter(pk=identity), transitions.expire()):
            ended.append((identity, queue))
    return ended


def _open() -> QuerySet[StepRun]:
    return StepRun.objects.using(clock.alias()).filter(kind=KIND, status=StepStatus.WAITING.value)
