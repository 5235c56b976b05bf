"""Rolling back: compensate what failed, undo what succeeded, newest first, each under the step's own exclusivity.

One path for a failure that has just happened and for a rollback taken up after a kill: the engine orders what is still
to be done from the step runs alone. It never parks. What cannot be cleaned up is recorded and does not stop the rest.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from django.db import DatabaseError, InterfaceError, OperationalError, transaction

from reactor_coord import conf, probes
from reactor_coord.engine import events, records, transitions
from reactor_coord.engine.delays import redis_poll
from reactor_coord.engine.records import RollbackReason
from reactor_coord.engine.rollback import Cleanup, StepState, rollback_order
from reactor_coord.engine.settlement import as_result
from reactor_coord.engine.states import ExecutionStatus, StepStatus
from reactor_coord.engine.step_transitions import StepMove
from reactor_coord.errors import (
    CompensationError,
    CoordinationError,
    CoordinationUnavailable,
    LeaseLost,
    ReactorFailed,
    WorkerLost,
)
from reactor_coord.results import Decided, Failure
from reactor_coord.runtime import gates, surroundings, tracing, units, verdicts
from reactor_coord.runtime.arguments import legible_arguments, place_of_reactor, place_of_step, recorded_arguments
from reactor_coord.runtime.context import StepContext
from reactor_coord.runtime.gates import Ending, Hold, Place
from reactor_coord.runtime.recollection import Recollection
from reactor_coord.runtime.sources import written
from reactor_coord.storage import clock, codec, elements

if TYPE_CHECKING:
    from reactor_coord.declare.definition import StepDefinition
    from reactor_coord.declare.step import Step
    from reactor_coord.models import StepRun
    from reactor_coord.runtime.tree import Frame

UNAVAILABLE, RAISED, RETURNED = RollbackReason.UNAVAILABLE, RollbackReason.RAISED, RollbackReason.RETURNED

NotDone: TypeAlias = tuple[RollbackReason, BaseException | str]
"""Why a cleanup is not done: the reason's kind, and the error or its text."""


def roll_back(frame: Frame) -> None:
    """Clean up a frame and everything below it. One transaction per cleanup, so that a kill repeats at most that one."""
    order = _order(frame)
    if order:
        _clean_up_under_what_is_around(frame, order)
    if not any(run.rollback_failure for run in frame.runs.values()):
        for place in _places_around(frame):  # where it had completed: it is undone now
            gates.take_back(place)


def _clean_up_under_what_is_around(frame: Frame, order: list[tuple[str, Cleanup]]) -> None:
    try:
        _hold_what_is_around(frame)
        refused = None
    except CoordinationError as error:
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
            _report_what_may_have_run(frame, frame.runs[name], cleanup)
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
        began=run.attempts > 0,
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
            time.sleep(redis_poll(patience))


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
    before = run.status
    was_done = before == StepStatus.SUCCEEDED
    left = DESCENDERS[step.kind](frame, step, refused)
    if left is None:
        return
    if was_done:
        frame.tree.move_step(run, StepMove.UNDO_FAIL if left else StepMove.UNDO)
    else:
        is_cancelled = frame.tree.root.failure is None and not run.is_contained
        frame.tree.move_step(run, StepMove.CLOSE_CANCELLED if is_cancelled else StepMove.CLOSE_FAILED)
        error = run.why_failed or _error_of_child(frame)
        run.error = error.to_json() if error is not None else None
    run.finished_at = clock.present()
    if run.status != before:  # a map or an async step that failed in a worker was told when it failed
        frame.emit(_settled_below(run, frame.tree.root.cancel_reason))
    frame.tree.save()


def _settled_below(run: StepRun, why_cancelled: str) -> events.Event:
    """What is told of a step once what ran below it is rolled back."""
    if run.status == StepStatus.UNDONE:
        return events.StepUndone(step=run.step, nested=True)
    if run.status == StepStatus.UNDO_FAILED:
        message = "a cleanup below it did not happen"
        return events.StepUndoFailed(step=run.step, reason=events.BELOW, message=message, nested=True)
    if run.status == StepStatus.CANCELLED:
        return events.StepCancelled(step=run.step, reason=why_cancelled, nested=True)
    error = run.why_failed or records.StepError()
    return events.StepFailed(
        step=run.step, attempt=run.attempts, error_type=error.type, message=error.message, nested=True
    )


