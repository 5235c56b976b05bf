"""Assertions about executions and keys. Each failure says what was found instead.

An execution is given as what `run` or `enqueue` returned, or as its row or id. Steps are named as in their reactor; a
composed child's also by path: `"payment.charge"`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from reactor_coord.engine.states import EventKind, ExecutionStatus, StepStatus

if TYPE_CHECKING:
    from reactor_coord.coordination.inspect import HoldView
    from reactor_coord.models import Execution, TraceEvent
    from reactor_coord.runtime.outcome import ExecutionHandle, Outcome

    Subject = Outcome | ExecutionHandle | Execution | UUID | str

_ENDS = (EventKind.STEP_SUCCEEDED, EventKind.STEP_FAILED, EventKind.STEP_HALTED)


def assert_contended(subject: Subject, step: str, key: str | None = None, primitive: str | None = None) -> None:
    """The step was refused a key at least once (in a worker it parked, in process it waited or failed).

    An empty `step` is the reactor's own declarations.
    """
    events = _events(subject)
    refused = [event for event in events if event.kind == EventKind.REFUSED]
    fitting = [
        event
        for event in refused
        if step in _names(event) and key in (None, event.key) and primitive in (None, event.primitive)
    ]
    wanted = f"{step or 'the reactor'} to be refused {key or 'a key'}"
    found = [f"{event.step or 'the reactor'}: {event.primitive} {event.key}" for event in refused]
    assert fitting, f"expected {wanted}; refused were: {found or 'none'}"


def assert_ran(subject: Subject, *steps: str, after: str | None = None) -> None:
    """The bodies of these steps ran to their end or failure, in this order, all of them after that of `after`."""
    events = _events(subject)
    began = _begun(events)
    ran = [_names(event) for event in events if event.kind in _ENDS and (event.execution_id, event.step) in began]
    order = [names[-1] for names in ran]
    place = -1
    for step in (*([after] if after else []), *steps):
        places = [index for index, names in enumerate(ran) if step in names and index > place]
        assert places, f"expected {' then '.join(filter(None, (after, *steps)))}; ran, in order: {order or 'nothing'}"
        place = places[0]


def assert_rolled_back(subject: Subject, *steps: str) -> None:
    """It failed or was cancelled, every cleanup was done, and these steps (if any are named) were undone or compensated."""
    from reactor_coord.models import StepRun

    row = _row(subject)
    over = {ExecutionStatus.FAILED, ExecutionStatus.CANCELLED}
    assert row.status in over, f"expected a rolled back execution; it is {row.status}"
    runs = list(StepRun.objects.filter(execution__root_id=row.root_id))
    left = [f"{run.step}: {run.rollback_failure}" for run in runs if run.rollback_failure]
    assert not left, f"the rollback is incomplete: {'; '.join(left)}"
    cleaned = {run.step for run in runs if run.status in {StepStatus.UNDONE, StepStatus.COMPENSATED}}
    missing = [step for step in steps if step not in cleaned]
    states = ", ".join(f"{run.step} {run.status}" for run in runs)
    assert not missing, f"expected {', '.join(missing)} to be undone or compensated; step runs: {states}"


def assert_locked(key: str, by: Subject | None = None) -> None:
    """The lock on `key` is held now, by that execution's tree if one is given."""
    held = _hold(key)
    assert held is not None, f"expected {key!r} to be locked; it is free"
    if by is not None:
        owner = str(_row(by).root_id)
        assert held.owner == owner, f"expected {key!r} to be held by {owner}; it is {_described(held)}"


def assert_free(key: str) -> None:
    """Nobody holds the lock on `key`, nor has it been handed to a waiter or kept by a parked execution."""
    held = _hold(key)
    assert held is None, f"expected {key!r} to be free; it is {held and _described(held)}"


def _hold(key: str) -> HoldView | None:
    from reactor_coord.coordination import inspect

    return inspect.look(key).hold


def _described(hold: HoldView) -> str:
    where = ".".join(part for part in (hold.reactor, hold.step) if part)
    return f"{hold.state} by {hold.owner}{f' ({where})' if where else ''}, {hold.remaining:.1f} s left"


def _row(subject: Subject) -> Execution:
    from reactor_coord.models import Execution

    if isinstance(subject, Execution):
        return Execution.objects.get(pk=subject.pk)
    return Execution.objects.get(pk=subject if isinstance(subject, UUID | str) else subject.execution.pk)


def _events(subject: Subject) -> Sequence[TraceEvent]:
    """Of the execution and what is composed below it, in order."""
    from reactor_coord.models import TraceEvent

    root_id = _row(subject).root_id
    assert root_id is not None
    return list(TraceEvent.objects.filter(root_id=root_id).select_related("execution").order_by("id"))


def _begun(events: Sequence[TraceEvent]) -> set[tuple[UUID, str]]:
    """The steps whose body began at least once: a failed one need not have."""
    from reactor_coord.models import StepRun

    roots = {event.root_id for event in events}
    runs = StepRun.objects.filter(execution__root_id__in=roots, attempts__gt=0)
    return set(runs.values_list("execution_id", "step"))


def _names(event: TraceEvent) -> tuple[str, ...]:
    """The step's name, and its path from the root: `("charge", "payment.charge")`."""
    parts = [event.step]
    execution: Execution | None = event.execution
    while execution is not None and execution.parent_step:
        parts.insert(0, execution.parent_step)
        execution = execution.parent
    return (event.step, ".".join(parts))
