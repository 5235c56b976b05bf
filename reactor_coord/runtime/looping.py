"""A map in process: its elements run one after the other, each a child of the execution, in its tree."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reactor_coord.engine import transitions
from reactor_coord.engine.events import ExecutionCompleted, ExecutionStarted
from reactor_coord.engine.settlement import Settlement
from reactor_coord.engine.states import ExecutionStatus, StepStatus
from reactor_coord.errors import ReactorCoordError
from reactor_coord.runtime import cleanup, finish, gates, maps, sources, steps, unit_keys, units, verdicts
from reactor_coord.storage import clock, codec, elements

if TYPE_CHECKING:
    from reactor_coord.declare.definition import StepDefinition
    from reactor_coord.runtime.tree import Frame


def run(attempt: steps.Attempt, source: Any) -> None:
    """Run the elements to the end of the map."""
    frame, step = attempt.frame, attempt.step
    maps.begin_map(attempt)
    for item, cursor in sources.read(source, sources.Cursor()):
        attempt.run.source_cursor = cursor.to_json()
        frame.tree.write(attempt.run)
        _run_element(frame, step, cursor.written - 1, item)
    counts = elements.counts(frame.execution.id, step.name)
    steps.conclude(frame, step, attempt.close(maps.settle(attempt, counts)))


def finish_begun(frame: Frame, step: StepDefinition) -> None:
    """Go on with the element in which an in-process run ended, in its own row: what its body did has one idempotency key."""
    for child in reversed(frame.elements(step, units.unit_definition(frame.definition, step))):
        row = child.execution
        if transitions.is_possible(row.status, transitions.Move.GO_ON):
            frame.tree.move(row, transitions.go_on(turned_back=row.has_turned_back))
        if row.status == ExecutionStatus.RUNNING:
            _run_to_its_end(child)
        elif row.status == ExecutionStatus.ROLLING_BACK:
            _undo_alone(child)


def _run_element(frame: Frame, step: StepDefinition, index: int, item: Any) -> None:
    definition = units.unit_definition(frame.definition, step)
    skipped = maps.left_out(frame, step, item)
    if skipped is not None:
        child = frame.new_child(step, definition, {}, index=index)
        frame.tree.move(child.execution, transitions.complete(clock.present(), maps.value_left(skipped)))
        maps.note_skipped(frame, step, child.execution, skipped)
        return frame.tree.save()
    try:
        arguments = maps.arguments_of(frame, step, item)
        unit_keys.check(frame, step, arguments)
    except ReactorCoordError as error:
        settlement = Settlement(StepStatus.FAILED, error=error, began=False, retryable=False)
        steps.turn_back(frame, step.name, settlement, {}, frozenset())
        frame.tree.save()
        raise verdicts.StepFailed(frame, step.name, settlement) from error
    child = frame.new_child(step, definition, arguments, index=index)
    child.emit(ExecutionStarted(index=index))
    child.point_at_next()
    frame.tree.save()
    _run_to_its_end(child)


def _run_to_its_end(child: Frame) -> None:
    from reactor_coord.runtime.nested import forward, halt_at_the_door

    tree = child.tree
    try:
        encoded = codec.encode(forward(child))
    except verdicts.RefusedAtTheDoor as refused:
        halt_at_the_door(child, refused.reason)
        return tree.save()
    except verdicts.StepFailed:
        if child.execution.status != ExecutionStatus.ROLLING_BACK:
            raise
        return _undo_alone(child)
    tree.move(child.execution, transitions.complete(clock.present(), encoded))
    child.emit(ExecutionCompleted(index=child.execution.element_index))
    tree.save()
    tree.give(child.holds, steps.ending_of(Settlement(StepStatus.SUCCEEDED)))


def _undo_alone(child: Frame) -> None:
    """Undo an element that failed where the map goes on; what of it stays undone is listed with its failure, as a unit's is."""
    tree, row = child.tree, child.execution
    cleanup.roll_back(child)
    if row.why_failed is not None:
        failure = replace(row.why_failed, rollback_failures=finish.rollback_failures(child))
        tree.change(row, failure=failure.to_json())
    tree.move(row, transitions.close(clock.present(), failed=True))
    child.emit(cleanup.failed_child(child, row.why_failed))
    tree.error = None
    tree.save()
    tree.give(child.holds, gates.Ending.FAILED)
