"""`map_each`: one element per item. In a worker each is a unit of its own; in process they run one after the other.

The elements are written before any of it is dispatched, so that what a fan-out is to do does not change under it. At most
a window of them is in flight; each that ends lets the next begin; the last one, or one that failed, wakes the owner.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from reactor_coord.engine.states import UNSUCCESSFUL, ExecutionStatus, StepStatus
from reactor_coord.engine.step_transitions import StepMove
from reactor_coord.models import Execution
from reactor_coord.results import Decided, Failure
from reactor_coord.runtime import looping, maps, questions, sources, steps, unit_keys, units, verdicts
from reactor_coord.runtime.dispatch import send
from reactor_coord.storage import clock, elements

if TYPE_CHECKING:
    from reactor_coord.declare.definition import StepDefinition
    from reactor_coord.runtime.tree import Frame


def begin(frame: Frame, step: StepDefinition) -> None:
    """Write the elements, or go on writing them, and dispatch the first of them; in process, run them."""
    attempt = steps.Attempt(frame, step)
    frame.tree.lease.check()
    has_begun = attempt.run.status == StepStatus.RUNNING
    refusal = None if has_begun else questions.ask_where_of(attempt)
    if refusal is not None:
        return steps.conclude(frame, step, attempt.close(attempt.settle(refusal, began=False)))
    try:
        source = step.options["over"].resolve(frame)
        if not frame.tree.parks:
            return looping.run(attempt, source)
        if has_begun:
            looping.finish_begun(frame, step)
        _write(attempt, source)
    except (verdicts.StepFailed, verdicts.Halted):
        raise
    except Decided as decided:  # elements may have run by now: what it ends has begun
        return steps.conclude(frame, step, attempt.close(attempt.settle(decided.result)))
    except Exception as error:  # noqa: BLE001 - whatever the source, the arguments or a key raise fails the step
        return steps.conclude(frame, step, attempt.close(attempt.settle(Failure(error, retryable=False), began=False)))
    if attempt.run.status != StepStatus.DISPATCHED:
        counts = elements.counts(frame.execution.id, step.name)
        return steps.conclude(frame, step, attempt.close(maps.settle(attempt, counts)))
    _throw(frame, step)


def _write(attempt: steps.Attempt, source: Any) -> None:
    """Insert the elements in chunks; after a kill in the middle, those that are missing, however the others came to be.

    What a second reading may find otherwise, a list that a function makes, is written as a whole.
    """
    run, tree = attempt.run, attempt.tree
    items = sources.read(source, sources.Cursor.from_json(run.source_cursor))
    size = sources.CHUNK if sources.is_read_alike_again(attempt.step.options["over"], source) else None
    maps.begin_map(attempt)
    is_last = False
    while not is_last:
        portion = list(islice(items, size))
        is_last = size is None or len(portion) < size
        _write_portion(attempt, portion, is_last=is_last)
        tree.save()


def _write_portion(attempt: steps.Attempt, portion: list[tuple[Any, sources.Cursor]], *, is_last: bool) -> None:
    frame, step, run, tree = attempt.frame, attempt.step, attempt.run, attempt.tree
    for item, cursor in portion:
        tree.batch.new_executions.append(_new_element(frame, step, item, cursor.written - 1))
    if portion:
        run.source_cursor = portion[-1][1].to_json()
    if is_last and sources.written(run.source_cursor):
        tree.move_step(run, StepMove.DISPATCH)
        frame.point_at_next()
    tree.write(run)


def _new_element(frame: Frame, step: StepDefinition, item: Any, index: int) -> Execution:
    """The row of one element: to be dispatched, or over already where its `where` is false."""
    skipped = maps.left_out(frame, step, item)
    if skipped is not None:
        row = units.new_unit(frame, step, {}, index=index, is_thrown=False, status=ExecutionStatus.COMPLETED)
        row.started_at = row.finished_at = clock.present()
        row.result = maps.value_left(skipped)
        maps.note_skipped(frame, step, row, skipped)
        return row
    arguments = maps.arguments_of(frame, step, item)
    unit_keys.check(frame, step, arguments)
    return units.new_unit(frame, step, arguments, index=index, is_thrown=False)


def _throw(frame: Frame, step: StepDefinition) -> None:
    """Fill the window."""
    free = units.window_of(step) - elements.in_flight(frame.execution.id, step.name)
    if free > 0:
        for each in elements.throw(frame.execution.id, step.name, free, units.look_at()):
            send(str(each), frame.tree.root.queue, is_start=True)


def await_elements(frame: Frame, step: StepDefinition) -> None:
    """Settle the map when its elements are over, or one has failed; else keep the window full and park."""
    counts = elements.counts(frame.execution.id, step.name)
    attempt = steps.Attempt(frame, step)
    is_over = not any(counts.get(status, 0) for status in OPEN)
    has_failed = any(counts.get(status, 0) for status in UNSUCCESSFUL)
    halts = counts.get(ExecutionStatus.HALTED, 0) > 0 and maps.halted_by_a_body(frame, step) is not None
    if is_over or (has_failed and step.options["fail_fast"]) or halts:
        return steps.conclude(frame, step, attempt.close(maps.settle(attempt, counts)))
    _throw(frame, step)
    try:
        units.wait_for(frame, step, [])
    except TimeoutError as error:
        steps.conclude(frame, step, attempt.close(attempt.settle(Failure(error, retryable=False), began=False)))


OPEN = frozenset({
    ExecutionStatus.READY, ExecutionStatus.RUNNING, ExecutionStatus.PARKED, ExecutionStatus.PAUSED,
    ExecutionStatus.ROLLING_BACK, ExecutionStatus.NEEDS_DEFINITION,
})  # fmt: skip
