"""The one runner: a web process, a worker and a test run a tree the same way.

`run_tree` takes a root that this process has leased, goes forward or rolls back, and leaves its row parked or over.
`deliver` is what a message comes to: claim, run, or note that somebody else does.
"""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from reactor_coord import conf, probes, spans
from reactor_coord.declare.definition import ReactorDefinition
from reactor_coord.engine import events, records, transitions
from reactor_coord.engine.settlement import Settlement
from reactor_coord.engine.states import ExecutionStatus, Mode, StepStatus, is_terminal
from reactor_coord.engine.transitions import Transition
from reactor_coord.errors import LeaseLost, ReactorCoordError, UnknownReactor
from reactor_coord.models import Execution
from reactor_coord.runtime import changed, cleanup, deaths, escapes, finish, steps, stopping, tracing, verdicts
from reactor_coord.runtime.gates import Ending
from reactor_coord.runtime.lease import Lease, keeper, lease_ttl
from reactor_coord.runtime.nested import forward
from reactor_coord.runtime.parking import Parked
from reactor_coord.runtime.tree import Frame, Tree, definition_of, is_rolling_back, root_frame
from reactor_coord.storage import clock, codec, journal, store

logger = logging.getLogger("reactor_coord")

CLAIM_ROUNDS = 3
"""A row can change hands between a failed claim and the note left for its runner; not this often without a message."""

LOOKS_IN_PLACE = 3
"""How often one delivery looks again for wakes that came while it looked; after that the sweep is to look, an interval on."""

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
            return _run_while_asked_for(row, worker)
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
        _run_while_asked_for(row, worker_name())
    return row is not None


def _run_while_asked_for(row: Execution, worker: str) -> None:
    """Run it, and look again in place while its park finds that it was woken meanwhile.

    A park sends no message for a wake: a broker that delivers each message several times would have every copy breed
    more of them. One look answers all the wakes that came before it.
    """
    for _ in range(LOOKS_IN_PLACE):
        if not _run_claimed(row):
            return
        again = store.claim(row.id, worker=worker)
        if again is None:  # a message was quicker: its look is later than the wake, too
            return
        row = again
    if _run_claimed(row):
        _look_soon(row)


def _look_soon(row: Execution) -> None:
    """Have the sweep send its message within an interval, or at the time for which it waits."""
    soon = clock.present() + timedelta(seconds=conf.settings().SWEEP_INTERVAL)
    store.look_by(row.id, max(soon, _time_waited_for(row) or soon))


def _pass_on(row: Execution) -> None:
    """A grant that came to an execution that is over goes on to the next in line."""
    finish.leave_waited(row, row.waits_on)


def _run_claimed(row: Execution) -> bool:
    """Run it until it is over or parked; True when it parked and was woken before that was written."""
    lease = Lease(row.id, row.lease_token, lease_ttl())
    try:
        definition = definition_of(row)
    except UnknownReactor as error:
        _set_aside(row, lease, str(error))
        return False
    try:
        tree = Tree.load(row, lease, definition)
        if _is_too_early(row):
            return _put_back(tree)
        changed.adapt(root_frame(tree, definition))
        reason = changed.misfit(root_frame(tree, definition)) if row.status == ExecutionStatus.RUNNING else ""
        if reason:
            _set_aside(row, lease, reason)
            return False
    except LeaseLost as error:
        logger.warning("event=reactor_coord.lease_lost execution=%s error=%s", row.id, error)
        return False
    except Exception as error:  # noqa: BLE001 - whatever it is: the row says so, and is left to no lease
        escapes.leave_unread(row, lease, definition.label, error)
        return False
    run_tree(tree, definition)
    return tree.is_asked_for


def _is_too_early(row: Execution) -> bool:
    """Whether a stray message came to an execution that waits for its time and not for a key."""
    return not row.cancel_requested and _time_waited_for(row) is not None


def _time_waited_for(row: Execution) -> datetime | None:
    """When its wait is over, if only time ends it and that has not come."""
    waits_on = row.waits_on
    if waits_on is None or not waits_on.timed or waits_on.until is None:
        return None
    return waits_on.until if clock.present() < waits_on.until - EARLY else None