def _descend_into_child(frame: Frame, step: StepDefinition, refused: CoordinationError | None) -> bool | None:
    """Roll a composed child back; whether something of it stayed undone, None when there was nothing to do."""
    assert step.reactor_class is not None
    child = frame.child(step, step.reactor_class.definition)
    run = frame.runs[step.name]
    if run.status == StepStatus.FAILED and (child is None or not _order(child)):
        return None
    if child is None and run.status == StepStatus.SUCCEEDED:
        return _list_below(run, [_row_gone(frame, step, "the execution")])
    return child is not None and _roll_back_child(frame, step, child, refused)


def _roll_back_child(frame: Frame, step: StepDefinition, child: Frame, refused: CoordinationError | None) -> bool:
    was_done = child.execution.status == ExecutionStatus.COMPLETED
    if refused is None:
        roll_back(child)
    else:
        _clean_up(child, _order(child), refused)
    before = child.execution.status
    frame.tree.move(child.execution, _close(child))
    if child.execution.status != before:
        child.emit(_end_of_child(child))
    frame.tree.save()
    frame.tree.give(child.holds, Ending.SUCCEEDED if was_done else Ending.FAILED)
    return any(run.rollback_failure for run in child.runs.values())


def _close(child: Frame) -> transitions.Transition:
    if transitions.is_possible(child.execution.status, transitions.Move.CLOSE_REVERTED):
        return transitions.close_reverted(clock.present())
    return transitions.close(clock.present(), failed=child.tree.root.failure is not None)


def _end_of_child(child: Frame) -> events.Event:
    root = child.tree.root
    if child.execution.status == ExecutionStatus.REVERTED:
        return events.ExecutionReverted(reason=elements.PARENT_ROLLED_BACK)
    if child.execution.status == ExecutionStatus.CANCELLED:
        return events.ExecutionCancelled(reason=root.cancel_reason)
    return failed_child(child, root.why_failed)


def failed_child(child: Frame, failure: records.Failure | None) -> events.ExecutionFailed:
    """What is told of a composed child, or an element run in process, that ends as failed."""
    if failure is None:
        return events.ExecutionFailed()
    own = failure.step if failure.reactor == child.definition.label else ""
    return events.ExecutionFailed(failed_step=own, error_type=failure.error_type, message=failure.message)


def _descend_into_units(frame: Frame, step: StepDefinition, refused: CoordinationError | None) -> bool | None:
    """Bring handed-off work to an end in which nothing of it stands: elements of a map newest first."""
    run = frame.runs[step.name]
    left = _end_units(frame, step)
    definition = units.unit_definition(frame.definition, step)
    inside = [_roll_back_child(frame, step, child, refused) for child in frame.elements(step, definition)]
    left += _gone(frame, step)
    return _list_below(run, left) or any(inside)


def _end_units(frame: Frame, step: StepDefinition) -> list[records.RollbackFailure]:
    """End what was handed off: elements of a map in workers, side by side, where workers run this tree; else here, one by one."""
    if step.kind == "map":
        units.cancel_unbegun(frame.execution.id, step.name)
        if frame.tree.parks:
            return units.end_in_workers(frame, step, units.window_of(step))
    left: list[records.RollbackFailure] = []
    for unit in elements.of_step(frame.execution.id, step.name, newest_first=True):
        frame.tree.lease.check()
        left += units.unwind(unit, detach=bool(step.options.get("detach")))
    return left


def _list_below(run: StepRun, left: list[records.RollbackFailure]) -> bool:
    """Keep with a step what of the work below it stays undone; whether there is any."""
    if left:
        found = records.StepRollbackFailure(tuple(left), clock.present().timestamp(), of_units=True)
        run.rollback_failure = found.to_json()
    return bool(left)


def _gone(frame: Frame, step: StepDefinition) -> list[records.RollbackFailure]:
    """List what was dispatched by a step and whose row was deleted: what it did stands, and no code can undo it."""
    run = frame.runs[step.name]
    if step.options.get("detach") or not run.attempts:
        return []
    there = elements.indexes(frame.execution.id, step.name)
    if step.kind == "map":
        lost = [f"element {index}" for index in range(written(run.source_cursor)) if index not in there]
    else:
        lost = [] if there else ["the execution"]
    return [_row_gone(frame, step, which) for which in lost]


