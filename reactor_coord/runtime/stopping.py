"""Cancelling without undoing: an execution ends as it stands, with the work that it handed off; what is held goes back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from reactor_coord.engine import transitions
from reactor_coord.engine.events import Event
from reactor_coord.engine.states import ExecutionStatus, is_terminal
from reactor_coord.errors import LeaseLost, UnknownReactor
from reactor_coord.models import Execution, StepRun
from reactor_coord.runtime import finish, units
from reactor_coord.runtime.gates import Ending
from reactor_coord.storage import clock, elements, journal, stopping, store

if TYPE_CHECKING:
    from reactor_coord.runtime.tree import Tree

TRIES = 20
"""Looks at a unit that changes each time it is about to be ended."""


def stop_running(tree: Tree, reason: str) -> None:
    """End the tree that this process runs, between two steps. Raises `LeaseLost`."""
    tree.save()
    stopped = stopping.stop_tree(tree.root, reason, token=tree.lease.token)
    if stopped is None:
        raise LeaseLost(execution_id=tree.id, token=tree.lease.token)
    store.moved(tree.root, transitions.stop(clock.present(), reason))
    _publish(stopped.notes)
    _stop_units(stopped.steps, reason)
    finish.let_go(tree, Ending.FAILED)


def stop_idle(row: Execution, reason: str, asked: Sequence[Event] = (), *, since: datetime | None = None) -> bool:
    """End a tree that no process runs; False when the row was claimed or written since it was read."""
    stopped = stopping.stop_tree(row, reason, asked=asked, unchanged_since=since or row.updated_at)
    if stopped is None:
        return False
    _publish(stopped.notes)
    store.on_commit(lambda: _let_go_of(row, stopped.steps, reason))
    return True


def _let_go_of(row: Execution, steps: Iterable[StepRun], reason: str) -> None:
    finish.leave_waited(row, row.waits_on)
    finish.let_go_of_kept(row, row.parked_holds)
    if row.started_at is None:
        finish.leave_reserved(row)
    _stop_units(steps, reason)
    units.report(row)


def _publish(notes: Iterable[journal.Note]) -> None:
    for note in notes:
        journal.publish(note)


def _stop_units(steps: Iterable[StepRun], reason: str) -> None:
    """End what these steps handed off and did not detach."""
    for run in steps:
        if run.kind in HANDING_OFF and not _is_detached(run):
            units.cancel_unbegun(run.execution_id, run.step, reason)
            for unit in elements.open_of_step(run.execution_id, run.step):
                _stop_unit(unit, reason)


HANDING_OFF = frozenset({"map", "async_step", "async_reactor"})


def _is_detached(run: StepRun) -> bool:
    try:
        step = units.definition_of(run.execution.reactor).steps.get(run.step)
    except UnknownReactor:
        return False
    return step is not None and bool(step.options.get("detach"))


def _stop_unit(unit: Execution, reason: str) -> None:
    """End it at once, or have its process end it. What rolls back already goes on with that."""
    for _ in range(TRIES):
        row = store.load(unit.id)
        if row is None or is_terminal(row.status) or row.status == ExecutionStatus.ROLLING_BACK:
            return
        if row.lease_token:
            store.request_cancel(row.id, reason=reason, as_it_stands=True)
            return
        if stop_idle(row, reason):
            return
