"""What the sweep looks for: leases that ran out, and rows that are due and that nobody has taken up.

Every change is conditional on what was seen, so that any number of sweepers act once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F

from reactor_coord.engine.states import EventKind, ExecutionStatus, Mode
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.models.execution import CLAIMABLE
from reactor_coord.storage import clock
from reactor_coord.storage.checkpoint import insert_trace


@dataclass(frozen=True, slots=True)
class LostLease:
    """A row whose worker has not renewed its lease in time."""

    id: UUID
    token: str
    mode: str
    status: str
    reactor: str
    worker: str
    queue: str


@dataclass(frozen=True, slots=True)
class Due:
    """A row that may be claimed and whose time has come, or comes within the interval looked ahead."""

    id: UUID
    queue: str
    resume_at: datetime
    status: str
    looks: int
    reactor: str


def expired_leases(limit: int = 200) -> list[LostLease]:
    """Rows whose lease is over, the longest dead first."""
    using = clock.alias()
    rows = Execution.objects.using(using).exclude(lease_token="").filter(lease_expires_at__lt=clock.now(using))
    columns = rows.order_by("lease_expires_at").values_list(
        "id", "lease_token", "mode", "status", "reactor", "worker", "queue"
    )
    return [LostLease(*each) for each in columns[:limit]]


def mark_lost(lost: LostLease, *, resume_inline: bool = False) -> bool:
    """Take the dead worker's lease away, once. False when it came back to life, or another sweeper was first.

    In a worker's mode, or with `resume_inline` (a reactor whose `on_crash` is `"resume"`), the row becomes claimable and due
    now, with one worker lost on its account. An in-process one is `aborted`, and left to the operator.
    """
    using = clock.alias()
    aborting = lost.mode == Mode.INLINE.value and not resume_inline
    still_lost = Execution.objects.using(using).filter(
        pk=lost.id, lease_token=lost.token, lease_expires_at__lt=clock.now(using)
    )
    with transaction.atomic(using=using):
        if not still_lost.update(**_after_loss(using, lost.status, aborting=aborting)):
            return False
        _settle_children(using, lost.id, aborting=aborting)
        insert_trace(using, _loss_events(lost, aborting=aborting))
    return True


def _after_loss(using: str, status: str, *, aborting: bool) -> dict[str, Any]:
    present = clock.now(using)
    changes: dict[str, Any] = {
        "lease_token": "",
        "lease_expires_at": None,
        "workers_lost": F("workers_lost") + 1,
        "updated_at": present,
    }
    if aborting:
        return changes | {"status": ExecutionStatus.ABORTED.value, "finished_at": present, "resume_at": None}
    if status == ExecutionStatus.RUNNING.value:
        changes["status"] = ExecutionStatus.READY.value
    return changes | {"mode": Mode.WORKER.value, "resume_at": present, "looks": 0}


def _settle_children(using: str, root_id: UUID, *, aborting: bool) -> None:
    """No child may say `running` when nobody runs its root."""
    if aborting:
        abort_children(root_id)
    else:
        children = Execution.objects.using(using).filter(root_id=root_id).exclude(pk=root_id)
        children.filter(status=ExecutionStatus.RUNNING.value).update(status=ExecutionStatus.READY.value)


def abort_children(root_id: UUID) -> int:
    """End the children that are not over: nobody goes on with them."""
    using = clock.alias()
    children = Execution.objects.using(using).filter(root_id=root_id).exclude(pk=root_id)
    active = children.filter(status__in=[*CLAIMABLE, ExecutionStatus.RUNNING.value, ExecutionStatus.PAUSED.value])
    return active.update(status=ExecutionStatus.ABORTED.value, finished_at=clock.now(using))


def _loss_events(lost: LostLease, *, aborting: bool) -> list[TraceEvent]:
    kinds = [EventKind.WORKER_LOST, *([EventKind.ABORTED] if aborting else [])]
    return [
        TraceEvent(
            root_id=lost.id, execution_id=lost.id, at=clock.present(), kind=kind.value, data={"worker": lost.worker}
        )
        for kind in kinds
    ]


def due(ahead: float = 0.0, limit: int = 500) -> list[Due]:
    """Claimable rows due within `ahead` seconds, the most overdue first."""
    using = clock.alias()
    rows = Execution.objects.using(using).filter(
        status__in=CLAIMABLE, lease_token="", resume_at__lte=clock.now(using, plus=ahead)
    )
    columns = rows.order_by("resume_at").values_list("id", "queue", "resume_at", "status", "looks", "reactor")
    found: list[Any] = list(columns[:limit])
    return [Due(*each) for each in found]


def push_look(seen: Due, after: float) -> bool:
    """Note that a message is sent for this row, and that the next look is `after` seconds past its due time, or past now.

    True for the one sweeper that is to send it. A claim sets the count of looks back to none.
    """
    using = clock.alias()
    present = clock.present()
    unchanged = Execution.objects.using(using).filter(
        pk=seen.id, status__in=CLAIMABLE, lease_token="", looks=seen.looks, resume_at=seen.resume_at
    )
    next_look = max(seen.resume_at, present) + timedelta(seconds=after)
    return bool(unchanged.update(looks=F("looks") + 1, resume_at=next_look))
