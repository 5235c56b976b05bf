"""Executions as rows of a list: those somebody started, newest first, without their payloads, and what each waits on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.utils.dateparse import parse_datetime

from reactor_coord.engine.states import ExecutionStatus
from reactor_coord.models import Execution, StepRun

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
    recorded: Mapping[str, Any] = row.waiting_on or {}
    wait = WaitView(
        kind=row.park_kind or "",
        step=str(recorded.get("step") or ""),
        path=_path(row, recorded),
        execution=_waiting_execution(row, recorded),
        reactor=str(recorded.get("reactor") or ""),
        primitive=str(recorded.get("primitive") or ""),
        key=str(recorded.get("key") or ""),
        keys=tuple(str(each) for each in recorded.get("keys") or ()),
        holder=recorded_holder(recorded),
        place=recorded.get("place") or None,
        waiting=recorded.get("waiting") or None,
        attempts=int(recorded.get("attempts") or 0),
        since=moment(recorded.get("since")),
        next_check=_next_check(row, recorded),
    )
    return with_live_holder(wait, holders)


def _next_check(row: Execution, recorded: Mapping[str, Any]) -> dt.datetime | None:
    """None for a question that waits for as long as it takes: its `until` is the end of time."""
    until = moment(recorded.get("until")) or row.resume_at
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


def recorded_holder(recorded: Mapping[str, Any]) -> HolderView | None:
    """The holder as the refusal wrote it down."""
    words, execution = str(recorded.get("holder") or ""), str(recorded.get("holder_execution") or "")
    if not words and not execution:
        return None
    return HolderView(owner=execution, execution=execution, live=False, recorded=words)


def moment(recorded: Any) -> dt.datetime | None:
    """A time as JSON carries it: an ISO text, or Unix seconds."""
    if isinstance(recorded, (int, float)) and not isinstance(recorded, bool):
        return live.instant(float(recorded))
    found = parse_datetime(recorded) if isinstance(recorded, str) else None
    return found.replace(tzinfo=dt.UTC) if found is not None and found.tzinfo is None else found


def _waiting_execution(row: Execution, recorded: Mapping[str, Any]) -> str:
    """`waiting_on.path` is `<execution>/<step>`: the execution of the tree that stands in the line."""
    return str(recorded.get("path") or "").rpartition("/")[0] or str(row.pk)


def _path(row: Execution, recorded: Mapping[str, Any]) -> str:
    step = str(recorded.get("step") or "")
    if _waiting_execution(row, recorded) == str(row.pk):
        return step
    return ".".join(part for part in (str(recorded.get("reactor") or ""), step) if part)
