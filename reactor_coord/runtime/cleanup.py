"""Rolling back: compensate what failed, undo what succeeded, newest first, each under the step's own exclusivity.

One path for a failure that has just happened and for a rollback taken up after a kill: the engine orders what is still
to be done from the step runs alone. It never parks. What cannot be cleaned up is recorded and does not stop the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from reactor_coord import conf, probes
from reactor_coord.engine.rollback import Cleanup, StepState, rollback_order
from reactor_coord.engine.settlement import as_result
from reactor_coord.engine.states import EventKind, ExecutionStatus, StepStatus
from reactor_coord.errors import (
    ContentionError,
    CoordinationError,
    CoordinationKeyError,
    CoordinationUnavailable,
    LeaseLost,
    ReactorFailed,
    WorkerLost,
)
from reactor_coord.results import Decided, Failure
from reactor_coord.runtime import gates, units, verdicts
from reactor_coord.runtime.arguments import legible_arguments, place_of_reactor, place_of_step, recorded_arguments
from reactor_coord.runtime.context import StepContext
from reactor_coord.runtime.gates import Ending, Hold, Place
from reactor_coord.storage import clock, codec, elements

if TYPE_CHECKING:
    from reactor_coord.declare.definition import StepDefinition
    from reactor_coord.declare.step import Step
    from reactor_coord.models import StepRun
    from reactor_coord.runtime.tree import Frame

UNAVAILABLE, RAISED, RETURNED = "coordination_unavailable", "raised", "returned_failure"


def roll_back(frame: Frame) -> None:
    """Clean up a frame and everything below it. One transaction per cleanup, so that a kill repeats at most that one."""
    order = _order(frame)
    if not order:
        return
    try:
        _hold_what_is_around(frame)
        refused = None
    except (ContentionError, CoordinationUnavailable, CoordinationKeyError) as error:
        refused = error
    _clean_up(frame, order, refused)


def _clean_up(frame: Frame, order: list[tuple[str, Cleanup]], refused: CoordinationError | None) -> None:
    """Do what is to be done in this order; `refused` what was to be held around it, list it as left undone instead."""
    for name, cleanup in order:
        frame.tree.lease.check()
        step = frame.definition.steps.get(name)
        if step is None:
            _report_missing(frame, frame.runs[name])
        elif cleanup is Cleanup.DESCEND:
            _descend(frame, step, refused)
        elif not _has(step, cleanup):
            continue
        elif refused is not None:
            _report(frame, frame.runs[name], cleanup, UNAVAILABLE, refused, key=refused.key or "")
        else:
            _clean(frame, step, cleanup)


def _order(frame: Frame) -> list[tuple[str, Cleanup]]:
    return rollback_order(_state_of(frame, run) for run in frame.runs.values())


def _state_of(frame: Frame, run: StepRun) -> StepState:
    step = frame.definition.steps.get(run.step)
    kind = step.kind if step is not None else run.kind  # of a step that is gone: there is still something below it
    return StepState(
        name=run.step,
        status=StepStatus(run.status),
        completion_order=run.completion_order,
        began=bool((run.error or {}).get("began")),
        is_nested=kind in DESCENDERS,
        is_reported=run.rollback_failure is not None,
    )


def _hold_what_is_around(frame: Frame) -> None:
    """Have around its rollback what was around its steps: the reactor's own holds, and a child's compose step's.

    Those it still has, or taken anew, waiting: when they were lost, or given back because the reactor had completed.
    """
    if gates.lost_keys(frame.holds):
        frame.tree.give(frame.holds, Ending.ABANDONED)
    if frame.holds:
        return
    for place in _places_around(frame):
        frame.holds += frame.tree.hold(_acquire(frame, place))


def _acquire(frame: Frame, place: Place) -> list[Hold]:
    """Take what gates cleanup here; a Redis that cannot be reached is waited for as long as a holder would be, once."""
    patience = gates.rollback_patience(place)
    ends_at = time.monotonic() + patience
    while True:
        try:
            return gates.acquire(place, for_rollback=True)
        except CoordinationUnavailable:
            if frame.tree.is_redis_given_up or time.monotonic() >= ends_at:
                frame.tree.is_redis_given_up = True
                raise
            frame.tree.lease.check()
            time.sleep(min(0.2, max(0.01, patience / 10)))


def _places_around(frame: Frame) -> Iterator[Place]:
    if frame.parent is not None:
        step = frame.parent.definition.steps[frame.execution.parent_step]
        if step.coordination and step.kind == "compose":  # an element declares for itself what its map step declares
            arguments = legible_arguments(frame.parent, step, frame.parent.runs[step.name])
            yield place_of_step(frame.parent, step, arguments)
    if frame.definition.coordination:
        yield place_of_reactor(frame)


def _descend(frame: Frame, step: StepDefinition, refused: CoordinationError | None) -> None:
    """Clean up what ran below a step, then settle the step: one transaction more."""
    run = frame.runs[step.name]
    was_done = run.status == StepStatus.SUCCEEDED
    left = DESCENDERS[step.kind](frame, step, refused)
    if left is None:
        return
    if was_done:
        run.status = StepStatus.UNDO_FAILED if left else StepStatus.UNDONE
    else:
        run.status = StepStatus.CANCELLED if frame.tree.root.failure is None else StepStatus.FAILED
        run.error = run.error or _error_of_child(frame)
    run.finished_at = clock.present()
    frame.tree.write(run)
    frame.emit(EventKind.UNDONE if was_done else EventKind.STEP_FAILED, step=step.name, nested=True)
    frame.tree.save()


def _descend_into_child(frame: Frame, step: StepDefinition, refused: CoordinationError | None) -> bool | None:
    """Roll a composed child back; whether something of it stayed undone, None when there was nothing to do."""
    assert step.reactor_class is not None
    child = frame.child(step, step.reactor_class.definition)
    if frame.runs[step.name].status == StepStatus.FAILED and (child is None or not _order(child)):
        return None
    return child is not None and _roll_back_child(frame, step, child, refused)


def _roll_back_child(frame: Frame, step: StepDefinition, child: Frame, refused: CoordinationError | None) -> bool:
    was_done = child.execution.status == ExecutionStatus.COMPLETED
    if refused is None:
        roll_back(child)
    else:
        _clean_up(child, _order(child), refused)
    status = ExecutionStatus.CANCELLED if was_done or frame.tree.root.failure is None else ExecutionStatus.FAILED
    frame.tree.change(child.execution, status=status, finished_at=clock.present())
    frame.tree.save()
    frame.tree.give(child.holds, Ending.SUCCEEDED if was_done else Ending.FAILED)
    return any(run.rollback_failure for run in child.runs.values())


def _descend_into_units(frame: Frame, step: StepDefinition, refused: CoordinationError | None) -> bool | None:
    """Bring handed-off work to an end in which nothing of it stands: elements of a map newest first."""
    run = frame.runs[step.name]
    if step.kind == "map":
        elements.cancel_unbegun(frame.execution.id, step.name)
    definition = units.unit_definition(frame.definition, step)
    inside = [_roll_back_child(frame, step, child, refused) for child in frame.elements(step, definition)]
    entries: list[dict[str, Any]] = []
    for unit in elements.of_step(frame.execution.id, step.name, newest_first=True):
        frame.tree.lease.check()
        entries += units.unwind(unit, detach=bool(step.options.get("detach")))
    if entries:
        run.rollback_failure = {"order": clock.present().timestamp(), "entries": entries}
    return bool(entries) or any(inside)


DESCENDERS: Mapping[str, Callable[[Frame, StepDefinition, CoordinationError | None], bool | None]] = {
    "compose": _descend_into_child,
    "map": _descend_into_units,
    "async_step": _descend_into_units,
    "async_reactor": _descend_into_units,
}
"""What has work below it that is rolled back first, by kind of step."""


def _error_of_child(frame: Frame) -> dict[str, Any] | None:
    failure = frame.tree.root.failure
    if failure is None:
        return None
    where = f"{failure['reactor']}.{failure['step']}" if failure["step"] else failure["reactor"]
    message = f"{where}: {failure['message']}"
    return {"type": failure["error_type"], "message": message, "traceback": [], "began": True, "retryable": False}


def _has(step: StepDefinition, cleanup: Cleanup) -> bool:
    if step.step_class is None:
        return False
    return step.step_class.has_undo if cleanup is Cleanup.UNDO else step.step_class.has_compensate


def _clean(frame: Frame, step: StepDefinition, cleanup: Cleanup) -> None:
    """Compensate or undo one step under its own lock; record how it went in one transaction; give back."""
    assert step.step_class is not None
    is_undo = cleanup is Cleanup.UNDO
    run = frame.runs[step.name]
    if _has_cost_too_many_workers(frame, step, run, cleanup):
        return
    try:
        arguments = recorded_arguments(frame, step, run)
        place = place_of_step(frame, step, arguments)
        holds = frame.tree.hold(_acquire(frame, place))
    except (ContentionError, CoordinationUnavailable, CoordinationKeyError) as error:
        return _report(frame, run, cleanup, UNAVAILABLE, error, key=getattr(error, "key", "") or "")
    except Exception as error:  # noqa: BLE001 - arguments that cannot be had any more: reported, and the others go on
        return _report(frame, run, cleanup, RAISED, error)
    try:
        probes.reached("rollback.before_undo")
        started = time.monotonic()
        failed = _call(frame, step, run, arguments, cleanup)
        probes.reached("rollback.after_undo_body")
        if failed is not None:
            return _report(frame, run, cleanup, *failed)
        run.status = StepStatus.UNDONE if is_undo else StepStatus.COMPENSATED
        run.rollback_failure = None
        frame.tree.write(run)
        kind = EventKind.UNDONE if is_undo else EventKind.COMPENSATED
        frame.emit(kind, step=step.name, seconds=round(time.monotonic() - started, 4))
        frame.tree.save()
        probes.reached("rollback.after_undo")
    finally:
        frame.tree.give(holds, Ending.ABANDONED)


def _call(
    frame: Frame, step: StepDefinition, run: StepRun, arguments: dict[str, Any], cleanup: Cleanup
) -> tuple[str, BaseException | str] | None:
    """Run the author's cleanup; None when it went well, else why not."""
    assert step.step_class is not None
    context = StepContext(frame, step.name, attempt=max(run.attempts, 1), contention_attempts=run.contention_attempts)
    instance = step.step_class.bind(arguments, context)
    try:
        result = as_result(_cleanup_of(instance, frame, run, cleanup)())
    except Decided as decided:
        result = decided.result
    except BaseException as error:
        if verdicts.is_interruption(error) or isinstance(error, LeaseLost):
            raise
        return RAISED, error
    return (RETURNED, result.error) if isinstance(result, Failure) else None


