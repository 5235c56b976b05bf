"""The one runner: a web process, a worker and a test run a tree the same way.

`run_tree` takes a root that this process has leased, goes forward or rolls back, and leaves its row parked or over.
`deliver` is what a message comes to: claim, run, or note that somebody else does.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from reactor_coord import conf, probes
from reactor_coord.declare.definition import ReactorDefinition
from reactor_coord.engine.settlement import Settlement, losses_allowed
from reactor_coord.engine.states import EventKind, ExecutionStatus, Mode, StepStatus, is_terminal
from reactor_coord.errors import LeaseLost, ReactorCoordError, UnknownReactor, WorkerLost
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.runtime import cleanup, finish, steps, verdicts
from reactor_coord.runtime.dispatch import send
from reactor_coord.runtime.gates import Ending
from reactor_coord.runtime.lease import Lease, keeper, lease_ttl
from reactor_coord.runtime.nested import forward
from reactor_coord.runtime.parking import Parked
from reactor_coord.runtime.tree import Frame, Tree, definition_of, is_rolling_back, root_frame
from reactor_coord.storage import clock, codec, store

logger = logging.getLogger("reactor_coord")

CLAIM_ROUNDS = 3
"""A row can change hands between a failed claim and the note left for its runner; not this often without a message."""

EARLY = timedelta(seconds=0.02)


def deliver(execution_id: UUID | str, worker: str) -> None:
    """Handle one message: run the execution if it may run now. A message too many, or for nothing, does nothing."""
    try:
        execution_id = UUID(str(execution_id))
    except ValueError:
        logger.warning("event=reactor_coord.message_for_nothing execution=%r", execution_id)
        return
    for _ in range(CLAIM_ROUNDS):
        row = store.claim(execution_id, worker=worker)
        if row is not None:
            probes.reached("claim.after")
            return _run_claimed(row)
        if store.request_wake(execution_id):
            return
        found = store.load(execution_id)
        if found is None:
            logger.warning("event=reactor_coord.message_for_nothing execution=%s", execution_id)
            return
        if is_terminal(found.status) or not found.is_root:
            return _pass_on(found)
        if found.status == ExecutionStatus.NEEDS_DEFINITION:
            return


def take_up(execution_id: UUID) -> bool:
    """Run an execution here and now if nobody else does; False when it cannot be had."""
    row = store.claim(execution_id, worker=worker_name())
    if row is not None:
        _run_claimed(row)
    return row is not None


def _pass_on(row: Execution) -> None:
    """A grant that came to an execution that is over goes on to the next in line."""
    if row.waiting_on and row.waiting_on.get("keys"):
        finish.leave_waited(row, row.waiting_on)


def _run_claimed(row: Execution) -> None:
    lease = Lease(row.id, row.lease_token, lease_ttl())
    try:
        definition = definition_of(row)
    except UnknownReactor as error:
        return _set_aside(row, lease, str(error))
    tree = Tree.load(row, lease, definition)
    if _is_too_early(row):
        return _put_back(tree)
    if row.status == ExecutionStatus.RUNNING:
        _tell_begin(tree, root_frame(tree, definition))
    run_tree(tree, definition)


def _is_too_early(row: Execution) -> bool:
    """Whether a stray message came to an execution that waits for its time and not for a key."""
    waited = row.waiting_on
    if not isinstance(waited, Mapping) or not waited.get("timed") or row.cancel_requested:
        return False
    try:
        return clock.present() < datetime.fromisoformat(waited["until"]) - EARLY
    except (KeyError, TypeError, ValueError):  # not a note of ours: it keeps nobody from running
        return False


def _put_back(tree: Tree) -> None:
    """Let it wait on. The message of its own time may have come and gone meanwhile: then it needs another."""
    tree.change(tree.root, status=ExecutionStatus.PARKED)
    if store.park(tree.root.id, tree.lease.token, tree.take_batch()):
        left = datetime.fromisoformat((tree.root.waiting_on or {})["until"]) - clock.present()
        send(tree.id, tree.root.queue, max(0.0, min(left.total_seconds(), conf.settings().SWEEP_INTERVAL)))


def _set_aside(row: Execution, lease: Lease, reason: str) -> None:
    """A row whose reactor this code does not have waits for a deploy that has it; nothing of it is failed or undone."""
    logger.error("event=reactor_coord.needs_definition execution=%s reactor=%s", row.id, row.reactor)
    tree = Tree(row, lease)
    tree.change(row, status=ExecutionStatus.NEEDS_DEFINITION, reason=reason, resume_at=None)
    store.park(row.id, lease.token, tree.take_batch())


def _tell_begin(tree: Tree, frame: Frame) -> None:
    """Note the beginning, or the taking up again, with the next transaction."""
    root = tree.root
    if root.started_at is None:
        tree.change(root, started_at=clock.present())
        frame.emit(EventKind.STARTED, worker=root.worker)
    elif root.park_kind:
        waited = root.waiting_on or {}
        frame.emit(
            EventKind.WOKEN,
            step=waited.get("step", ""),
            primitive=waited.get("primitive", ""),
            key=waited.get("key", ""),
            worker=root.worker,
            park_kind=root.park_kind,
        )
    if root.park_kind or root.waiting_on:
        tree.batch.executions.setdefault(root.id, {}).update(park_kind="", waiting_on=None, holds_kept=[])


def run_tree(tree: Tree, definition: ReactorDefinition) -> Frame:
    """Run a leased tree until it is over or parked; returns the root's frame, whose row says which.

    Interruptions (a signal, an exit, a caller's own timeout) pass through unchanged: in a worker the row becomes ready
    again, in process it is marked aborted.
    """
    frame = root_frame(tree, definition)
    keeper.watch(tree.lease)
    try:
        _run(frame)
    except LeaseLost as error:
        logger.warning("event=reactor_coord.lease_lost execution=%s error=%s", tree.id, error)
        if tree.root.mode == Mode.INLINE:
            raise
    except BaseException as error:
        if verdicts.is_interruption(error):
            _interrupted(frame, error)
        raise
    finally:
        keeper.forget(tree.lease)
        tree.give(list(tree.holds), Ending.ABANDONED)
    return frame


def _run(frame: Frame) -> None:
    tree = frame.tree
    try:
        if not is_rolling_back(tree):
            _bound_deaths(frame)
            return _go_forward(frame)
    except Parked as parked:
        return finish.park(frame, parked)
    except verdicts.HandedOver:
        return finish.hand_over(frame)
    except verdicts.Halted as halted:
        return _halt(frame, halted)
    except verdicts.StepFailed:
        pass
    except verdicts.Cancelled:
        tree.lost_workers = 0  # they died on the way forward: no cleanup has cost any
        tree.change(tree.root, status=ExecutionStatus.ROLLING_BACK, failure=None)
        frame.emit(EventKind.ROLLING_BACK, reason=tree.root.cancel_reason or "cancelled")
    _roll_back(frame)


def _bound_deaths(frame: Frame) -> None:
    """Fail a reactor whose workers die before a step can be blamed: being admitted, or reading what it kept."""
    tree = frame.tree
    floor = conf.settings().MAX_WORKER_LOSSES
    allowed = max(losses_allowed(step.retry, floor) for step in frame.definition.steps.values())
    if tree.lost_workers <= allowed:
        return
    deaths, tree.lost_workers = tree.lost_workers, 0
    error = WorkerLost(
        f"{frame.definition.label} cost {deaths} workers their lives outside its steps; it is not tried again",
        reactor=frame.definition.label,
        count=deaths,
    )
    settlement = Settlement(StepStatus.FAILED, error=error, began=False, retryable=False)
    steps.turn_back(frame, "", settlement, {}, frozenset())
    tree.save()
    raise verdicts.StepFailed(frame, "", settlement)


def _go_forward(frame: Frame) -> None:
    value = forward(frame)
    if frame.execution.status == ExecutionStatus.COMPLETED:  # folded into the last step's transaction
        return finish.let_go(frame.tree, Ending.SUCCEEDED)
    try:
        finish.complete(frame, value)
    except ReactorCoordError as error:
        if isinstance(error, LeaseLost):
            raise
        settlement = Settlement(StepStatus.FAILED, error=error, began=False, retryable=False)
        frame.tree.change(frame.execution, finished_at=None)
        steps.turn_back(frame, "", settlement, frame.legible_inputs, frame.definition.schema.redacted)
        raise verdicts.StepFailed(frame, "", settlement) from error


def _halt(frame: Frame, halted: verdicts.Halted) -> None:
    finish.end(
        frame,
        ExecutionStatus.HALTED,
        EventKind.HALTED,
        {"reason": halted.reason},
        result=codec.encode(halted.value),
        reason=halted.reason,
    )


def _roll_back(frame: Frame) -> None:
    """Roll back from wherever it stands, then write the end."""
    tree = frame.tree
    finish.leave_lines(tree)
    cleanup.roll_back(frame)
    root = tree.root
    if root.failure is None:
        left = finish.rollback_failures(frame)
        failure = _cancel_failure(frame, left) if left else None
        status, kind = (
            (ExecutionStatus.FAILED, EventKind.FAILED) if left else (ExecutionStatus.CANCELLED, EventKind.CANCELLED)
        )
        return finish.end(
            frame, status, kind, {"reason": root.cancel_reason}, failure=failure, reason=root.cancel_reason
        )
    failure = {**root.failure, "rollback_failures": finish.rollback_failures(frame)}
    told = {"failed_step": failure["step"], "error_type": failure["error_type"], "message": failure["message"]}
    reason = "rollback incomplete" if failure["rollback_failures"] else ""
    return finish.end(frame, ExecutionStatus.FAILED, EventKind.FAILED, told, failure=failure, reason=reason)


def _cancel_failure(frame: Frame, left: list[dict[str, object]]) -> dict[str, object]:
    return {
        "step": "",
        "reactor": frame.definition.label,
        "error_type": "Cancelled",
        "message": frame.tree.root.cancel_reason or "cancelled; its rollback is incomplete",
        "arguments": {},
        "rollback_failures": left,
    }


def _interrupted(frame: Frame, error: BaseException) -> None:
    """Leave the row as after a lost worker, at once: nobody need wait for the lease to run out."""
    tree = frame.tree
    root = tree.root
    is_inline = root.mode == Mode.INLINE and frame.definition.on_crash != "resume"
    columns: dict[str, Any]
    if is_inline:
        columns = {"status": ExecutionStatus.ABORTED, "finished_at": clock.present(), **finish.ENDED}
        columns["reason"] = f"interrupted by {type(error).__name__}"
    else:
        rolling = is_rolling_back(tree)
        columns = {"status": root.status if rolling else ExecutionStatus.READY, "mode": Mode.WORKER}
        columns |= {"resume_at": clock.present(), "workers_lost": root.workers_lost + 1}
    tree.batch = store.Batch()
    tree.lost_workers = 1
    tree.change(root, **columns)
    finish.settle_children(frame, ExecutionStatus.ABORTED if is_inline else ExecutionStatus.READY)
    kind = EventKind.ABORTED if is_inline else EventKind.WORKER_LOST
    tree.trace.append(_event(root, kind, type(error).__name__))
    try:
        store.park(root.id, tree.lease.token, tree.take_batch())
    except Exception as failure:  # noqa: BLE001 - the process is going down: the sweep does it when the lease is over
        logger.warning("event=reactor_coord.interruption_not_noted execution=%s error=%s", root.id, failure)


def _event(root: Execution, kind: EventKind, why: str) -> TraceEvent:
    return TraceEvent(root_id=root.id, execution=root, at=clock.present(), kind=kind, data={"reason": why})


def worker_name() -> str:
    """Name this process in rows."""
    return f"{socket.gethostname()}:{os.getpid()}"
