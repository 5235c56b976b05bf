"""The ends of an execution, and its parks: where the root's row leaves `running`.

An end is written first; then holds are given back (a reactor's own last), lines left, and who got a grant woken.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

from reactor_coord import conf, probes
from reactor_coord.coordination import Requester
from reactor_coord.declare.coordination import OrderedLockDeclaration
from reactor_coord.engine import records, transitions
from reactor_coord.engine.delays import message_grace
from reactor_coord.engine.events import (
    Event,
    ExecutionCompleted,
    ExecutionHalted,
    ExecutionHandedOver,
    StepCancelled,
    StepHalted,
)
from reactor_coord.engine.states import (
    SETTLED_STEPS,
    ExecutionStatus,
    ParkKind,
    StepStatus,
    is_terminal,
)
from reactor_coord.engine.step_transitions import OPEN, StepMove
from reactor_coord.engine.transitions import Move, Transition
from reactor_coord.errors import NO_ANSWER, ReactorCoordError
from reactor_coord.models import Execution
from reactor_coord.runtime import deadlocks, gates, units
from reactor_coord.runtime.arguments import place_of_reactor
from reactor_coord.runtime.dispatch import send, wake_name
from reactor_coord.runtime.gates import Ending
from reactor_coord.runtime.holding import HoldingGate
from reactor_coord.runtime.lease import Lease, lease_ttl
from reactor_coord.runtime.parking import Parked
from reactor_coord.runtime.tree import Frame, Tree, definition_of
from reactor_coord.storage import clock, codec, store

logger = logging.getLogger("reactor_coord")

NEVER_YEAR = 9000
"""A pause without a timeout says a time beyond it."""

ENDINGS = {Move.COMPLETE: Ending.SUCCEEDED, Move.HALT: Ending.HALTED}


def end(frame: Frame, ended: Transition, event: Event) -> None:
    """Write the root's end, unless the last step's transaction did; then let go of everything."""
    ending = ENDINGS.get(ended.move, Ending.FAILED)
    if is_terminal(frame.execution.status):
        return let_go(frame.tree, ending)
    _note_end(frame, ended, event)
    probes.reached("finish.before")
    frame.tree.save()
    probes.reached("finish.after")
    return let_go(frame.tree, ending)


def complete(frame: Frame, value: Any) -> None:
    """End well, with this value."""
    end(frame, transitions.complete(clock.present(), codec.encode(value)), ExecutionCompleted())


def fold_completion(frame: Frame) -> None:
    """Put the end into the transaction of the last step, where nothing is held any more.

    A value that cannot be had is met again, and settled, on the way out of `forward`.
    """
    try:
        result = codec.encode(frame.value())
    except Exception:  # noqa: BLE001 - told by forward(), which computes it again
        return
    _note_end(frame, transitions.complete(clock.present(), result), ExecutionCompleted())


def fold_halt(frame: Frame, result: Any, reason: str) -> None:
    """Put the end into the transaction of the step that halts: who takes it up after a kill must not go on behind it."""
    while frame.parent is not None:
        frame = frame.parent
    _note_end(frame, transitions.halt(clock.present(), result, reason), ExecutionHalted(reason=reason))


def _note_end(frame: Frame, ended: Transition, event: Event) -> None:
    frame.tree.move(frame.execution, ended)
    for below in _running_below(frame):
        frame.tree.move(below.execution, Transition(ended.move, {"finished_at": frame.execution.finished_at}))
        below.emit(event)
        _settle_the_step_of(below, event.reason if isinstance(event, ExecutionHalted) else "")
    if ended.move != Move.COMPLETE:
        for each in (frame, *_descendants(frame)):
            _close_open_steps(each, ended.columns.get("reason", ""))
    frame.emit(event)


def _close_open_steps(frame: Frame, reason: str) -> None:
    """A step that waited, or was to be tried again, does so no longer."""
    for run in frame.runs.values():
        if run.status in OPEN and run.status != StepStatus.PENDING:
            frame.tree.move_step(run, StepMove.CLOSE_CANCELLED)
            run.finished_at = clock.present()
            frame.emit(StepCancelled(step=run.step, reason=reason))


def settle_children(root: Frame, move: Move) -> None:
    """No child may say `running` when nobody runs its root."""
    for below in _running_below(root):
        ended = {"finished_at": clock.present()} if move == Move.ABORT else {}
        root.tree.move(below.execution, Transition(move, ended))


def _running_below(frame: Frame) -> list[Frame]:
    return [below for below in _descendants(frame) if below.execution.status == ExecutionStatus.RUNNING]


def _settle_the_step_of(child: Frame, reason: str) -> None:
    """A step whose child the end has met half-way is as done as that: nothing is left running, and an undo descends there."""
    assert child.parent is not None
    run = child.parent.runs[child.execution.parent_step]
    if run.status not in SETTLED_STEPS:
        run.finished_at = clock.present()
        run.completion_order = child.parent.next_completion()
        child.tree.move_step(run, StepMove.SUCCEED)
        child.parent.emit(StepHalted(step=run.step, attempt=run.attempts, reason=reason))


def let_go(tree: Tree, ending: Ending) -> None:
    """Give back what is held, newest first, and leave the line it stood in; tell what that released."""
    tree.give(list(tree.holds), ending)
    kept, tree.kept = tree.kept, []
    let_go_of_kept(tree.root, kept)
    leave_lines(tree)
    if tree.trace:
        store.record(tree.take_batch().trace)
    if is_terminal(tree.root.status) and definition_of(tree.root).fingerprint != tree.root.fingerprint:
        store.abort_children(tree.root.id, reason="its step is no longer declared")
    units.report(tree.root)


def leave_lines(tree: Tree) -> None:
    """Step out of the lines of the last park, if it was not had since."""
    waited, tree.waited = tree.waited, None
    leave_waited(tree.root, waited)


def leave_waited(root: Execution, waited: records.Wait | None) -> None:
    """Step out of the lines a row says it waits in, passing on a grant; does nothing for one that waits in none."""
    if waited is None or not waited.is_in_line:
        return
    _leave(root, waited.primitive, waited.path, list(waited.keys), parked=False)
    let_go_of_kept(root, waited.turns)


def step_aside(tree: Tree, waits_on: records.Wait) -> None:
    """Be granted nothing in the lines of the last park while the tree parks for something else; keep the ticket there."""
    waited = tree.waited or records.Wait()
    is_same = waited.primitive == waits_on.primitive
    keys = set(waited.keys) - set(waits_on.keys if is_same else ())
    gate = gates.gate_of(waited.primitive)
    if not keys or not isinstance(gate, HoldingGate):
        return
    try:
        gate.step_aside(sorted(keys), _requester(tree.root))
    except NO_ANSWER as error:
        logger.warning("event=reactor_coord.step_aside_failed execution=%s error=%s", tree.id, error)


def let_go_of_kept(root: Execution, kept: Iterable[records.ParkedHold]) -> None:
    """Free what a parked tree keeps, when it will not come back for it."""
    for each in kept:
        _leave(root, each.primitive, each.path, [each.key], parked=True)


def leave_reserved(root: Execution) -> None:
    """Give back the position that an ordered reactor has had since it was enqueued, when it ends before it begins."""
    try:
        definition = definition_of(root)
        declaration = definition.coordination.get("ordered_lock")
        if not isinstance(declaration, OrderedLockDeclaration):
            return
        place = place_of_reactor(Frame(Tree(root, Lease(root.id, "", lease_ttl())), root, definition))
        key = place.text_of(declaration.key)
    except (
        ReactorCoordError
    ) as error:  # a definition that is gone, a key that cannot be had: then it has no position either
        logger.debug("event=reactor_coord.no_position execution=%s error=%s", root.id, error)
        return
    _leave(root, declaration.primitive, place.path, [key], parked=False)


def _leave(root: Execution, primitive: str, path: str, keys: list[str], *, parked: bool) -> None:
    gate = gates.gate_of(primitive)
    if gate is None:
        return
    try:
        gate.leave(keys, gates.at_path(_requester(root), path), parked=parked)
    except NO_ANSWER as error:
        logger.warning("event=reactor_coord.leave_failed execution=%s error=%s", root.id, error)


def _requester(root: Execution) -> Requester:
    return Requester(owner=str(root.id), claim=root.lease_token, wake=wake_name(str(root.id), root.queue))


def park(root: Frame, parked: Parked) -> None:
    """Keep the tree's holds and write the park in one transaction.

    A wake or a cancellation that came meanwhile is noted in the tree, and answered by its runner, who looks again.
    """
    if parked.park.kind == ParkKind.INTERRUPT:
        return pause(root, parked)
    tree, what = root.tree, parked.park
    step_aside(tree, what.waiting_on)
    _keep_holds(tree, (what.resume_at - clock.present()).total_seconds())
    own_message = _own_countdown(parked)
    look_at = what.resume_at + timedelta(seconds=_grace()) if own_message is not None else None
    waits_on = replace(what.waiting_on, until=what.resume_at, parked_at=clock.present(), timed=what.is_timed)
    tree.move(root.execution, transitions.park(what.kind, waits_on, look_at or what.resume_at, _kept(tree)))
    settle_children(root, Move.PARK)
    probes.reached("park.before_commit")
    tree.is_asked_for = store.park(tree.root.id, tree.lease.token, tree.take_batch())
    probes.reached("park.after_commit")
    may_close_a_ring = deadlocks.is_awaited(tree)
    tree.holds.clear()
    if own_message is not None and not tree.is_asked_for:
        send(tree.id, tree.root.queue, own_message)
    if may_close_a_ring:
        deadlocks.look_parked(tree, what)


def hand_over(root: Frame) -> None:
    """Leave the rest to a worker: ready, what is held kept for it, its message sent after the commit."""
    tree = root.tree
    _keep_holds(tree, _grace())
    tree.move(root.execution, transitions.hand_over(units.look_at(), _kept(tree)))
    root.emit(ExecutionHandedOver())
    store.park(tree.root.id, tree.lease.token, tree.take_batch())
    tree.holds.clear()
    store.on_commit(lambda: send(tree.id, tree.root.queue))


def pause(root: Frame, parked: Parked) -> None:
    """Write the pause, then give back all that is held: an answer may take days, and its reactor competes anew for it."""
    tree, what = root.tree, parked.park
    ends_at = what.resume_at if what.resume_at.year < NEVER_YEAR else None
    waits_on = replace(what.waiting_on, until=what.resume_at, parked_at=clock.present())
    tree.move(root.execution, transitions.pause(waits_on, ends_at))
    settle_children(root, Move.PAUSE)
    probes.reached("park.before_commit")
    is_asked_for = store.park(tree.root.id, tree.lease.token, tree.take_batch())
    probes.reached("park.after_commit")
    tree.give(list(tree.holds), Ending.RETRYING)
    store.record(tree.take_batch().trace)
    tree.is_asked_for = is_asked_for and store.apply(tree.root, transitions.repeat(units.look_at()))


def _own_countdown(parked: Parked) -> float | None:
    """Seconds for a message of our own; None where the sweep, or a release, sends it."""
    if not parked.park.is_timed and parked.park.waiting_on.outage_since is None:
        return None
    seconds = max(0.0, (parked.park.resume_at - clock.present()).total_seconds())
    return seconds if seconds <= conf.settings().SWEEP_INTERVAL else None


def _grace() -> float:
    """Seconds for which a message may be on its way before the sweep looks at its row."""
    return message_grace(conf.settings().SWEEP_INTERVAL)


def _kept(tree: Tree) -> tuple[records.ParkedHold, ...]:
    """What a parked tree keeps: what it holds now, and what earlier parks kept and it has not adopted yet."""
    return (*(kept for hold in tree.holds for kept in hold.recorded()), *tree.kept)


def _keep_holds(tree: Tree, seconds: float) -> None:
    """Park what is held: past the next look, with room for a late sweep. What cannot be kept is competed for anew."""
    for hold in tree.holds:
        horizon = max(seconds, 0) + _grace() + hold.taken.ttl
        try:
            hold.gate.park(hold, horizon)
        except NO_ANSWER as error:
            logger.warning("event=reactor_coord.park_hold_failed execution=%s error=%s", tree.id, error)


def _descendants(frame: Frame) -> Iterator[Frame]:
    for child in frame.children.values():
        yield child
        yield from _descendants(child)


def rollback_failures(root: Frame) -> tuple[records.RollbackFailure, ...]:
    """List what stayed undone, in the order in which rollback met it, from every level."""
    frames = [root, *_descendants(root)]
    left = [run.left_undone for frame in frames for run in frame.runs.values()]
    found = sorted((each for each in left if each is not None), key=lambda each: each.order)
    return tuple(failure for each in found for failure in each.failures)
