"""The ends of an execution, and its parks: where the root's row leaves `running`.

An end is written first; then holds are given back (a reactor's own last), lines left, and who got a grant woken.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from reactor_coord import conf, probes
from reactor_coord.coordination import Requester
from reactor_coord.declare.coordination import OrderedLockDeclaration
from reactor_coord.engine.states import (
    SETTLED_STEPS,
    EventKind,
    ExecutionStatus,
    Mode,
    ParkKind,
    StepStatus,
    is_terminal,
)
from reactor_coord.errors import CoordinationUnavailable, ReactorCoordError
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

ENDINGS = {ExecutionStatus.COMPLETED: Ending.SUCCEEDED, ExecutionStatus.HALTED: Ending.HALTED}

ENDED: dict[str, Any] = {
    "lease_token": "",
    "lease_expires_at": None,
    "resume_at": None,
    "park_kind": "",
    "waiting_on": None,
    "holds_kept": [],
}


def end(
    frame: Frame, status: ExecutionStatus, kind: EventKind, told: dict[str, Any] | None = None, **columns: Any
) -> None:
    """Write the root's end, unless the last step's transaction did; then let go of everything."""
    if is_terminal(frame.execution.status):
        return let_go(frame.tree, ENDINGS.get(status, Ending.FAILED))
    _note_end(frame, status, kind, told or {}, **columns)
    probes.reached("finish.before")
    frame.tree.save()
    probes.reached("finish.after")
    return let_go(frame.tree, ENDINGS.get(status, Ending.FAILED))


def complete(frame: Frame, value: Any) -> None:
    """End well, with this value."""
    end(frame, ExecutionStatus.COMPLETED, EventKind.COMPLETED, result=codec.encode(value))


def fold_completion(frame: Frame) -> None:
    """Put the end into the transaction of the last step, where nothing is held any more.

    A value that cannot be had is met again, and settled, on the way out of `forward`.
    """
    try:
        result = codec.encode(frame.value())
    except Exception:  # noqa: BLE001 - told by forward(), which computes it again
        return
    _note_end(frame, ExecutionStatus.COMPLETED, EventKind.COMPLETED, {}, result=result)


def fold_halt(frame: Frame, result: Any, reason: str) -> None:
    """Put the end into the transaction of the step that halts: who takes it up after a kill must not go on behind it."""
    while frame.parent is not None:
        frame = frame.parent
    _note_end(frame, ExecutionStatus.HALTED, EventKind.HALTED, {"reason": reason}, result=result, reason=reason)


def _note_end(frame: Frame, status: ExecutionStatus, kind: EventKind, told: dict[str, Any], **columns: Any) -> None:
    now = clock.present()
    frame.tree.change(frame.execution, status=status, finished_at=now, **ENDED, **columns)
    for below in _descendants(frame):
        if below.execution.status == ExecutionStatus.RUNNING:
            frame.tree.change(below.execution, status=status, finished_at=now)
            _settle_the_step_of(below)
    frame.emit(kind, **told)


def settle_children(root: Frame, status: ExecutionStatus) -> None:
    """No child may say `running` when nobody runs its root."""
    for below in _descendants(root):
        if below.execution.status == ExecutionStatus.RUNNING:
            ended = {"finished_at": clock.present()} if is_terminal(status) else {}
            root.tree.change(below.execution, status=status, **ended)


def _settle_the_step_of(child: Frame) -> None:
    """A step whose child the end has met half-way is as done as that: nothing is left running, and an undo descends there."""
    assert child.parent is not None
    run = child.parent.runs[child.execution.parent_step]
    if run.status not in SETTLED_STEPS:
        run.status, run.finished_at = StepStatus.SUCCEEDED, clock.present()
        run.completion_order = child.parent.next_completion()
        child.tree.write(run)


def let_go(tree: Tree, ending: Ending) -> None:
    """Give back what is held, newest first, and leave the line it stood in; tell what that released."""
    tree.give(list(tree.holds), ending)
    kept, tree.kept = tree.kept, []
    let_go_of_kept(tree.root, kept)
    leave_lines(tree)
    if tree.trace:
        store.record(tree.take_batch().trace)
    if is_terminal(tree.root.status) and definition_of(tree.root).fingerprint != tree.root.fingerprint:
        store.abort_children(tree.root.id)  # of steps that the definition has no more
    units.report(tree.root)


def leave_lines(tree: Tree) -> None:
    """Step out of the lines of the last park, if it was not had since."""
    waited, tree.waited = tree.waited, None
    if waited and waited.get("keys"):
        leave_waited(tree.root, waited)


def leave_waited(root: Execution, waited: Mapping[str, Any]) -> None:
    """Step out of the lines a row says it waits in, passing on a grant."""
    _leave(root, waited, list(waited["keys"]), parked=False)
    let_go_of_kept(root, waited.get("turns", ()))


def step_aside(tree: Tree, waits_on: Mapping[str, Any]) -> None:
    """Be granted nothing in the lines of the last park while the tree parks for something else; keep the ticket there."""
    waited = tree.waited or {}
    is_same = waited.get("primitive") == waits_on.get("primitive")
    keys = set(waited.get("keys", ())) - set(waits_on.get("keys", ()) if is_same else ())
    gate = gates.gate_of(str(waited.get("primitive", "")))
    if not keys or not isinstance(gate, HoldingGate):
        return
    try:
        gate.step_aside(sorted(keys), _requester(tree.root))
    except CoordinationUnavailable as error:
        logger.warning("event=reactor_coord.step_aside_failed execution=%s error=%s", tree.id, error)


def let_go_of_kept(root: Execution, kept: Iterable[Mapping[str, Any]]) -> None:
    """Free what a parked tree keeps, when it will not come back for it."""
    for entry in kept:
        _leave(root, entry, [str(entry["key"])], parked=True)


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
    _leave(root, {"primitive": declaration.primitive, "path": place.path}, [key], parked=False)


def _leave(root: Execution, noted: Mapping[str, Any], keys: list[str], *, parked: bool) -> None:
    gate = gates.gate_of(str(noted.get("primitive", "")))
    if gate is None:
        return
    try:
        gate.leave(keys, gates.at_path(_requester(root), str(noted.get("path", ""))), parked=parked)
    except CoordinationUnavailable as error:
        logger.warning("event=reactor_coord.leave_failed execution=%s error=%s", root.id, error)


def _requester(root: Execution) -> Requester:
    return Requester(owner=str(root.id), claim=root.lease_token, wake=wake_name(str(root.id), root.queue))


def park(root: Frame, parked: Parked) -> None:
    """Keep the tree's holds and write the park in one transaction; a wake or a cancellation that came meanwhile is
    answered with a message.
    """
    if parked.park.kind == ParkKind.INTERRUPT:
        return pause(root, parked)
    tree, what = root.tree, parked.park
    step_aside(tree, what.waiting_on or {})
    _keep_holds(tree, (what.resume_at - clock.present()).total_seconds())
    own_message = _own_countdown(parked)
    look_at = (
        what.resume_at + timedelta(seconds=2 * conf.settings().SWEEP_INTERVAL) if own_message is not None else None
    )
    tree.change(
        root.execution,
        status=ExecutionStatus.PARKED,
        park_kind=what.kind,
        resume_at=look_at or what.resume_at,
        waiting_on={**(what.waiting_on or {}), "until": what.resume_at.isoformat(), "timed": what.is_timed},
        holds_kept=[*(entry for hold in tree.holds for entry in hold.as_json()), *tree.kept],
    )
    for frame in _descendants(root):
        if frame.execution.status == ExecutionStatus.RUNNING:
            tree.change(frame.execution, status=ExecutionStatus.PARKED)
    probes.reached("park.before_commit")
    is_asked_for = store.park(tree.root.id, tree.lease.token, tree.take_batch())
    probes.reached("park.after_commit")
    may_close_a_ring = deadlocks.is_awaited(tree)
    tree.holds.clear()
    if is_asked_for:
        send(tree.id, tree.root.queue)
    elif own_message is not None:
        send(tree.id, tree.root.queue, own_message)
    if may_close_a_ring:
        deadlocks.look_parked(tree, what)


def hand_over(root: Frame) -> None:
    """Leave the rest to a worker: ready, what is held kept for it, its message sent after the commit."""
    tree = root.tree
    _keep_holds(tree, 2 * conf.settings().SWEEP_INTERVAL)
    kept = [entry for hold in tree.holds for entry in hold.as_json()]
    tree.change(
        root.execution, status=ExecutionStatus.READY, mode=Mode.WORKER, resume_at=units.look_at(), holds_kept=kept
    )
    store.park(tree.root.id, tree.lease.token, tree.take_batch())
    tree.holds.clear()
    store.on_commit(lambda: send(tree.id, tree.root.queue))


def pause(root: Frame, parked: Parked) -> None:
    """Write the pause, then give back all that is held: an answer may take days, and its reactor competes anew for it."""
    tree, what = root.tree, parked.park
    tree.change(
        root.execution,
        status=ExecutionStatus.PAUSED,
        mode=Mode.WORKER,
        park_kind=what.kind,
        resume_at=what.resume_at if what.resume_at.year < NEVER_YEAR else None,
        waiting_on={**(what.waiting_on or {}), "until": what.resume_at.isoformat(), "timed": False},
        holds_kept=[],
    )
    for frame in _descendants(root):
        if frame.execution.status == ExecutionStatus.RUNNING:
            tree.change(frame.execution, status=ExecutionStatus.PAUSED)
    probes.reached("park.before_commit")
    is_asked_for = store.park(tree.root.id, tree.lease.token, tree.take_batch())
    probes.reached("park.after_commit")
    tree.give(list(tree.holds), Ending.RETRYING)
    store.record(tree.take_batch().trace)
    ready = {"status": ExecutionStatus.READY, "resume_at": units.look_at()}
    if is_asked_for and store.change(tree.root.id, expect={ExecutionStatus.PAUSED}, changes=ready):
        send(tree.id, tree.root.queue)


def _own_countdown(parked: Parked) -> float | None:
    """Seconds for a message of our own; None where the sweep, or a release, sends it."""
    if not parked.park.is_timed:
        return None
    seconds = max(0.0, (parked.park.resume_at - clock.present()).total_seconds())
    return seconds if seconds <= conf.settings().SWEEP_INTERVAL else None


def _keep_holds(tree: Tree, seconds: float) -> None:
    """Park what is held: past the next look, with room for a late sweep. What cannot be kept is competed for anew."""
    for hold in tree.holds:
        horizon = max(seconds, 0) + 2 * conf.settings().SWEEP_INTERVAL + hold.taken.ttl
        try:
            hold.gate.park(hold, horizon)
        except CoordinationUnavailable as error:
            logger.warning("event=reactor_coord.park_hold_failed execution=%s error=%s", tree.id, error)


def _descendants(frame: Frame) -> Iterator[Frame]:
    for child in frame.children.values():
        yield child
        yield from _descendants(child)


def rollback_failures(root: Frame) -> list[dict[str, Any]]:
    """List what stayed undone, in the order in which rollback met it, from every level."""
    frames = [root, *_descendants(root)]
    found: list[dict[str, Any]] = [
        run.rollback_failure for frame in frames for run in frame.runs.values() if run.rollback_failure
    ]
    found.sort(key=lambda failure: float(failure["order"]))
    return [entry for failure in found for entry in _entries(failure)]


def _entries(failure: dict[str, Any]) -> list[dict[str, Any]]:
    """One cleanup that did not happen, or those of the units below a step."""
    if "entries" in failure:
        return list(failure["entries"])
    return [{key: value for key, value in failure.items() if key != "order"}]
