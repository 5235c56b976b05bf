"""What operators may do: one function a verb, the same behind the admin, the API, the commands and the models.

Each is one conditional change of the row, told in the trace with who did it and why, and a message after the commit.
What the state does not allow is refused with `ExecutionConflict`, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from reactor_coord.declare import registry
from reactor_coord.engine import transitions
from reactor_coord.engine.events import (
    Event,
    ExecutionCancelled,
    ExecutionCancelRequested,
    ExecutionRollingBack,
    OperatorActed,
)
from reactor_coord.engine.records import Failure
from reactor_coord.engine.states import ROLLED_BACK, ExecutionStatus, StepStatus, is_terminal
from reactor_coord.engine.transitions import Move, Transition
from reactor_coord.errors import ExecutionConflict, InputValidationError, UnknownReactor
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.runtime import finish, pausing, stopping, units
from reactor_coord.runtime.dispatch import send
from reactor_coord.runtime.outcome import ExecutionHandle
from reactor_coord.storage import clock, codec, elements, journal, pauses, store


def start(
    name: str,
    inputs: Mapping[str, Any],
    *,
    background: bool = True,
    queues: Collection[str] | None = None,
    **options: Any,
) -> Any:
    """Start a reactor that the code has, by its name: an `ExecutionHandle` in the background, an `Outcome` here.

    `queues`: what may be asked for beside the reactor's own queue; None: any. Raises `UnknownReactor`, `InputValidationError`
    (of a queue that is not open, too), `NotRunnable`.
    """
    definition = registry.registered(name)
    queue = options.get("queue")
    if queues is not None and queue and queue not in {definition.queue, *queues}:
        problem = "is not open to requests: leave it out, or have REACTOR_COORD['API_QUEUES'] name it"
        raise InputValidationError(f"The queue {queue!r} {problem}.", fields={"queue": [problem]})
    prepared = definition.cls.options(**options)
    return prepared.enqueue(**inputs) if background else prepared.run(**inputs)


def cancel(execution: Execution, *, reason: str = "", actor: str = "", rollback: bool = True) -> None:
    """End it; what was done is undone, under its locks, in a worker. A running one ends at its next step boundary.

    With `rollback=False` what it did stands, its open steps are closed, and what it handed off ends as it stands, too.
    """
    row = _root(execution, "cancel")
    if is_terminal(row.status) or row.status == ExecutionStatus.ROLLING_BACK:
        raise _conflict(row, "be cancelled")
    if not rollback and row.parent_id is not None:
        raise _conflict(
            row, "be cancelled without a rollback", "its parent would fail and roll back: cancel that one so"
        )
    asked = ExecutionCancelRequested(reason=reason, actor=actor, as_it_stands=not rollback)
    if row.lease_token:
        notes = _notes(row, asked)
        if not store.request_cancel(row.id, reason=reason, as_it_stands=not rollback, trace=_rows(notes)):
            raise _conflict(row, "be cancelled")
        return _publish(notes)
    has_begun = row.workers_lost > 0 or any(run.status != StepStatus.PENDING for run in store.step_runs([row.id]))
    if has_begun and not rollback:
        if not stopping.stop_idle(row, reason, [asked]):  # it has been taken up since
            cancel(_fresh(row), reason=reason, actor=actor, rollback=False)
        return
    if has_begun and row.status == ExecutionStatus.NEEDS_DEFINITION:
        _refuse_without_definition(row)
    cancelled = (
        transitions.cancel_begun(_look_at(), reason)
        if has_begun
        else transitions.cancel_unbegun(clock.present(), reason)
    )
    follows = ExecutionRollingBack(reason=reason or "cancelled") if has_begun else ExecutionCancelled(reason=reason)
    notes = _notes(row, asked, follows)
    if not store.apply(row, cancelled, trace=_rows(notes), unchanged_since=row.updated_at):  # it has begun since
        return cancel(_fresh(row), reason=reason, actor=actor, rollback=rollback)
    _publish(notes)
    store.on_commit(lambda: _let_go(row, message=has_begun))


def _refuse_without_definition(row: Execution) -> None:
    """What it did can be undone by the code that has its reactor alone: a worker would set it aside again, and it never ended."""
    try:
        units.definition_of(row.reactor)
    except UnknownReactor as error:
        raise ExecutionConflict(
            f"Execution {row.id} cannot be cancelled: what it did can be undone only by code that has its reactor ({error}). "
            "Deploy that and resume it, or end it as it stands with cancel(rollback=False)",
            execution_id=str(row.id),
            status=row.status,
            verb="be cancelled",
        ) from error


def _let_go(row: Execution, *, message: bool) -> None:
    """Leave the line at once, so that the next one is not kept waiting; holds kept go when nothing is undone under them."""
    finish.leave_waited(row, row.waits_on)
    if message:
        send(str(row.id), row.queue)
    else:
        finish.let_go_of_kept(row, row.parked_holds)
        finish.leave_reserved(row)


def undo(execution: Execution, *, reason: str = "", actor: str = "") -> None:
    """Undo what a finished execution did, newest first; after an incomplete rollback, just what stayed undone."""
    row = _root(execution, "undo")
    left = row.why_failed if row.status == ExecutionStatus.FAILED else None
    is_incomplete = left is not None and left.is_incomplete
    if not transitions.is_possible(row.status, Move.UNDO) and not is_incomplete:
        ended = "closed" if left is not None and left.closed_at else "complete"
        raise _conflict(
            row, "be undone" if row.status != ExecutionStatus.FAILED else f"be undone again: its rollback is {ended}"
        )
    acted = OperatorActed(verb="undo", reason=reason, actor=actor)
    notes = _notes(row, acted, ExecutionRollingBack(reason=reason or "undone"))
    undone = _undo_again(left) if left is not None else transitions.undo(_look_at(), reason or "undone")
    with store.atomic():
        if not store.apply(row, undone, trace=_rows(notes)):
            raise _conflict(_fresh(row), "be undone")
        if is_incomplete:
            _reopen(row)
    _publish(notes)
    store.on_commit(lambda: send(str(row.id), row.queue))


def _undo_again(failure: Failure) -> Transition:
    return transitions.undo_again(_look_at(), replace(failure, rollback_failures=()))


def _reopen(row: Execution) -> None:
    """Have what stayed undone tried again, in the units of the tree too: its rollback takes those up."""
    for unit, failure in elements.left_undone(row.id):
        if store.apply(unit, _undo_again(failure), unchanged_since=unit.updated_at):
            _reopen(unit)
    store.reopen_undos(row.id)


def close(execution: Execution, *, reason: str, actor: str = "") -> None:
    """Count an incomplete rollback as dealt with by hand: what it left undone stays listed, and is not tried again.

    Afterwards the execution can be retried. Raises `ExecutionConflict` where no rollback is incomplete, and without a reason.
    """
    row = _root(execution, "be closed")
    failure = row.why_failed if row.status == ExecutionStatus.FAILED else None
    if failure is None or not failure.is_incomplete:
        raise _conflict(row, "be closed: no rollback of it is incomplete")
    if not reason.strip():
        raise ExecutionConflict(
            f"Execution {row.id} is closed with a reason: say what became of what its rollback left",
            execution_id=str(row.id),
            status=row.status,
            verb="be closed",
        )
    note = journal.note(row, OperatorActed(verb="close", reason=reason, actor=actor))
    with store.atomic():
        if not _close(row, failure, reason, actor, trace=[journal.row(note)]):
            raise _conflict(_fresh(row), "be closed")
    journal.publish(note)


def _close(row: Execution, failure: Failure, reason: str, actor: str, trace: list[TraceEvent]) -> bool:
    """Close the rollback of a row and of the units of its tree that were rolled back with it."""
    closed = replace(failure, closed_at=clock.present().timestamp(), closed_by=actor, closed_because=reason)
    units_left = elements.left_undone(row.id)
    transition = transitions.close_rollback(closed, f"rollback closed by hand: {reason}")
    if not store.apply(row, transition, trace=trace, unchanged_since=row.updated_at):
        return False
    store.close_undos(row.id)
    for unit, left in units_left:
        _close(unit, left, reason, actor, trace=[])
    return True


def resume(
    execution: Execution, *, payload: Any = None, step: str | None = None, reason: str = "", actor: str = ""
) -> None:
    """Answer what a paused execution asks, or take up again, where it stopped, what was aborted or lacked its definition.

    `step` names the question where there are several. Raises `InputValidationError` for a payload it does not accept.
    """
    row = _root(execution, "resume")
    if row.status == ExecutionStatus.PAUSED:
        return _answer(row, payload, step, reason=reason, actor=actor)
    if not transitions.is_possible(row.status, Move.RESUME):
        raise _conflict(row, "be resumed")
    units.definition_of(row.reactor)
    note = journal.note(row, OperatorActed(verb="resume", reason=reason, actor=actor))
    resumed = transitions.resume(_look_at(), turned_back=row.has_turned_back)
    if not store.apply(row, resumed, trace=[journal.row(note)]):
        raise _conflict(_fresh(row), "be resumed")
    journal.publish(note)
    store.on_commit(lambda: send(str(row.id), row.queue))


def _answer(row: Execution, payload: Any, step: str | None, *, reason: str, actor: str) -> None:
    questions = [run for run in pauses.of_tree(row.id) if step is None or run.step == step]
    if len(questions) != 1:
        names = ", ".join(run.step for run in pauses.of_tree(row.id)) or "none"
        if questions:
            problem = f"has {len(questions)} open questions; name one as step="
        else:
            problem = f"asks nothing at step {step!r}" if step else "asks nothing now"
        raise ExecutionConflict(
            f"Execution {row.id} {problem} (open: {names})",
            execution_id=str(row.id),
            status=row.status,
            verb="be resumed",
        )
    pausing.answer_run(questions[0], payload, reason=reason, actor=actor)


def retry(execution: Execution, *, from_step: str | None = None, reason: str = "", actor: str = "") -> ExecutionHandle:
    """Start a new execution with the same inputs; the failed one stays as it is, and the two name each other.

    Asked several times, there is one. It is new, because what the old one did is undone: its idempotency keys belong to
    effects that were taken back.
    """
    row = _root(execution, "retry")
    if row.status not in ROLLED_BACK:
        raise _conflict(row, "be retried")
    if row.cancel_as_it_stands and row.status == ExecutionStatus.CANCELLED:
        raise _conflict(row, "be retried", "it was cancelled with nothing undone, and a retry would do it all again")
    if row.why_failed is not None and row.why_failed.is_incomplete:
        raise ExecutionConflict(
            f"Execution {row.id} has an incomplete rollback: undo it, or close it by hand, then retry",
            execution_id=str(row.id),
            status=row.status,
            verb="be retried",
        )
    if from_step is not None:
        raise ExecutionConflict(
            f"Execution {row.id} cannot be retried from {from_step!r}: its earlier steps are undone. Retry it whole",
            execution_id=str(row.id),
            status=row.status,
            verb="be retried",
        )
    definition = registry.lookup(row.reactor)
    prepared = definition.cls.options(
        queue=row.queue or None,
        tags={**row.tags, "retry_of": str(row.id)},
        idempotency_key=f"retry_of:{row.id}",
    )
    with store.atomic():
        handle: ExecutionHandle = prepared.enqueue(**codec.decode(row.inputs))
        if not handle.created:
            return _as_retried_before(row, handle)
        told = OperatorActed(verb="retry", reason=reason, actor=actor, retried_as=str(handle.id))
        note = journal.note(row, told, definition=definition)
        store.record([journal.row(note)])
    journal.publish(note)
    return handle


def _as_retried_before(row: Execution, handle: ExecutionHandle) -> ExecutionHandle:
    """Asked twice, there is one retry; when that one is over, it is the one to retry."""
    status = handle.status
    if is_terminal(status):
        raise ExecutionConflict(
            f"Execution {row.id} was retried already, as {handle.id}, which is {status}: look at that one",
            execution_id=str(row.id),
            status=row.status,
            verb="be retried",
        )
    return handle


def _root(execution: Execution, verb: str) -> Execution:
    row = _fresh(execution)
    if not row.is_root:
        raise ExecutionConflict(
            f"Execution {row.id} is part of {row.root_id}: {verb} that one",
            execution_id=str(row.id),
            status=row.status,
            verb=verb,
        )
    return row


def _fresh(execution: Execution) -> Execution:
    return Execution.objects.using(store.alias()).get(pk=execution.pk)


def _conflict(row: Execution, verb: str, why: str = "") -> ExecutionConflict:
    message = f"Execution {row.id} is {row.status}: it cannot {verb}, for {why}." if why else ""
    return ExecutionConflict(message, execution_id=str(row.id), status=row.status, verb=verb)


def _notes(row: Execution, *told: Event) -> list[journal.Note]:
    return [journal.note(row, event) for event in told]


def _rows(notes: Iterable[journal.Note]) -> list[TraceEvent]:
    return [journal.row(note) for note in notes]


def _publish(notes: Iterable[journal.Note]) -> None:
    for note in notes:
        journal.publish(note)


def _look_at() -> Any:
    return units.look_at()