def _row_gone(frame: Frame, step: StepDefinition, which: str) -> records.RollbackFailure:
    message = (
        f"{which} of {frame.definition.label}.{step.name} is gone: its row was deleted, so what it did cannot be undone"
    )
    return records.RollbackFailure(
        step.name, Cleanup.UNDO, RollbackReason.ROW_GONE, message, reactor=frame.definition.label
    )


DESCENDERS: Mapping[str, Callable[[Frame, StepDefinition, CoordinationError | None], bool | None]] = {
    "compose": _descend_into_child,
    "map": _descend_into_units,
    "async_step": _descend_into_units,
    "async_reactor": _descend_into_units,
}
"""What has work below it that is rolled back first, by kind of step."""


def _error_of_child(frame: Frame) -> records.StepError | None:
    failure = frame.tree.root.why_failed
    if failure is None:
        return None
    return records.StepError(failure.error_type, f"{failure.where}: {failure.message}", retryable=False)


def _has(step: StepDefinition, cleanup: Cleanup) -> bool:
    if step.step_class is None:
        return False
    return step.step_class.has_undo if cleanup is Cleanup.UNDO else step.step_class.has_compensate


def _clean(frame: Frame, step: StepDefinition, cleanup: Cleanup) -> None:
    """Compensate or undo one step, in a span of its own."""
    with tracing.of_cleanup(frame, step.name, cleanup) as span:
        _clean_under_locks(frame, step, cleanup)
        left = frame.runs[step.name].left_undone
        if left is not None and left.failures:
            span.fail(left.failures[0].error_type)


def _clean_under_locks(frame: Frame, step: StepDefinition, cleanup: Cleanup) -> None:
    """Clean up under the step's own lock; record how it went in one transaction; give back."""
    assert step.step_class is not None
    is_undo = cleanup is Cleanup.UNDO
    run = frame.runs[step.name]
    if _has_cost_too_many_workers(frame, step, run, cleanup):
        return
    try:
        arguments = recorded_arguments(frame, step, run)
        place = place_of_step(frame, step, arguments)
        holds = _held_since_its_body(frame, step) or frame.tree.hold(_acquire(frame, place))
    except CoordinationError as error:
        return _report(frame, run, cleanup, UNAVAILABLE, error, key=error.key or "")
    except (OperationalError, InterfaceError):
        raise  # the database could not be reached: the rollback is taken up again where it stands
    except Exception as error:  # noqa: BLE001 - arguments that cannot be had any more: reported, and the others go on
        return _report(frame, run, cleanup, RAISED, error)
    kept: list[Hold] = []
    try:
        probes.reached("rollback.before_undo")
        begins = events.UndoStarted if is_undo else events.CompensationStarted
        frame.emit(begins(step=step.name))
        failed = _perform(frame, step, run, arguments, cleanup, place, kept)
        if failed is not None:
            return _report(frame, run, cleanup, *failed)
        probes.reached("rollback.after_undo")
    finally:
        frame.tree.give(holds + kept, Ending.ABANDONED if is_undo else Ending.FAILED)


def _perform(
    frame: Frame,
    step: StepDefinition,
    run: StepRun,
    arguments: dict[str, Any],
    cleanup: Cleanup,
    place: Place,
    kept: list[Hold],
) -> NotDone | None:
    """Do the cleanup and write that it is done, for an atomic step in one transaction as its body was; None, or why not."""
    assert step.step_class is not None
    if not step.step_class.atomic:
        return _call_and_note(frame, step, run, arguments, cleanup, place, kept)
    before, using = Recollection(frame, run), clock.alias()
    try:
        with transaction.atomic(using=using):
            failed = _call_and_note(frame, step, run, arguments, cleanup, place, kept)
            if failed is not None:
                transaction.set_rollback(True, using=using)
            return failed
    except DatabaseError as error:  # the cleanup broke its transaction, or a deferred constraint the commit
        before.restore()
        if isinstance(error, OperationalError):
            raise
        return RAISED, error