def _cleanup_of(instance: Step, frame: Frame, run: StepRun, cleanup: Cleanup) -> Callable[[], Any]:
    if cleanup is Cleanup.UNDO:
        value = codec.decode(run.result) if run.result is not None else None
        return lambda: instance.undo(value)
    return lambda: instance.compensate(_original_error(frame, run))


def _original_error(frame: Frame, run: StepRun) -> BaseException:
    """Return the exception itself where it was raised in this process, else one that says the same."""
    if frame.tree.error is not None:
        return frame.tree.error
    error = run.error or {}
    return ReactorFailed(f"{error.get('type', 'Failure')}: {error.get('message', '')}")


def _report(
    frame: Frame, run: StepRun, cleanup: Cleanup, reason: str, error: BaseException | str, key: str = ""
) -> None:
    """Record a cleanup that did not happen, in one transaction; the rollback goes on."""
    if cleanup is Cleanup.UNDO:
        run.status = StepStatus.UNDO_FAILED
    secrets = verdicts.secrets_of(frame.legible_inputs, frame.definition.schema.redacted)
    run.rollback_failure = {
        "step": run.step,
        "reactor": frame.definition.label,
        "kind": cleanup.value,
        "key": key,
        "reason": reason,
        "message": f"{verdicts.type_of(error)}: {verdicts.message_of(error, secrets)}",
        "order": clock.present().timestamp(),
    }
    frame.tree.write(run)
    frame.emit(EventKind.UNDO_FAILED, step=run.step, key=key, reason=reason, message=run.rollback_failure["message"])
    frame.tree.save()


def _report_missing(frame: Frame, run: StepRun) -> None:
    _report(frame, run, Cleanup.UNDO, RAISED, f"{frame.definition.label} has no step {run.step!r} any more")


def _has_cost_too_many_workers(frame: Frame, step: StepDefinition, run: StepRun, cleanup: Cleanup) -> bool:
    """Lay deaths of workers to the cleanup they died in; one that keeps killing is reported and passed over."""
    tree = frame.tree
    if not tree.lost_workers:
        return False
    deaths, tree.lost_workers = tree.lost_workers, 0
    allowed = conf.settings().MAX_WORKER_LOSSES
    frame.emit(EventKind.WORKER_LOST, step=step.name, deaths=deaths, cleanup=cleanup.value)
    if deaths < allowed:
        return False
    tree.change(tree.root, workers_lost=0)
    _report(frame, run, cleanup, RAISED, WorkerLost(reactor=frame.definition.label, step=step.name, count=deaths))
    return True
