"""`async_step` and `async_reactor`: dispatched while the rest goes on; whoever reads the value waits for it by parking."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reactor_coord.engine.events import StepStarted
from reactor_coord.engine.settlement import Settlement
from reactor_coord.engine.states import ExecutionStatus, StepStatus, is_terminal
from reactor_coord.engine.step_transitions import StepMove
from reactor_coord.errors import ReactorCoordError
from reactor_coord.results import Failure, Halt, Result, Skipped, Success
from reactor_coord.runtime import steps, unit_keys, units
from reactor_coord.runtime.dispatch import send
from reactor_coord.storage import clock, codec, elements

if TYPE_CHECKING:
    from reactor_coord.declare.definition import StepDefinition
    from reactor_coord.models import Execution
    from reactor_coord.runtime.tree import Frame


def dispatch(frame: Frame, step: StepDefinition) -> None:
    """Insert the unit with the step's record in one transaction, then send its message. Refused, nothing is left behind."""
    attempt = steps.Attempt(frame, step)
    frame.tree.lease.check()
    early = attempt.prepare(guards=False)
    if early is not None:
        return steps.conclude(frame, step, attempt.close(early))
    try:
        unit_keys.check(frame, step, attempt.arguments)
        unit = units.new_unit(frame, step, attempt.arguments)
    except ReactorCoordError as error:
        return steps.conclude(frame, step, attempt.close(attempt.settle(Failure(error, retryable=False), began=False)))
    frame.tree.batch.new_executions.append(unit)
    run = attempt.run
    run.attempts, run.started_at = 1, clock.present()
    run.arguments = steps.encode_arguments(attempt.arguments, step.redacted)
    frame.tree.move_step(run, StepMove.DISPATCH)
    frame.point_at_next()
    frame.emit(StepStarted(step=step.name, attempt=run.attempts))
    frame.tree.save()
    send(str(unit.id), unit.queue, is_start=True)


def await_result(frame: Frame, step: StepDefinition) -> None:
    """Settle the step from its unit's end; park, or look again, while that is to come."""
    unit = next(iter(elements.of_step(frame.execution.id, step.name)), None)
    attempt = steps.Attempt(frame, step)
    if unit is None or is_terminal(unit.status):
        settlement = _settle(attempt, unit)
        if settlement.status == StepStatus.FAILED and unit is not None and step.options.get("fails_parent") is False:
            settlement = replace(settlement, contained=True)
        return steps.conclude(frame, step, attempt.close(settlement))
    try:
        units.wait_for(frame, step, [unit])
    except TimeoutError as error:
        steps.conclude(frame, step, attempt.close(attempt.settle(Failure(error, retryable=False), began=False)))


def _settle(attempt: steps.Attempt, unit: Execution | None) -> Settlement:
    began = unit is not None and unit.status in {ExecutionStatus.COMPLETED, ExecutionStatus.HALTED}
    return attempt.settle(_result_of(unit), began=began)


def _result_of(unit: Execution | None) -> Result:
    if unit is None:
        return Failure("its unit is gone: the row was deleted", retryable=False)
    value = codec.decode(unit.result) if unit.result is not None else None
    if unit.status == ExecutionStatus.COMPLETED:
        return Success(value)
    if unit.status == ExecutionStatus.HALTED:
        has_door = bool(units.definition_of(unit.reactor).coordination)
        is_left_out = has_door and unit.admitted_at is None
        return Skipped(None, unit.reason) if is_left_out else Halt(value, unit.reason)
    return Failure(units.failure_of(unit), retryable=False)
