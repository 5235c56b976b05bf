"""Rows to begin with, and threads that act at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from django.db import connections
from django.utils import timezone

from reactor_coord.engine import transitions
from reactor_coord.engine.records import Wait
from reactor_coord.engine.states import EventKind, ParkKind, StepStatus
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.storage import store

T = TypeVar("T")


def ready(**given: Any) -> Execution:
    """A new execution that nobody has claimed."""
    return store.create(store.NewExecution(**{"reactor": "payments.reactors.Payment", "label": "Payment", **given}))[0]


def running(**given: Any) -> Execution:
    """An execution under a fresh lease."""
    claimed = store.claim(ready(**given).id, worker="w1")
    assert claimed is not None
    return claimed


def expire(execution: Execution) -> None:
    """Let its lease be over."""
    Execution.objects.filter(pk=execution.pk).update(lease_expires_at=timezone.now() - timedelta(seconds=1))


def step(execution: Execution, name: str = "charge", **columns: Any) -> StepRun:
    """A step run to be written."""
    return StepRun(execution=execution, step=name, **{"status": StepStatus.SUCCEEDED, **columns})


def event(execution: Execution, kind: EventKind = EventKind.ACQUIRED, **columns: Any) -> TraceEvent:
    """A trace row to be written."""
    return TraceEvent(
        root_id=execution.root_id or execution.pk, execution=execution, at=timezone.now(), kind=kind, **columns
    )


def completed(result: Any = None) -> dict[str, Any]:
    """The columns of a running execution that completes."""
    return transitions.complete(timezone.now(), result).changes("running")


def columns_of_park(**columns: Any) -> dict[str, Any]:
    """The columns of a running execution that parks."""
    return {**transitions.park(ParkKind.CONTENTION, Wait(), timezone.now(), ()).changes("running"), **columns}


def child_of(parent: Execution, step_name: str = "compose") -> Execution:
    """A composed child to be written."""
    return Execution(
        reactor="payments.reactors.Audit",
        root_id=parent.root_id,
        parent_id=parent.pk,
        parent_step=step_name,
        status="running",
    )


def fresh(execution: Execution | UUID) -> Execution:
    """The row as it is now."""
    return Execution.objects.get(pk=execution.pk if isinstance(execution, Execution) else execution)


def at_once(count: int, act: Callable[[int], T]) -> list[T]:
    """What `act` gave in each of `count` threads that began together. Each has its own connection."""
    barrier = threading.Barrier(count)
    answers: list[T] = []
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            barrier.wait(30)
            answers.append(act(number))
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors, errors
    return answers
