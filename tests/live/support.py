"""What the live cases ask about executions: their trace, their waiting, their keys. Every wait is for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, TypeVar

from celery import current_app

from reactor_coord.coordination import inspect, locks
from reactor_coord.coordination.types import Refused, Requester
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.runtime.outcome import ExecutionHandle, Outcome
from tests.support.patience import patience

T = TypeVar("T")


def until(found: Callable[[], T | None], what: str, timeout: float = 10.0) -> T:
    """Poll until `found()` is truthy and return it. `timeout` is that of an idle machine, here and below."""
    timeout = patience(timeout)
    deadline = time.monotonic() + timeout
    while not (result := found()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.01)
    return result


def row(handle: ExecutionHandle) -> Execution:
    """The execution as it is now."""
    return handle.execution


def wait_parked(handle: ExecutionHandle, timeout: float = 10.0) -> Execution:
    """Wait until it is parked; its row."""
    return until(lambda: _with_status(handle, "parked"), f"{handle.id} parked", timeout)


def wait_status(handle: ExecutionHandle, status: str, timeout: float = 10.0) -> Execution:
    """Wait for that status; the row."""
    return until(lambda: _with_status(handle, status), f"{handle.id} {status}", timeout)


def _with_status(handle: ExecutionHandle, status: str) -> Execution | None:
    found = handle.execution
    return found if found.status == status else None


def wait_all(handles: Iterable[ExecutionHandle], timeout: float = 30.0) -> list[Outcome]:
    """The outcomes of all of them, within one time."""
    deadline = time.monotonic() + patience(timeout)
    return [handle.wait(max(0.1, deadline - time.monotonic())) for handle in handles]


def events(subject: ExecutionHandle | Outcome, *kinds: str, **fields: Any) -> list[TraceEvent]:
    """The trace of its whole tree in order: of these kinds, with these columns."""
    root = subject.execution.root_id or subject.execution.pk
    rows = TraceEvent.objects.filter(root_id=root, **fields).order_by("id")
    return list(rows.filter(kind__in=kinds) if kinds else rows)


def kinds(subject: ExecutionHandle | Outcome) -> list[str]:
    """The kinds of its trace, in order."""
    return [event.kind for event in events(subject)]


def step_run(subject: ExecutionHandle | Outcome, step: str) -> StepRun:
    """The one run of that step in its tree."""
    return StepRun.objects.get(execution__root_id=subject.execution.root_id, step=step)


def stamp(moment: datetime) -> float:
    """Unix seconds, to compare with the recorder's."""
    return moment.timestamp()


def wait_free(key: str, timeout: float = 5.0) -> None:
    """Wait until nobody has the key, nor is about to."""
    until(lambda: inspect.look(key).hold is None, f"{key} free", timeout)


def waiters(key: str) -> list[str]:
    """The owners in line for a key."""
    return [waiter.owner for waiter in inspect.line(key)]


def is_busy(key: str) -> bool:
    """Whether an arrival without patience is refused now; it leaves nothing behind."""
    me = Requester(owner="a passer-by", claim="a passer-by")
    answer = locks().take([key], me, ttl=5, join=False)
    if isinstance(answer, Refused):
        return True
    locks().give(answer)
    return False


def purge() -> int:
    """Throw away every message that waits in the queue; how many."""
    with current_app.connection_for_write() as connection:
        channel: Any = connection.default_channel
        return int(channel.queue_purge(current_app.conf.task_default_queue) or 0)


def purge_with_unacked() -> None:
    """Throw away what a killed worker had taken from the queue, too."""
    purge()
    with current_app.connection_for_write() as connection:
        channel: Any = connection.default_channel
        channel.client.delete("unacked", "unacked_index")


def median(numbers: Iterable[float]) -> float:
    """The middle one."""
    ordered = sorted(numbers)
    return ordered[len(ordered) // 2]
