"""`map_each`: one element per item. In a worker each is a unit of its own; in process they run one after the other.

The elements are written before any of it is dispatched, so that what a fan-out is to do does not change under it. At most
a window of them is in flight; each that ends lets the next begin; the last one, or one that failed, wakes the owner.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reactor_coord.declare.references import resolve_arguments
from reactor_coord.engine.settlement import Settlement
from reactor_coord.engine.states import EventKind, ExecutionStatus, StepStatus
from reactor_coord.errors import ReactorCoordError
from reactor_coord.models import Execution
from reactor_coord.results import Decided, Failure, Halt, Result, Success
from reactor_coord.runtime import steps, units, verdicts
from reactor_coord.runtime.dispatch import send
from reactor_coord.storage import clock, codec, elements

if TYPE_CHECKING:
    from reactor_coord.declare.definition import StepDefinition
    from reactor_coord.runtime.tree import Frame

WINDOW = 50
"""Elements in flight where the author names no number."""

CHUNK = 500
"""Rows inserted in one transaction."""


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


def begin(frame: Frame, step: StepDefinition) -> None:
    """Write the elements, or go on writing them, and dispatch the first of them; in process, run them."""
    attempt = steps.Attempt(frame, step)
    frame.tree.lease.check()
    early = _is_skipped(attempt)
    if early is not None:
        return steps.conclude(frame, step, attempt.close(early))
    try:
        items = list(_items(step.options["over"].resolve(frame)))
        if not frame.tree.parks:
            return run_here(attempt, items)
        _write(attempt, items)
    except (verdicts.StepFailed, verdicts.Halted):
        raise
    except Exception as error:  # noqa: BLE001 - whatever the source, the arguments or a key raise fails the step
        return steps.conclude(frame, step, attempt.close(attempt.settle(Failure(error, retryable=False), began=False)))
    if not items:
        return steps.conclude(frame, step, attempt.close(_collect(attempt, [])))
    _throw(frame, step)


def _is_skipped(attempt: steps.Attempt) -> Settlement | None:
    try:
        return None if attempt.is_wanted() else Settlement(StepStatus.SKIPPED, reason="where", began=False)
    except Decided as decided:
        return attempt.settle(decided.result, began=False)
    except BaseException as error:
        if verdicts.is_interruption(error):
            raise
        return attempt.settle(Failure(error, retryable=False), began=False)


def _items(source: Any) -> Iterator[Any]:
    """A list's items; a queryset's rows, read once, in the order of their keys where it names none."""
    if hasattr(source, "iterator") and hasattr(source, "query"):
        ordered = source if source.query.order_by or source.ordered else source.order_by("pk")
        return iter(ordered.iterator(chunk_size=CHUNK))
    if isinstance(source, (str, bytes, dict)) or not hasattr(source, "__iter__"):
        raise TypeError(f"map_each goes over a list or a queryset, not a {type(source).__name__}")
    return iter(source)


def arguments_of(frame: Frame, step: StepDefinition, item: Any) -> dict[str, Any]:
    """Resolve and validate one element's arguments."""
    definition = units.unit_definition(frame.definition, step)
    names = frozenset(step.arguments) & frozenset(definition.schema.fields)
    return definition.schema.validate(resolve_arguments(step.arguments, ElementScope(frame, item), names))


def _write(attempt: steps.Attempt, items: list[Any]) -> None:
    """Insert the elements in chunks; after a kill in the middle, those that are missing."""
    frame, step, run, tree = attempt.frame, attempt.step, attempt.run, attempt.tree
    done = elements.count(frame.execution.id, step.name) if run.status == StepStatus.RUNNING else 0
    run.status, run.attempts = StepStatus.RUNNING, 1
    run.started_at = run.started_at or clock.present()
    for start in range(done, max(len(items), 1), CHUNK):
        for index in range(start, min(start + CHUNK, len(items))):
            arguments = arguments_of(frame, step, items[index])
            units.refuse_if_held(frame, step, arguments)
            tree.batch.new_executions.append(units.new_unit(frame, step, arguments, index=index, is_thrown=False))
        if start + CHUNK >= len(items) and items:
            run.status = StepStatus.DISPATCHED
        tree.write(run)
        tree.save()


