"""What the sweep looks for: leases that ran out, and rows that are due and that nobody has taken up.

Every change is conditional on what was seen, so that any number of sweepers act once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import F, QuerySet

from reactor_coord.engine import transitions
from reactor_coord.engine.events import ExecutionAborted, ExecutionParked, WorkerLost
from reactor_coord.engine.states import ExecutionStatus, Mode, ParkKind
from reactor_coord.engine.transitions import Move, Transition
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.models.execution import CLAIMABLE
from reactor_coord.storage import clock, journal
from reactor_coord.storage.checkpoint import insert_trace
from reactor_coord.storage.transitions import apply_all


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
    label: str


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
        "id", "lease_token", "mode", "status", "reactor", "worker", "queue", "label"
    )
    return [LostLease(*each) for each in columns[:limit]]


def mark_lost(lost: LostLease, *, resume_inline: bool = False) -> bool:
    """Take the dead worker's lease away, once. False when it came back to life, or another sweeper was first.

    In a worker's mode, or with `resume_inline` (a reactor whose `on_crash` is `"resume"`), the row becomes claimable and due
    now, with one worker lost on its account. An in-process one is `aborted`, and left to the operator.
    """
    using = clock.alias()
    aborting = lost.mode == Mode.INLINE.value and not resume_inline
    expired = Execution.objects.using(using).filter(lease_expires_at__lt=clock.now(using))
    row = Execution(id=lost.id, root_id=lost.id, reactor=lost.reactor, label=lost.label, worker=lost.worker)
    return _give_up(expired, row, lost.token, aborting=aborting, reason="its process died")


def give_up(
    root: Execution,
    token: str,
    *,
    aborting: bool,
    reason: str,
    trace: Sequence[TraceEvent] = (),
    died: bool = True,
) -> bool:
    """Take the lease away from a process that says itself that it goes no further; as `mark_lost`, at once. False: it has none.

    `trace`: what the process has told since its last checkpoint. `died`: it goes down, so a body may have been cut off.
    """
    rows = Execution.objects.using(clock.alias())
    return _give_up(rows.all(), root, token, aborting=aborting, reason=reason, trace=trace, died=died)


def give_back(root: Execution, token: str, deferred: Transition, why: str) -> bool:
    """Give the lease back over an outage, for the row to be tried again at no cost. False: the process has no lease."""
    using = clock.alias()
    note = journal.note(root, ExecutionParked(park_kind=ParkKind.RETRY, held_by=why))
    with transaction.atomic(using=using):
        if not apply_all(Execution.objects.using(using).filter(pk=root.pk, lease_token=token), deferred):
            return False
        _settle_children(using, root.pk, aborting=False)
        insert_trace(using, [journal.row(note)])
    journal.publish(note)
    return True


def _give_up(
    rows: QuerySet[Execution],
    root: Execution,
    token: str,
    *,
    aborting: bool,
    reason: str,
    trace: Sequence[TraceEvent] = (),
    died: bool = True,
) -> bool:
    """Decided by what the row says: what the process that went down believed of it may never have been written."""
    using = clock.alias()
    present, losses = clock.now(using), F("workers_lost") + int(died)
    lost = transitions.abort(present, losses, reason) if aborting else transitions.lose_worker(present, losses)
    told = ExecutionAborted if aborting else WorkerLost
    with transaction.atomic(using=using):
        if not apply_all(rows.filter(pk=root.pk, lease_token=token), lost):
            return False
        ended = _settle_children(using, root.pk, aborting=aborting)
        notes = [journal.note(each, told(worker=root.worker, reason=reason)) for each in (*ended, root)]
        insert_trace(using, [*trace, *(journal.row(note) for note in notes)])
    for note in notes:
        journal.publish(note)
    return True


def _settle_children(using: str, root_id: UUID, *, aborting: bool) -> list[Execution]:
    """No child may say `running` when no process runs its root. Returns those that this ended."""
    if aborting:
        return _abort_children(using, root_id)
    children = Execution.objects.using(using).filter(root_id=root_id).exclude(pk=root_id)
    running = children.filter(status=ExecutionStatus.RUNNING.value)
    apply_all(running, transitions.follow(Move.LOSE_WORKER))
    return []


def abort_children(root_id: UUID, reason: str) -> int:
    """End the children that are not over, for nothing goes on with them, and tell it. Returns how many."""
    using = clock.alias()
    with transaction.atomic(using=using):
        notes = [journal.note(each, ExecutionAborted(reason=reason)) for each in _abort_children(using, root_id)]
        insert_trace(using, [journal.row(note) for note in notes])
    for note in notes:
        journal.publish(note)
    return len(notes)


def _abort_children(using: str, root_id: UUID) -> list[Execution]:
    """End them; returns their rows, with what a note reads of them."""
    children = Execution.objects.using(using).filter(root_id=root_id).exclude(pk=root_id)
    present = clock.now(using)
    movable = children.filter(status__in=transitions.sources_of(Move.ABORT))
    active = list(movable.only(*journal.COLUMNS).order_by("id"))
    if active:
        apply_all(children, transitions.abort_child(present))
    return active


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


def look_by(execution_id: UUID | str, moment: datetime) -> bool:
    """Have a waiting row looked at by then, where it was to be later. False when it was not, or is claimed or over."""
    waiting = Execution.objects.using(clock.alias()).filter(pk=execution_id, status__in=CLAIMABLE, lease_token="")
    return bool(waiting.filter(resume_at__gt=moment).update(resume_at=moment))
