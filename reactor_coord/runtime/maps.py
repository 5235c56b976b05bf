"""What a map is in a worker and in process alike: how an element gets its arguments, and what the map comes to in the end."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reactor_coord import conf
from reactor_coord.declare.references import resolve_arguments
from reactor_coord.engine.events import StepSkipped, StepStarted
from reactor_coord.engine.settlement import Settlement
from reactor_coord.engine.states import UNSUCCESSFUL, ExecutionStatus
from reactor_coord.engine.step_transitions import StepMove
from reactor_coord.models import Execution
from reactor_coord.results import Decided, Failure, Halt, Result, Skipped, Success
from reactor_coord.runtime import questions, steps, units
from reactor_coord.runtime.sources import written
from reactor_coord.storage import clock, codec, elements
from reactor_coord.storage.element_values import ElementValues

if TYPE_CHECKING:
    from reactor_coord.declare.definition import StepDefinition
    from reactor_coord.runtime.tree import Frame


@dataclass(frozen=True, slots=True)
class ElementScope:
    """The frame's scope with an item at hand."""

    frame: Frame
    element: Any

    def input(self, name: str) -> Any:
        """The reactor's input."""
        return self.frame.input(name)

    def result(self, step: str) -> Any:
        """A step's value."""
        return self.frame.result(step)

    def failure(self, step: str) -> Failure | None:
        """How a step failed."""
        return self.frame.failure(step)


def arguments_of(frame: Frame, step: StepDefinition, item: Any) -> dict[str, Any]:
    """Resolve and validate one element's arguments."""
    definition = units.unit_definition(frame.definition, step)
    names = frozenset(step.arguments) & frozenset(definition.schema.fields)
    return definition.schema.validate(resolve_arguments(step.arguments, ElementScope(frame, item), names))


def begin_map(attempt: steps.Attempt) -> None:
    run = attempt.run
    is_first = run.started_at is None
    attempt.tree.move_step(run, StepMove.BEGIN)
    run.attempts = 1
    run.started_at = run.started_at or clock.present()
    if is_first:
        attempt.frame.emit(StepStarted(step=run.step, attempt=run.attempts))


def left_out(frame: Frame, step: StepDefinition, item: Any) -> Skipped | None:
    """Ask a `where` that reads the element whether it runs; a verdict that ends more than the element ends the map."""
    if not questions.asks_each_element(step):
        return None
    refusal = questions.where_says(step, ElementScope(frame, item))
    if refusal is not None and not isinstance(refusal, Skipped):
        raise Decided(refusal)
    return refusal


def note_skipped(frame: Frame, step: StepDefinition, row: Execution, skipped: Skipped) -> None:
    """Tell of an element that is skipped: it takes nothing, and is over at once."""
    row.reason = skipped.reason or ""
    frame.emit(StepSkipped(step=step.name, index=row.element_index, reason=row.reason))


def value_left(skipped: Skipped) -> Any:
    return codec.encode(skipped.value) if skipped.value is not None else None


def settle(attempt: steps.Attempt, counts: Mapping[str, int]) -> Settlement:
    """What the elements came to, once they are over, or one of them ends the map; `counts`: how many are in which status."""
    frame, step = attempt.frame, attempt.step
    gone = written(attempt.run.source_cursor) - sum(counts.values())
    if gone > 0:
        error = f"{gone} of its elements are gone: their rows were deleted"
        return attempt.settle(Failure(error, retryable=False), began=False)
    has_failed = any(counts.get(status, 0) for status in UNSUCCESSFUL)
    if has_failed and (step.options["fail_fast"] or step.options.get("collect") is None):
        failed = elements.first(frame.execution.id, step.name, UNSUCCESSFUL)
        why: Any = units.failure_of(failed) if failed is not None else "an element failed"
        return attempt.settle(Failure(why, retryable=False), began=False)
    halted = halted_by_a_body(frame, step) if counts.get(ExecutionStatus.HALTED) else None
    if halted is not None:
        value = codec.decode(halted.result) if halted.result is not None else None
        return attempt.settle(Halt(value, halted.reason))
    return _collect(attempt, _values(attempt, sum(counts.values())))


def _values(attempt: steps.Attempt, number: int) -> Sequence[Any]:
    """The list of the values; where none collects and it would not fit into the step's row, one that is read when asked."""
    is_collected = attempt.step.options.get("collect") is not None
    values, size = [], 2
    with contextlib.closing(elements.in_order(attempt.frame.execution.id, attempt.step.name)) as rows:
        for row in rows:
            size += codec.size_of(row.result) + 1
            if size > conf.settings().MAX_PAYLOAD_BYTES and not is_collected:
                return ElementValues(attempt.frame.execution.id, attempt.step.name, number)
            values.append(_value_of(row))
    return values


def _value_of(element: Execution) -> Any:
    """Its value; of one that failed, its `Failure`: the map goes on, and its collector judges."""
    if element.status in UNSUCCESSFUL:
        return Failure(units.failure_of(element), retryable=False)
    return codec.decode(element.result) if element.result is not None else None


def halted_by_a_body(frame: Frame, step: StepDefinition) -> Execution | None:
    """The first element in which a body stopped the execution. One whose reactor was not let in at its own door is skipped."""
    has_door = bool(units.unit_definition(frame.definition, step).coordination)
    return elements.first(frame.execution.id, step.name, {ExecutionStatus.HALTED}, admitted=has_door)


def _collect(attempt: steps.Attempt, values: Sequence[Any]) -> Settlement:
    """Make the map's value; a collector that raises fails the map, and its elements are undone."""
    collect = attempt.step.options.get("collect")
    result: Result
    try:
        result = Success(collect(values) if collect is not None else values)
    except Decided as decided:
        result = decided.result
    except Exception as error:  # noqa: BLE001 - whatever it raises is the map's failure
        result = Failure(error, retryable=False)
    return attempt.settle(result)
