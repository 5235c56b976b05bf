"""Run enqueued work in this process: no Celery, no broker, the same runner and the same rows."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime

from django.db.models import F, QuerySet

from reactor_coord.engine.states import ExecutionStatus
from reactor_coord.models import Execution
from reactor_coord.storage import clock
from reactor_coord.testing import dispatches

_WAITING = (ExecutionStatus.PARKED, ExecutionStatus.ROLLING_BACK)


def drain(timeout: float = 0.0, *, worker: str = "testing.drain") -> list[Execution]:
    """Run whatever is ready, due or was woken, until nothing is; the rows it ran, as they are now, in order.

    Executions run one after the other. What is parked for later (a retry's delay, somebody else's hold) is waited for up
    to `timeout` seconds in all, then left parked; look at its row. A `countdown` is not waited for.
    """
    from reactor_coord.runtime import deliver

    deadline = time.monotonic() + timeout
    ran: dict[str, None] = {}
    seen: dict[str, datetime] = {}
    while True:
        runnable = [row for row in _runnable() if seen.get(str(row.pk)) != row.updated_at]
        for row in runnable:
            seen[str(row.pk)] = row.updated_at
            deliver(str(row.pk), worker)
            ran[str(row.pk)] = None
        if not runnable:
            pause = _seconds_until_due()
            if pause is None or time.monotonic() + pause > deadline:
                break
            time.sleep(pause)
    return _rows(ran)


def _runnable() -> list[Execution]:
    # A message with a countdown wakes nobody: its row says itself when it is due.
    woken = {dispatch.execution_id for dispatch in dispatches.captured.take() if not dispatch.countdown}
    now = clock.present()
    return [row for row in _free() if str(row.pk) in woken or _due_at(row) <= now]


def _due_at(row: Execution) -> datetime:
    """When it wants to be looked at. What a parked row waits until may be sooner than when the sweep would look."""
    if row.status == ExecutionStatus.READY or row.resume_at is None:
        return row.created_at
    until = row.waits_on.until if row.waits_on is not None else None
    return min(row.resume_at, until) if until is not None else row.resume_at


def _seconds_until_due() -> float | None:
    """Until the next parked one is due; None when none is parked."""
    now = clock.present()
    return min((max(0.01, (_due_at(row) - now).total_seconds()) for row in _free()), default=None)


def _free() -> QuerySet[Execution]:
    free = Execution.objects.filter(root_id=F("id"), lease_token="", status__in=(ExecutionStatus.READY, *_WAITING))
    # An element of a fan-out that has not been let begin is due at no time: its owner, or one that ends, lets it.
    return free.exclude(status=ExecutionStatus.READY, resume_at=None, started_at=None).order_by("id")


def _rows(ids: Iterable[str]) -> list[Execution]:
    found = {str(row.pk): row for row in Execution.objects.filter(pk__in=list(ids))}
    return [found[each] for each in ids if each in found]