def _put_back(tree: Tree) -> bool:
    """Let it wait on. True when a message came meanwhile, which may have been the one of its own time."""
    tree.move(tree.root, transitions.put_back())
    return store.park(tree.root.id, tree.lease.token, tree.take_batch())


def _set_aside(row: Execution, lease: Lease, reason: str) -> None:
    """A row whose reactor this code does not have waits for a deploy that has it; nothing of it is failed or undone."""
    tree = Tree(row, lease)
    note = journal.note(row, events.ExecutionNeedsDefinition(reason=reason))
    tree.trace.append(journal.row(note))
    tree.move(row, transitions.set_aside(reason))
    store.park(row.id, lease.token, tree.take_batch())
    journal.publish(note)


def _tell_begin(tree: Tree, frame: Frame) -> None:
    """Note the beginning, or the taking up again, with the next transaction."""
    root = tree.root
    if root.started_at is None:
        tree.change(root, started_at=clock.present())
        frame.emit(events.ExecutionStarted(worker=root.worker))
    elif root.park_kind:
        waited = root.waits_on or records.Wait()
        frame.emit(
            events.ExecutionWoken(
                step=waited.step,
                primitive=waited.primitive,
                key=waited.key,
                worker=root.worker,
                park_kind=root.park_kind,
                parked_seconds=_seconds_since(waited.parked_at),
            )
        )
    if root.park_kind or root.waiting_on:
        tree.batch.executions.setdefault(root.id, {}).update(park_kind="", waiting_on=None, holds_kept=[])


def _seconds_since(moment: datetime | None) -> float | None:
    return None if moment is None else max(0.0, round((clock.present() - moment).total_seconds(), 3))


def run_tree(tree: Tree, definition: ReactorDefinition) -> Frame:
    """Run a leased tree until it is over or parked; returns the root's frame, whose row says which.

    Interruptions (a signal, an exit, a caller's own timeout) pass through unchanged: in a worker the row becomes ready
    again, in process it is marked aborted.
    """
    with tracing.of_execution(tree.root, definition.label) as span:
        if not tree.root.trace_context and (begun := spans.carrier()):  # what comes after a park is part of this trace
            tree.change(tree.root, trace_context=begun)
        frame = _run_under_lease(tree, root_frame(tree, definition))
        tracing.mark_end(span, frame.execution)
    return frame


def _run_under_lease(tree: Tree, frame: Frame) -> Frame:
    keeper.watch(tree.lease)
    try:
        if frame.execution.status == ExecutionStatus.RUNNING:
            _tell_begin(tree, frame)
        _run(frame)
    except LeaseLost as error:
        logger.warning("event=reactor_coord.lease_lost execution=%s error=%s", tree.id, error)
        if tree.root.mode == Mode.INLINE:
            raise
    except BaseException as error:
        if verdicts.is_interruption(error):
            _interrupted(frame, error)
            raise
        if not isinstance(error, Exception):
            raise
        frame = _escaped(frame, error)
    finally:
        keeper.forget(tree.lease)
        frame.tree.give(list(frame.tree.holds), Ending.ABANDONED)
        tree.give(list(tree.holds), Ending.ABANDONED)
    return frame


def _escaped(frame: Frame, error: Exception) -> Frame:
    """Settle an error that no step and no cleanup answers for; returns the frame whose row says how, or raises the error."""
    logger.error(
        "event=reactor_coord.escaped execution=%s error=%s", frame.tree.id, type(error).__name__, exc_info=error
    )
    if isinstance(error, escapes.OUTAGES):
        if escapes.give_back(frame, error):
            return frame
        raise error
    settled = frame
    try:
        fresh = escapes.fail(frame, error)
        if fresh is None:
            raise error
        settled = fresh
        _roll_back_or_step_aside(fresh)
    except BaseException as again:
        if again is error or isinstance(again, LeaseLost):
            raise
        if isinstance(again, escapes.OUTAGES) and escapes.give_back(settled, again):
            return settled
        _leave_to_an_operator(settled, again)
        raise
    return settled


