"""Executions as rows of a list: those somebody started, newest first, without their payloads, and what each waits on."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q, QuerySet

from reactor_coord.engine.records import Wait
from reactor_coord.engine.states import ExecutionStatus
from reactor_coord.models import Execution, StepRun
from reactor_coord.storage import pauses

from . import live
from .shapes import ExecutionSummary, HolderView, HoldRow, Live, WaitView

LIST_COLUMNS = (
    "id",
    "reactor",
    "label",
    "status",
    "mode",
    "queue",
    "idempotency_key",
    "tags",
    "reason",
    "cancel_as_it_stands",
    "waiting_on",
    "park_kind",
    "resume_at",
    "root_id",
    "parent_id",
    "parent_step",
    "element_index",
    "created_at",
    "admitted_at",
    "started_at",
    "finished_at",
)


FAR_YEAR = 9000
"""From this year on a time means never."""


def roots() -> Q:
    """Executions that run by themselves: started by somebody, or units handed to a worker of their own."""
    return Q(parent__isnull=True) | Q(root_id=F("pk"))


def started() -> Q:
    """Executions that somebody started: neither composed by another, nor a unit of one."""
    return Q(parent__isnull=True)


def listing(queryset: QuerySet[Execution] | None = None, *, started_only: bool = True) -> QuerySet[Execution]:
    """Executions that somebody started, newest first, without payloads; narrow it further as a surface needs.

    `started_only=False`: those that others composed or dispatched as well.
    """
    rows = Execution.objects.all() if queryset is None else queryset
    rows = rows.filter(started()) if started_only else rows
    incomplete = StepRun.objects.filter(execution__root_id=OuterRef("pk"), rollback_failure__isnull=False)
    return rows.only(*LIST_COLUMNS).annotate(rollback_incomplete=Exists(incomplete)).order_by("-id")


SEARCHED = 100
"""Questions of one name that a search looks at, the newest of them."""


def asking_under(correlation_id: str) -> set[UUID]:
    """The executions that ask, or asked, a question of this name, with all that they are a part of: a search finds them all.

    One query, by the index of names, and one more for each level above.
    """
    if not pauses.is_name(correlation_id):
        return set()
    asking = StepRun.objects.filter(correlation_id=correlation_id).order_by("-pk")
    found: set[UUID] = set()
    level = set(asking.values_list("execution_id", flat=True)[:SEARCHED])
    while level:
        found |= level
        above = Execution.objects.filter(pk__in=level, parent__isnull=False).values_list("parent_id", flat=True)
        level = {each for each in above if each is not None} - found
    return found


def listing_one(execution_id: UUID) -> Execution:
    """One execution as `listing` has it, nested ones too."""
    incomplete = StepRun.objects.filter(execution__root_id=OuterRef("pk"), rollback_failure__isnull=False)
    return Execution.objects.only(*LIST_COLUMNS).annotate(rollback_incomplete=Exists(incomplete)).get(pk=execution_id)


def summary(row: Execution, holders: Live[HoldRow] | None = None) -> ExecutionSummary:
    """One execution as a row of a list."""
    incomplete = bool(getattr(row, "rollback_incomplete", False))
    return ExecutionSummary(
        id=str(row.id),
        reactor=row.reactor,
        label=row.label or row.reactor.rsplit(".", 1)[-1],
        status=str(row.status),
        status_label=status_label(row.status, row.park_kind, incomplete=incomplete),
        mode=row.mode,
        queue=row.queue or "",
        idempotency_key=row.idempotency_key or "",
        tags=row.tags or {},
        reason=row.reason or "",
        waits_on=wait_of(row, holders),
        parent=str(row.parent_id or ""),
        parent_step=row.parent_step or "",
        element_index=row.element_index,
        root=str(row.root_id or row.id),
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        cancel_as_it_stands=row.cancel_as_it_stands,
    )


def status_label(status: str, park_kind: str | None = "", *, incomplete: bool = False) -> str:
    """The status in the words people read: `failed (rollback incomplete)`, `parked (retry)`."""
    words = str(status).replace("_", " ")
    if status == ExecutionStatus.FAILED and incomplete:
        return f"{words} (rollback incomplete)"
    return f"{words} ({park_kind.replace('_', ' ')})" if status == ExecutionStatus.PARKED and park_kind else words


def wait_of(row: Execution, holders: Live[HoldRow] | None = None) -> WaitView | None:
    """What a parked or paused execution waits on: live where `holders` is given, as the row recorded it otherwise."""
    if row.status not in (ExecutionStatus.PARKED, ExecutionStatus.PAUSED):
        return None
    recorded = row.waits_on or Wait()
    wait = WaitView(
        kind=row.park_kind or "",
        step=recorded.step,
        path=_path(row, recorded),
        execution=_waiting_execution(row, recorded),
        reactor=recorded.reactor,
        primitive=recorded.primitive,
        key=recorded.key,
        keys=recorded.keys,
        holder=recorded_holder(recorded),
        place=recorded.place or None,
        waiting=recorded.waiting or None,
        attempts=recorded.attempts,
        since=recorded.since,
        next_check=_next_check(row, recorded),
    )
    return with_live_holder(wait, holders)


def _next_check(row: Execution, recorded: Wait) -> dt.datetime | None:
    """None for a question that waits for as long as it takes: its `until` is the end of time."""
    until = recorded.until or row.resume_at
    return None if until is not None and until.year >= FAR_YEAR else until


def with_live_holder(wait: WaitView, holders: Live[HoldRow] | None) -> WaitView:
    """The same wait with the holder Redis names now; none when the key is free by now."""
    if holders is None or holders.notice or wait.primitive not in live.PRIMITIVES:
        return wait
    hold = next((each for each in holders.rows if each.key == wait.key and each.primitive == wait.primitive), None)
    if hold is None:
        return wait if holders.truncated else replace(wait, holder=None, live=True)
    return replace(wait, holder=live.holder_of(hold), waiting=hold.waiting or None, live=True)


def with_live_place(wait: WaitView | None, root: str) -> WaitView | None:
    """The same wait with its place in line as Redis has it: one look at one line."""
    if wait is None or wait.primitive not in live.PRIMITIVES:
        return wait
    line = live.line(wait.key, wait.primitive)
    if line.notice:
        return wait
    place = next((each.place for each in line.rows if root in (each.owner, each.execution)), None)
    return replace(wait, place=place, waiting=len(line.rows) or None)


def recorded_holder(recorded: Wait) -> HolderView | None:
    """The holder as the refusal wrote it down."""
    words, execution = recorded.holder, recorded.holder_execution
    if not words and not execution:
        return None
    return HolderView(owner=execution, execution=execution, live=False, recorded=words)


def _waiting_execution(row: Execution, recorded: Wait) -> str:
    """The id of the execution of the tree that stands in the line: the root records the wait of any of them."""
    return recorded.execution or str(row.pk)


def _path(row: Execution, recorded: Wait) -> str:
    if _waiting_execution(row, recorded) == str(row.pk):
        return recorded.step
    return ".".join(part for part in (recorded.reactor, recorded.step) if part)
