"""What operators may do: one function a verb, the same behind the admin, the API, the commands and the models.

Each is one conditional change of the row, told in the trace with who did it and why, and a message after the commit.
What the state does not allow is refused with `ExecutionConflict`, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from reactor_coord import conf
from reactor_coord.declare import registry
from reactor_coord.engine.states import EventKind, ExecutionStatus, Mode, StepStatus, is_terminal
from reactor_coord.errors import ExecutionConflict
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.runtime import events, finish, pausing, units
from reactor_coord.runtime.dispatch import send
from reactor_coord.runtime.outcome import ExecutionHandle
from reactor_coord.storage import clock, codec, elements, pauses, store

UNDOABLE = frozenset({ExecutionStatus.COMPLETED, ExecutionStatus.HALTED, ExecutionStatus.ABORTED})
RESUMABLE = frozenset({ExecutionStatus.ABORTED, ExecutionStatus.NEEDS_DEFINITION})
IDLE = frozenset(
    {ExecutionStatus.READY, ExecutionStatus.PARKED, ExecutionStatus.PAUSED, ExecutionStatus.NEEDS_DEFINITION}
)


def start(name: str, inputs: Mapping[str, Any], *, background: bool = True, **options: Any) -> Any:
    """Start a reactor by name: an `ExecutionHandle` in the background, an `Outcome` here.

    Raises `UnknownReactor`, `InputValidationError`, `NotRunnable`.
    """
    prepared = registry.lookup(name).cls.options(**options)
    return prepared.enqueue(**inputs) if background else prepared.run(**inputs)


def cancel(execution: Execution, *, reason: str = "", actor: str = "") -> None:
    """End it; what was done is undone, under its locks, in a worker. A running one ends at its next step boundary."""
    row = _root(execution, "cancel")
    if is_terminal(row.status) or row.status == ExecutionStatus.ROLLING_BACK:
        raise _conflict(row, "be cancelled")
    note = _note(row, EventKind.CANCEL_REQUESTED, "cancel", reason, actor)
    if row.lease_token:
        if not store.request_cancel(row.id, reason=reason, trace=[note]):
            raise _conflict(row, "be cancelled")
        events.publish(note, None)
        return
    has_begun = any(run.status != StepStatus.PENDING for run in store.step_runs([row.id]))
    status = ExecutionStatus.ROLLING_BACK if has_begun else ExecutionStatus.CANCELLED
    changes: dict[str, Any] = {"status": status, "cancel_requested": True, "cancel_reason": reason, "park_kind": ""}
    if has_begun:
        changes |= {"resume_at": _look_at(), "mode": Mode.WORKER, "workers_lost": 0}
    else:
        changes |= {
            "resume_at": None,
            "finished_at": clock.present(),
            "reason": reason,
            "waiting_on": None,
            "holds_kept": [],
        }
    if not store.change(row.id, expect=IDLE, changes=changes, trace=[note], as_of=row.updated_at):  # it has begun since
        return cancel(_fresh(row), reason=reason, actor=actor)
    events.publish(note, None)
    store.on_commit(lambda: _let_go(row, message=has_begun))


def _let_go(row: Execution, *, message: bool) -> None:
    """Leave the line at once, so that the next one is not kept waiting; holds kept go when nothing is undone under them."""
    if row.waiting_on and row.waiting_on.get("keys"):
        finish.leave_waited(row, row.waiting_on)
    if message:
        send(str(row.id), row.queue)
    else:
        finish.let_go_of_kept(row, row.holds_kept or [])
        finish.leave_reserved(row)


def undo(execution: Execution, *, reason: str = "", actor: str = "") -> None:
    """Undo what a finished execution did, newest first; after an incomplete rollback, just what stayed undone."""
    row = _root(execution, "undo")
    is_incomplete = row.status == ExecutionStatus.FAILED and bool((row.failure or {}).get("rollback_failures"))
    if row.status not in UNDOABLE and not is_incomplete:
        raise _conflict(
            row, "be undone" if row.status != ExecutionStatus.FAILED else "be undone again: its rollback is complete"
        )
    note = _note(row, EventKind.OPERATOR, "undo", reason, actor)
    changes: dict[str, Any] = {
        "status": ExecutionStatus.ROLLING_BACK,
        "mode": Mode.WORKER,
        "resume_at": _look_at(),
        "finished_at": None,
        "reason": "",
        "workers_lost": 0,
    }
    if is_incomplete:
        changes["failure"] = {**(row.failure or {}), "rollback_failures": []}
    else:
        changes |= {"failure": None, "cancel_reason": reason or "undone"}
    with store.atomic():
        if not store.change(row.id, expect={ExecutionStatus(row.status)}, changes=changes, trace=[note]):
            raise _conflict(_fresh(row), "be undone")
        if is_incomplete:
            _reopen(row)
    events.publish(note, None)
    store.on_commit(lambda: send(str(row.id), row.queue))


def _reopen(row: Execution) -> None:
    """Have what stayed undone tried again, in the units of the tree too: its rollback takes those up."""
    for unit in elements.left_undone(row.id):
        changes = {
            "status": ExecutionStatus.ROLLING_BACK,
            "resume_at": _look_at(),
            "finished_at": None,
            "reason": "",
            "workers_lost": 0,
            "failure": {**(unit.failure or {}), "rollback_failures": []},
        }
        if store.change(unit.id, expect={ExecutionStatus.FAILED}, changes=changes, as_of=unit.updated_at):
            _reopen(unit)
    store.reopen_undos(row.id)


def resume(
    execution: Execution, *, payload: Any = None, step: str | None = None, reason: str = "", actor: str = ""
) -> None:
    """Answer what a paused execution asks, or take up again, where it stopped, what was aborted or lacked its definition.

    `step` names the question where there are several. Raises `InputValidationError` for a payload it does not accept.
    """
    row = _root(execution, "resume")
    if row.status == ExecutionStatus.PAUSED:
        return _answer(row, payload, step, reason=reason, actor=actor)
    if row.status not in RESUMABLE:
        raise _conflict(row, "be resumed")
    units.definition_of(row.reactor)
    note = _note(row, EventKind.OPERATOR, "resume", reason, actor)
    changes = {
        "status": ExecutionStatus.ROLLING_BACK if row.has_turned_back else ExecutionStatus.READY,
        "mode": Mode.WORKER,
        "resume_at": _look_at(),
        "finished_at": None,
        "reason": "",
    }
    if not store.change(row.id, expect={ExecutionStatus(row.status)}, changes=changes, trace=[note]):
        raise _conflict(_fresh(row), "be resumed")
    events.publish(note, None)
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
    if row.status not in {ExecutionStatus.FAILED, ExecutionStatus.CANCELLED}:
        raise _conflict(row, "be retried")
    if (row.failure or {}).get("rollback_failures"):
        raise ExecutionConflict(
            f"Execution {row.id} has an incomplete rollback: undo it first, then retry",
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
        note = _note(row, EventKind.OPERATOR, "retry", reason, actor)
        note.data["retried_as"] = str(handle.id)
        store.record([note])
    events.publish(note, definition)
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


def _conflict(row: Execution, verb: str) -> ExecutionConflict:
    return ExecutionConflict(execution_id=str(row.id), status=row.status, verb=verb)


def _note(row: Execution, kind: EventKind, verb: str, reason: str, actor: str) -> TraceEvent:
    data = {"verb": verb, "reason": reason, "actor": actor}
    return TraceEvent(root_id=row.root_id or row.id, execution=row, at=clock.present(), kind=kind, data=data)


def _look_at() -> Any:
    return clock.present() + timedelta(seconds=2 * conf.settings().SWEEP_INTERVAL)