def _leave_to_an_operator(frame: Frame, error: BaseException) -> None:
    """An error while another one is settled, or the end of the process meanwhile."""
    if verdicts.is_interruption(error):
        _interrupted(frame, error)
    elif isinstance(error, Exception):
        escapes.abort(frame, error)


def _run(frame: Frame) -> None:
    tree = frame.tree
    try:
        deaths.charge(frame)
        if not is_rolling_back(tree):
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
        tree.root.cancel_reason, as_it_stands = store.cancellation(tree.root.id)  # asked for since the row was read
        if as_it_stands:
            return stopping.stop_running(tree, tree.root.cancel_reason)
        tree.point_at(None)
        tree.move(tree.root, transitions.begin_rollback(None))
        frame.emit(events.ExecutionRollingBack(reason=tree.root.cancel_reason or "cancelled"))
    _roll_back_or_step_aside(frame)


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
        steps.turn_back(frame, "", settlement, frame.legible_inputs, frame.definition.schema.redacted)
        raise verdicts.StepFailed(frame, "", settlement) from error


def _halt(frame: Frame, halted: verdicts.Halted) -> None:
    ended = transitions.halt(clock.present(), codec.encode(halted.value), halted.reason)
    finish.end(frame, ended, events.ExecutionHalted(reason=halted.reason))


def _roll_back_or_step_aside(frame: Frame) -> None:
    try:
        _roll_back(frame)
    except Parked as parked:  # elements of it are rolled back by other workers meanwhile
        finish.park(frame, parked)


def _roll_back(frame: Frame) -> None:
    """Roll back from wherever it stands, then write the end."""
    tree = frame.tree
    finish.leave_lines(tree)
    cleanup.roll_back(frame)
    root = tree.root
    failed = root.why_failed
    if failed is None:
        left, reason = finish.rollback_failures(frame), root.cancel_reason
        if left:
            ended = transitions.fail(clock.present(), _cancel_failure(frame, left), reason)
            return finish.end(frame, ended, events.ExecutionFailed(reason=reason))
        return finish.end(frame, *_wholly_undone(tree, reason))
    failed = replace(failed, rollback_failures=finish.rollback_failures(frame))
    event = events.ExecutionFailed(failed_step=failed.step, error_type=failed.error_type, message=failed.message)
    reason = "rollback incomplete" if failed.is_incomplete else ""
    return finish.end(frame, transitions.fail(clock.present(), failed, reason), event)


def _wholly_undone(tree: Tree, reason: str) -> tuple[Transition, events.Event]:
    """The end of what was cancelled under way, or undone after it had ended."""
    if tree.cancel_requested:
        return transitions.cancel(clock.present(), reason), events.ExecutionCancelled(reason=reason)
    return transitions.revert(clock.present(), reason), events.ExecutionReverted(reason=reason)


def _cancel_failure(frame: Frame, left: tuple[records.RollbackFailure, ...]) -> records.Failure:
    message = frame.tree.root.cancel_reason or "cancelled; its rollback is incomplete"
    return records.Failure("", frame.definition.label, "Cancelled", message, rollback_failures=left)


def _interrupted(frame: Frame, error: BaseException) -> None:
    """Leave the row as after a lost worker, at once: nobody need wait for the lease to run out."""
    tree = frame.tree
    root = tree.root
    is_inline = root.mode == Mode.INLINE and frame.definition.on_crash != "resume"
    reason = f"interrupted by {type(error).__name__}"
    try:
        store.give_up(root, tree.lease.token, aborting=is_inline, reason=reason, trace=list(tree.trace))
    except Exception as failure:  # noqa: BLE001 - the process is going down: the sweep does it when the lease is over
        logger.warning("event=reactor_coord.interruption_not_noted execution=%s error=%s", root.id, failure)


def worker_name() -> str:
    """Name this process in rows."""
    return f"{socket.gethostname()}:{os.getpid()}"
