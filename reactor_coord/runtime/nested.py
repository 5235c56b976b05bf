"""A reactor inside an execution: the forward way of any frame, and `compose`, whose body is a child's forward way.

A child is a row of its own under the root's lease, never claimed by itself. Its reactor-level holds, and those of its
compose step, stand from its first step to its end, over parks and through its rollback.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from reactor_coord.engine import transitions
from reactor_coord.engine.delays import retry_delay
from reactor_coord.engine.events import ExecutionCompleted, ExecutionHalted, ExecutionStarted, StepStarted
from reactor_coord.engine.plan import first_dispatched, is_past_background, next_step
from reactor_coord.engine.settlement import Settlement
from reactor_coord.engine.states import SETTLED_STEPS, ExecutionStatus, StepStatus
from reactor_coord.engine.step_transitions import StepMove
from reactor_coord.engine.transitions import Move
from reactor_coord.errors import LeaseLost, ReactorCoordError, ReactorFailed
from reactor_coord.results import Decided, Failure, Halt, Skipped
from reactor_coord.runtime import cleanup, fanout, gates, handoff, pausing, steps, tracing, verdicts
from reactor_coord.runtime.arguments import legible_arguments, place_of_reactor
from reactor_coord.runtime.outcome import failure_of
from reactor_coord.runtime.parking import Parked
from reactor_coord.runtime.tree import Frame
from reactor_coord.storage import clock

if TYPE_CHECKING:
    from reactor_coord.declare.definition import ReactorDefinition, StepDefinition


def forward(frame: Frame) -> Any:
    """Run a frame's steps to the end and return the reactor's value."""
    with tracing.of_child(frame) if frame.parent is not None else nullcontext():
        return _forward(frame)


def _forward(frame: Frame) -> Any:
    if frame.tree.cancel_requested:  # before anything is taken: who is to end must not park for it first
        raise verdicts.Cancelled
    admit(frame)
    while (step := _next(frame)) is not None:
        if frame.tree.cancel_requested:
            raise verdicts.Cancelled
        if (
            not frame.tree.parks
            and frame.parent is None
            and is_past_background(frame.definition, frame.statuses(), step)
        ):
            raise verdicts.HandedOver
        _perform(frame, step)
    try:
        return frame.value()
    except Exception as error:
        raise _fail_the_reactor(frame, error) from error


def _perform(frame: Frame, step: StepDefinition) -> None:
    """Perform or await it. What is met on the way, a value of a unit that cannot be read any more, fails the step as well."""
    performers = AWAITERS if frame.run(step).status == StepStatus.DISPATCHED else PERFORMERS
    with tracing.of_step(frame, step.name):
        _perform_or_fail(frame, step, performers[step.kind])


def _perform_or_fail(frame: Frame, step: StepDefinition, performer: Callable[[Frame, StepDefinition], None]) -> None:
    try:
        performer(frame, step)
    except ReactorCoordError as error:
        attempt = steps.Attempt(frame, step)
        if isinstance(error, LeaseLost) or attempt.run.status in SETTLED_STEPS:
            raise
        if attempt.run.arguments is not None:
            attempt.arguments = legible_arguments(frame, step, attempt.run)
        settlement = attempt.settle(Failure(error, retryable=False), began=False)
        steps.conclude(frame, step, attempt.close(settlement))


def _fail_the_reactor(frame: Frame, error: Exception) -> verdicts.StepFailed:
    """Fail the reactor itself, not a step of it: nothing is compensated, all that was done is undone."""
    settlement = Settlement(StepStatus.FAILED, error=error, began=False, retryable=False)
    steps.turn_back(frame, "", settlement, frame.legible_inputs, frame.definition.schema.redacted)
    frame.tree.save()
    return verdicts.StepFailed(frame, "", settlement)


def _next(frame: Frame) -> StepDefinition | None:
    """Return the next step to perform; when only handed-off work is left in the way, the first of it to wait for."""
    step = next_step(frame.definition, frame.statuses())
    return step or first_dispatched(frame.definition, frame.statuses())


def admit(frame: Frame) -> None:
    """Take what the reactor itself declares, or adopt what it kept over a park."""
    if not frame.definition.coordination:
        return
    place = place_of_reactor(frame)
    try:
        frame.holds += frame.tree.hold(gates.acquire(place))
    except Parked as parked:
        frame.emit(parked.event(""))
        raise
    except Decided as decided:
        raise _refused_at_the_door(decided) from None
    except ReactorCoordError as error:
        raise _fail_the_reactor(frame, error) from error
    if frame.execution.admitted_at is None:
        frame.tree.change(frame.execution, admitted_at=clock.present(), keys=place.texts_by_primitive())


def _refused_at_the_door(decided: Decided) -> verdicts.RefusedAtTheDoor:
    result = decided.result
    reason = result.reason if isinstance(result, (Skipped, Halt)) else ""
    return verdicts.RefusedAtTheDoor(reason or "contention")


def perform_compose(frame: Frame, step: StepDefinition) -> None:
    """Run a child execution as one step."""
    attempt = steps.Attempt(frame, step)
    frame.tree.lease.check()
    assert step.reactor_class is not None
    definition = step.reactor_class.definition
    child = frame.child(step, definition)
    if child is None:
        early = attempt.prepare()
        if early is not None:
            return steps.conclude(frame, step, attempt.close(early))
    else:
        attempt.arguments = legible_arguments(frame, step, attempt.run)
    holds = _take_around(attempt, frame, step, child.execution.started_at if child is not None else None)
    if holds is None:
        return
    if child is None:
        child = _begin(attempt, definition)
    elif transitions.is_possible(child.execution.status, Move.GO_ON):  # told with the next transaction
        frame.tree.move(child.execution, transitions.go_on(turned_back=child.execution.has_turned_back))
    child.holds += holds
    if child.execution.status == ExecutionStatus.ROLLING_BACK:  # taken up in the middle of being undone
        return _undo_and_retry(attempt, child)
    try:
        value = forward(child)
    except verdicts.StepFailed:
        if child.execution.status != ExecutionStatus.ROLLING_BACK:
            raise
        return _undo_and_retry(attempt, child)
    except verdicts.RefusedAtTheDoor as refused:
        return _leave_out(attempt, child, refused.reason)
    _finish(attempt, child, value)


def _leave_out(attempt: steps.Attempt, child: Frame, reason: str) -> None:
    """Skip the step of a child whose own declarations did not let it begin: nothing of it ran, and the others go on."""
    halt_at_the_door(child, reason)
    settlement = attempt.close(attempt.settle(Skipped(None, reason), began=False))
    attempt.tree.give(child.holds, steps.ending_of(settlement))


def halt_at_the_door(child: Frame, reason: str) -> None:
    """Have the next transaction end a child that did not begin."""
    child.tree.move(child.execution, transitions.halt(clock.present(), None, reason))
    child.emit(ExecutionHalted(reason=reason))


def _undo_and_retry(attempt: steps.Attempt, child: Frame) -> None:
    """Undo a failed child alone and run it afresh; one that cannot be undone wholly fails the step for good."""
    frame, step, tree = attempt.frame, attempt.step, attempt.tree
    cleanup.roll_back(child)
    error = tree.error or _failure_of(child)
    tree.move(child.execution, transitions.close(clock.present(), failed=True))
    child.emit(cleanup.failed_child(child, child.execution.why_failed))
    if any(run.rollback_failure for run in child.runs.values()):
        settlement = Settlement(StepStatus.FAILED, error=error, began=False, retryable=False)
        attempt.close(settlement)
        tree.give(child.holds, gates.Ending.FAILED)
        return steps.conclude(frame, step, settlement)
    assert step.retry is not None
    delay = retry_delay(step.retry, attempt.run.attempts, random.random())
    tree.change(child.execution, parent_step=f"{step.name}~{attempt.run.attempts}")
    frame.forget_child(step)
    attempt.close(Settlement(StepStatus.RETRYING, error=error, retry_in=delay))
    tree.error = None
    tree.give(child.holds, gates.Ending.RETRYING)
    steps.wait_to_retry(frame, step, delay)


def _failure_of(child: Frame) -> ReactorFailed:
    """What a child failed with that another process ran: it is undone by this one, and only its row says why."""
    failure = failure_of(child.execution)
    return ReactorFailed(failure.message if failure is not None else "", failure=failure)


def _take_around(
    attempt: steps.Attempt, frame: Frame, step: StepDefinition, begun_at: datetime | None
) -> list[gates.Hold] | None:
    """Take what the compose step declares; None when that settled the step. A child that has begun is around no gate anew."""
    place = replace(attempt.place(), admitted_at=begun_at)
    try:
        return frame.tree.hold(gates.acquire(place))
    except Parked as parked:
        attempt.wait(parked)
        raise
    except Decided as decided:
        steps.conclude(frame, step, attempt.close(attempt.settle(decided.result, began=False)))
        return None
    except ReactorCoordError as error:
        steps.conclude(frame, step, attempt.close(attempt.settle(Failure(error, retryable=False), began=False)))
        return None


def _begin(attempt: steps.Attempt, definition: ReactorDefinition) -> Frame:
    """Insert the child's row and mark the step running: one transaction."""
    frame, step, tree = attempt.frame, attempt.step, attempt.tree
    child = frame.new_child(step, definition, attempt.arguments)
    child.point_at_next()
    tree.move_step(attempt.run, StepMove.BEGIN)
    attempt.run.attempts += 1
    attempt.run.started_at = clock.present()
    attempt.run.arguments = steps.encode_arguments(attempt.arguments, step.redacted)
    frame.emit(StepStarted(step=step.name, attempt=attempt.run.attempts))
    child.emit(ExecutionStarted())
    tree.save()
    return child


def _finish(attempt: steps.Attempt, child: Frame, value: Any) -> None:
    """Complete the child and its step in one transaction, then give back what was held around it."""
    tree = attempt.tree
    settlement = attempt.settle_value(value)
    if settlement.status == StepStatus.SUCCEEDED:
        tree.move(child.execution, transitions.complete(clock.present(), attempt.run.result))
        child.emit(ExecutionCompleted())
    attempt.close(settlement)
    tree.give(child.holds, steps.ending_of(settlement))
    steps.conclude(attempt.frame, attempt.step, settlement)


PERFORMERS: Mapping[str, Callable[[Frame, StepDefinition], None]] = {
    "step": steps.perform,
    "compose": perform_compose,
    "map": fanout.begin,
    "async_step": handoff.dispatch,
    "async_reactor": handoff.dispatch,
    "interrupt": pausing.perform,
}
"""How each kind of step is performed: a new kind is a new function and a row."""

AWAITERS: Mapping[str, Callable[[Frame, StepDefinition], None]] = {
    "map": fanout.await_elements,
    "async_step": handoff.await_result,
    "async_reactor": handoff.await_result,
}
"""How what was handed off is waited for, when nothing else is left to do."""
