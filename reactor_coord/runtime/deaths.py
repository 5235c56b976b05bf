"""What the death of a process means for the execution that it ran: one more attempt of the step it may have been in.

Each checkpoint writes which step may begin next (`Execution.current_step`), so a process that dies in a body has left word of
it. Whoever takes the row up counts the deaths to that step, as begun: whatever becomes of the execution then, the step is
cleaned up or listed. A death outside every step counts against the execution.
"""

from __future__ import annotations

from reactor_coord import conf
from reactor_coord.engine import events, transitions
from reactor_coord.engine.settlement import Settlement, losses_allowed
from reactor_coord.engine.states import SETTLED_STEPS, StepStatus
from reactor_coord.engine.transitions import Move
from reactor_coord.errors import WorkerLost
from reactor_coord.runtime import steps, units, verdicts
from reactor_coord.runtime.tree import Frame, Place, is_rolling_back


def charge(root: Frame) -> None:
    """Count the deaths since the last checkpoint to what was under way. On the way forward too many fail it: `StepFailed`."""
    tree = root.tree
    if tree.lost_workers:
        found = at_work(root)
        if found is not None:
            _charge_step(root, found)
        elif not is_rolling_back(tree):
            _charge_reactor(root)
    if is_rolling_back(tree):
        tree.point_at(None)


def at_work(root: Frame) -> Place | None:
    """The frame and the step that may have begun; None when there is no such step, or it has an outcome."""
    execution, _, name = root.tree.root.current_step.partition("/")
    frame = _frame_of(root, execution) if execution else None
    step = frame.definition.steps.get(name) if frame is not None else None
    if frame is None or step is None or frame.run(step).status in SETTLED_STEPS:
        return None
    return frame, step


def _frame_of(root: Frame, execution_id: str) -> Frame | None:
    if str(root.execution.id) == execution_id:
        return root
    row = next((row for row in root.tree.rows.values() if str(row.id) == execution_id), None)
    parent = _frame_of(root, str(row.parent_id)) if row is not None else None
    if row is None or parent is None:
        return None
    step = parent.definition.steps.get(row.parent_step)
    if step is None:
        return None
    in_map = row.element_index is not None or step.reactor_class is None
    definition = units.unit_definition(parent.definition, step) if in_map else step.reactor_class.definition  # type: ignore[union-attr] # of a compose step
    return parent.child(step, definition, row.element_index)


def _charge_step(root: Frame, place: Place) -> None:
    frame, step = place
    tree, run = root.tree, frame.run(step)
    deaths, tree.lost_workers = tree.lost_workers, 0
    run.workers_lost += deaths
    if step.kind == "step":
        run.attempts += deaths
    tree.write(run)
    frame.emit(events.WorkerLost(step=step.name, deaths=deaths, total=run.workers_lost))
    turns_back = is_rolling_back(tree) or tree.cancel_requested
    if turns_back or run.workers_lost < losses_allowed(step.retry, conf.settings().MAX_WORKER_LOSSES):
        return
    error = WorkerLost(
        f"{frame.definition.label}.{step.name} cost {run.workers_lost} workers their lives (killed, out of memory, or "
        f"exiting inside the body); it is not tried again",
        reactor=frame.definition.label,
        step=step.name,
    )
    go_on_down_to(frame)
    steps.Attempt(frame, step).close(Settlement(StepStatus.FAILED, error=error, began=True, retryable=False))
    if is_rolling_back(tree):  # not so where a composed child is undone alone and run again
        raise verdicts.StepFailed(frame, step.name, Settlement(StepStatus.FAILED, error=error))


def go_on_down_to(frame: Frame) -> None:
    """The rows of the composed children on the way say `running`, as their root's does."""
    while frame.parent is not None:
        if transitions.is_possible(frame.execution.status, Move.GO_ON):
            frame.tree.move(frame.execution, transitions.go_on(turned_back=False))
        frame = frame.parent


def _charge_reactor(root: Frame) -> None:
    """Fail a reactor whose workers die before a step can be blamed: reading what it kept, or waiting for units."""
    tree = root.tree
    floor = conf.settings().MAX_WORKER_LOSSES
    allowed = max(losses_allowed(step.retry, floor) for step in root.definition.steps.values())
    deaths, tree.lost_workers = tree.lost_workers, 0  # the next checkpoint clears the count: something was done since
    if deaths <= allowed:
        return
    error = WorkerLost(
        f"{root.definition.label} cost {deaths} workers their lives outside its steps; it is not tried again",
        reactor=root.definition.label,
        count=deaths,
    )
    settlement = Settlement(StepStatus.FAILED, error=error, began=False, retryable=False)
    steps.turn_back(root, "", settlement, {}, frozenset())
    tree.save()
    raise verdicts.StepFailed(root, "", settlement)