def _call_and_note(
    frame: Frame,
    step: StepDefinition,
    run: StepRun,
    arguments: dict[str, Any],
    cleanup: Cleanup,
    place: Place,
    kept: list[Hold],
) -> NotDone | None:
    is_undo, started = cleanup is Cleanup.UNDO, time.monotonic()
    failed = _call(frame, step, run, arguments, cleanup, kept)
    probes.reached("rollback.after_undo_body")
    if failed is not None:
        return failed
    if is_undo:  # before it is written: a kill in between repeats both
        gates.take_back(place)
    frame.tree.move_step(run, StepMove.UNDO if is_undo else StepMove.COMPENSATE)
    run.rollback_failure = None
    told = events.StepUndone if is_undo else events.StepCompensated
    frame.emit(told(step=step.name, seconds=round(time.monotonic() - started, 4)))
    frame.tree.save()
    return None


def _held_since_its_body(frame: Frame, step: StepDefinition) -> list[Hold]:
    """What a step that has just failed holds still: its half-done work is seen by no other holder before its compensate."""
    tree = frame.tree
    holds = tree.held_for_cleanup.pop((frame.execution.id, step.name), [])
    if gates.lost_keys(holds):
        tree.give(holds, Ending.ABANDONED)
    return holds


def _call(
    frame: Frame, step: StepDefinition, run: StepRun, arguments: dict[str, Any], cleanup: Cleanup, kept: list[Hold]
) -> NotDone | None:
    """Run the author's cleanup; None when it went well, else why not."""
    assert step.step_class is not None
    context = StepContext(frame, step.name, attempt=max(run.attempts, 1), contention_attempts=run.contention_attempts)
    context.kept = kept
    instance = step.step_class.bind(arguments, context)
    try:
        with surroundings.of_body(context):
            result = as_result(_cleanup_of(instance, frame, run, cleanup)())
    except Decided as decided:
        result = as_result(decided.result)
    except BaseException as error:
        if verdicts.ends_the_process(error, in_worker=frame.tree.parks) or isinstance(error, LeaseLost):
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
    error = run.why_failed or records.StepError("Failure")
    return ReactorFailed(f"{error.type}: {error.message}")


def _report(
    frame: Frame, run: StepRun, cleanup: Cleanup, reason: RollbackReason, error: BaseException | str, key: str = ""
) -> None:
    """Record a cleanup that did not happen, in one transaction; the rollback goes on."""
    if cleanup is Cleanup.UNDO:
        frame.tree.move_step(run, StepMove.UNDO_FAIL)
    secrets = verdicts.secrets_of(frame.legible_inputs, frame.definition.schema.redacted)
    message = f"{verdicts.type_of(error)}: {verdicts.message_of(error, secrets)}"
    error_type = CompensationError.__name__ if reason is UNAVAILABLE else verdicts.type_of(error)
    failure = records.RollbackFailure(run.step, cleanup, reason, message, key, frame.definition.label, error_type)
    left = records.StepRollbackFailure((failure,), clock.present().timestamp())
    run.rollback_failure = left.to_json()
    frame.tree.write(run)
    event = events.StepUndoFailed(step=run.step, key=key, reason=reason, error_type=error_type, message=message)
    frame.emit(event)
    frame.tree.save()


def _report_missing(frame: Frame, run: StepRun) -> None:
    _report(frame, run, Cleanup.UNDO, RAISED, f"{frame.definition.label} has no step {run.step!r} any more")


def _report_what_may_have_run(frame: Frame, run: StepRun, cleanup: Cleanup) -> None:
    """List a step whose body was cut off by the death of its process, where the author declares no cleanup for it."""
    if cleanup is Cleanup.COMPENSATE and run.workers_lost:
        why = "interrupted, may have run: its process died in the body, and the step has no compensate"
        _report(frame, run, cleanup, RollbackReason.MAY_HAVE_RUN, why)


def _has_cost_too_many_workers(frame: Frame, step: StepDefinition, run: StepRun, cleanup: Cleanup) -> bool:
    """Lay deaths of workers to the cleanup they died in; one that keeps killing is reported and passed over."""
    tree = frame.tree
    if not tree.lost_workers:
        return False
    deaths, tree.lost_workers = tree.lost_workers, 0
    allowed = conf.settings().MAX_WORKER_LOSSES
    frame.emit(events.WorkerLost(step=step.name, deaths=deaths, cleanup=cleanup.value))
    if deaths < allowed:
        return False
    tree.change(tree.root, workers_lost=0)
    _report(frame, run, cleanup, RAISED, WorkerLost(reactor=frame.definition.label, step=step.name, count=deaths))
    return True
