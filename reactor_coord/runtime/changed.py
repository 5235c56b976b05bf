"""A definition that changed under an execution: what was done for its steps is matched with the steps that the code has now.

Compared at every take-up, by the fingerprints that the rows carry: where they agree nothing more is looked at. A step that has
run and that the code has no more would otherwise run again under its new name. The execution is set aside instead, unless
`renamed_from` says which step it is now: then its rows are given the new name, and its idempotency key stays the old one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from reactor_coord.engine.states import StepStatus
from reactor_coord.runtime import units
from reactor_coord.runtime.tree import Frame
from reactor_coord.storage import store

if TYPE_CHECKING:
    from reactor_coord.declare.definition import ReactorDefinition
    from reactor_coord.models import StepRun

_LEFT_NOTHING = frozenset({StepStatus.PENDING, StepStatus.SKIPPED, StepStatus.WAITING, StepStatus.CANCELLED})
"""A step in one of these, no body of which has begun, may go without a trace."""


def adapt(root: Frame) -> None:
    """Give what was done for a step that was renamed the name that the step has now, in the rows and in this process."""
    for frame in _frames(root):
        if frame.execution.fingerprint != frame.definition.fingerprint:
            for run in [run for run in frame.runs.values() if run.step not in frame.definition.steps]:
                _rename(frame, run.step)
    _rename_the_one_at_work(root)


def misfit(root: Frame) -> str:
    """Say why this code cannot go on with the tree, naming the step; empty when it can."""
    for frame in _frames(root):
        if frame.execution.fingerprint != frame.definition.fingerprint:
            for run in frame.runs.values():
                if run.step not in frame.definition.steps and _has_left_something(run):
                    return _words(frame, run.step)
    at_work = _at_work(root)
    return _words(*at_work) if at_work is not None else ""


def _frames(frame: Frame) -> Iterator[Frame]:
    """The tree's frames of which there are rows, each before those below it."""
    yield frame
    for parent_id, name, index in list(frame.tree.rows):
        step = frame.definition.steps.get(name)
        if parent_id != frame.execution.id or step is None:
            continue
        child = frame.child(step, _definition_below(frame, name), index)
        if child is not None:
            yield from _frames(child)


def _definition_below(frame: Frame, name: str) -> ReactorDefinition:
    step = frame.definition.steps[name]
    if step.kind == "compose" and step.reactor_class is not None:
        return step.reactor_class.definition
    return units.unit_definition(frame.definition, step)


def _has_left_something(run: StepRun) -> bool:
    return run.attempts > 0 or run.status not in _LEFT_NOTHING


def _now_called(frame: Frame, step: str) -> str:
    """The name that the step has now; empty where the code does not say."""
    return next((name for name, each in frame.definition.steps.items() if each.renamed_from == step), "")


def _rename(frame: Frame, before: str) -> None:
    now = _now_called(frame, before)
    if now and now not in frame.runs:
        store.rename_step(frame.tree.root, frame.tree.lease.token, frame.execution.id, before, now)
        _reread(frame, frame.runs[before], now)


def _reread(frame: Frame, run: StepRun, name: str) -> None:
    """Have what this process has read of the tree say the new name, too."""
    tree, before = frame.tree, run.step
    frame.runs[name] = frame.runs.pop(before)
    run.first_name, run.step = run.first_name or before, name
    for parent_id, step, index in list(tree.rows):
        if (parent_id, step) == (frame.execution.id, before):
            row = tree.rows[(parent_id, name, index)] = tree.rows.pop((parent_id, step, index))
            row.parent_step = name
    tree.waited, tree.kept = tree.root.waits_on, list(tree.root.parked_holds)


def _at_work(root: Frame) -> tuple[Frame, str] | None:
    """The step whose body a process may have died in, where the code has none of that name and no row of it was written."""
    execution, _, name = root.tree.root.current_step.partition("/")
    if root.tree.lost_workers and name:
        for frame in _frames(root):
            if str(frame.execution.id) == execution and name not in frame.definition.steps:
                return frame, name
    return None


def _rename_the_one_at_work(root: Frame) -> None:
    at_work = _at_work(root)
    if at_work is None:
        return
    frame, before = at_work
    now = _now_called(frame, before)
    if now:
        run = frame.run(frame.definition.steps[now])
        run.first_name = run.first_name or before
        root.tree.write(run)
        root.tree.change(root.execution, current_step=f"{frame.execution.id}/{now}")


def _words(frame: Frame, step: str) -> str:
    new = [name for name in frame.definition.steps if name not in frame.runs]
    offered = f" (new here: {', '.join(new)})" if new else ""
    return (
        f"{frame.definition.label} has no step {step!r} any more, and it has run: another name for it would run it again. "
        f'Say renamed_from="{step}" at the step that it is now{offered}, or deploy code that has it; then resume'
    )