def _throw(frame: Frame, step: StepDefinition) -> None:
    """Fill the window."""
    window = step.options.get("concurrency") or step.options.get("batch_size") or WINDOW
    free = window - elements.in_flight(frame.execution.id, step.name)
    if free > 0:
        for each in elements.throw(frame.execution.id, step.name, free, units.look_at()):
            send(str(each), frame.tree.root.queue, is_start=True)


def await_elements(frame: Frame, step: StepDefinition) -> None:
    """Settle the map when its elements are over, or one has failed; else keep the window full and park."""
    counts = elements.counts(frame.execution.id, step.name)
    attempt = steps.Attempt(frame, step)
    is_over = not any(counts.get(status, 0) for status in OPEN)
    has_failed = any(counts.get(status, 0) for status in UNSUCCESSFUL)
    if is_over or (has_failed and step.options["fail_fast"]) or counts.get(ExecutionStatus.HALTED, 0):
        return steps.conclude(frame, step, attempt.close(_settle(attempt, frame, step, has_failed=has_failed)))
    _throw(frame, step)
    try:
        units.wait_for(frame, step, [])
    except TimeoutError as error:
        steps.conclude(frame, step, attempt.close(attempt.settle(Failure(error, retryable=False), began=False)))


OPEN = frozenset({
    ExecutionStatus.READY, ExecutionStatus.RUNNING, ExecutionStatus.PARKED, ExecutionStatus.PAUSED,
    ExecutionStatus.ROLLING_BACK, ExecutionStatus.NEEDS_DEFINITION,
})  # fmt: skip
UNSUCCESSFUL = frozenset({ExecutionStatus.FAILED, ExecutionStatus.CANCELLED, ExecutionStatus.ABORTED})


def _settle(attempt: steps.Attempt, frame: Frame, step: StepDefinition, *, has_failed: bool) -> Settlement:
    if has_failed:
        failed = elements.first(frame.execution.id, step.name, UNSUCCESSFUL)
        error: Any = units.failure_of(failed) if failed is not None else "an element failed"
        return attempt.settle(Failure(error, retryable=False), began=False)
    halted = elements.first(frame.execution.id, step.name, {ExecutionStatus.HALTED})
    if halted is not None:
        return attempt.settle(Halt(None, halted.reason))
    with contextlib.closing(elements.results(frame.execution.id, step.name)) as results:
        values = [codec.decode(result) if result is not None else None for result in results]
    return _collect(attempt, values)


def _collect(attempt: steps.Attempt, values: list[Any]) -> Settlement:
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


# ---- in process


def run_here(attempt: steps.Attempt, items: list[Any]) -> None:
    """Run the elements one after the other, each a child of this execution."""
    frame, step, run, tree = attempt.frame, attempt.step, attempt.run, attempt.tree
    run.status, run.attempts = StepStatus.RUNNING, 1
    run.started_at = run.started_at or clock.present()
    tree.write(run)
    values = [_run_element(frame, step, index, item) for index, item in enumerate(items)]
    steps.conclude(frame, step, attempt.close(_collect(attempt, values)))


def _run_element(frame: Frame, step: StepDefinition, index: int, item: Any) -> Any:
    from reactor_coord.runtime.nested import forward

    try:
        arguments = arguments_of(frame, step, item)
    except ReactorCoordError as error:
        settlement = Settlement(StepStatus.FAILED, error=error, began=False, retryable=False)
        steps.turn_back(frame, step.name, settlement, {}, frozenset())
        frame.tree.save()
        raise verdicts.StepFailed(frame, step.name, settlement) from error
    child = frame.new_child(step, units.unit_definition(frame.definition, step), arguments, index=index)
    child.emit(EventKind.STARTED, index=index)
    frame.tree.save()
    value = forward(child)
    encoded = codec.encode(value)
    frame.tree.change(child.execution, status=ExecutionStatus.COMPLETED, result=encoded, finished_at=clock.present())
    child.emit(EventKind.COMPLETED, index=index)
    frame.tree.save()
    frame.tree.give(child.holds, steps.ending_of(Settlement(StepStatus.SUCCEEDED)))
    return codec.decode(encoded)


def elements_of(frame: Frame, step: StepDefinition) -> list[Execution]:
    """The elements that were dispatched, the last one first: the order in which they are undone."""
    return elements.of_step(frame.execution.id, step.name, newest_first=True)
