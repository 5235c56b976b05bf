"""Rings of executions that wait for each other: looked for after a refusal, by whoever has what others may wait for.

An execution that holds nothing, and whose end nobody awaits, closes no ring and is spared the look. The victim fails as by any
failure and is rolled back; another's is woken, and looks for itself before it fails. What Redis cannot know of, executions that
wait for the results of units or for their turn, is read from their rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from reactor_coord.coordination import Blocker, Refused, Ring, Wait, deadlocks, ordered_lines
from reactor_coord.coordination.deadlock import Waits
from reactor_coord.engine.states import EventKind, ParkKind
from reactor_coord.errors import CoordinationUnavailable, DeadlockDetected
from reactor_coord.models import TraceEvent
from reactor_coord.runtime.dispatch import wake, wake_name
from reactor_coord.storage import clock, elements, store

if TYPE_CHECKING:
    from reactor_coord.runtime.gates import Gate, Place
    from reactor_coord.runtime.parking import Park
    from reactor_coord.runtime.tree import Tree

logger = logging.getLogger("reactor_coord")

ORDERED = "ordered_lock"
FOR_RESULTS = frozenset({ParkKind.RESULT, ParkKind.FAN_OUT})


def is_awaited(tree: Tree) -> bool:
    """Whether anybody could be waiting for this tree: for a key that it has, or for its result."""
    return bool(tree.holds or tree.kept) or tree.root.parent_id is not None


def look_before_park(gate: Gate, place: Place, park: Park) -> None:
    """Raise `DeadlockDetected`, its lines left, when this park would close a ring and this execution is the one to fail."""
    waiting_on = park.waiting_on or {}
    if park.kind != ParkKind.CONTENTION or park.is_timed:
        return
    keys = [str(key) for key in waiting_on.get("keys", ())]
    own = {place.requester.owner: _Parked(park.kind, waiting_on, "", "joining")}
    try:
        _look(place, gate.primitive, str(waiting_on["key"]), own, before=partial(_note, gate, keys, place))
    except DeadlockDetected:
        gate.leave(keys, place.requester)
        raise


def _note(gate: Gate, keys: Sequence[str], place: Place) -> None:
    holdings = getattr(gate, "holdings", None)
    if holdings is not None:
        holdings.note_wait(keys, place.requester)


def watcher(place: Place, primitive: str) -> Callable[[Refused], None] | None:
    """What a blocking wait at this place does at each refusal; None when it need not look."""
    if not place.keeps:
        return None
    return lambda refused: _look(place, primitive, refused.key, {})


def look_parked(tree: Tree, park: Park) -> None:
    """After the park of an execution that waits for what no line shows: only its row tells, so it looks once that is written."""
    waiting_on = park.waiting_on or {}
    if park.kind not in FOR_RESULTS and waiting_on.get("primitive") != ORDERED:
        return
    ring = _find(tree.id, {})
    if ring is not None:
        _tell(ring)


def _look(
    place: Place,
    primitive: str,
    key: str,
    own: Mapping[str, _Parked],
    *,
    before: Callable[[], None] = lambda: None,
) -> None:
    owner = place.requester.owner
    ring = _find(owner, own, before)
    if ring is None:
        return
    if ring.victim != owner:
        return _tell(ring)
    cycle = ring.describe()
    place.emit(EventKind.DEADLOCK, step=place.step, primitive=primitive, key=key, victim=owner, cycle=list(cycle))
    _record_for_others(ring, owner, cycle)
    raise DeadlockDetected(
        reactor=place.reactor,
        step=place.step,
        primitive=primitive,
        key=key,
        holder=_holder(ring, owner),
        cycle=cycle,
    )


def _find(owner: str, own: Mapping[str, _Parked], before: Callable[[], None] = lambda: None) -> Ring | None:
    """The ring, if there is one. A Redis that does not answer is for the work itself to meet: the next look finds the ring."""
    try:
        before()
        return deadlocks().find(owner, partial(_waits_elsewhere, own))
    except CoordinationUnavailable as error:
        logger.warning("event=reactor_coord.deadlock_not_looked_for owner=%s error=%s", owner, error)
        return None


def _tell(ring: Ring) -> None:
    """Have the victim look for itself."""
    if not ring.victim:
        return
    wait = ring.wait_of(ring.victim)
    wake([wait.wake] if wait.wake else [])
    try:
        deadlocks().tell(wait)
    except CoordinationUnavailable as error:
        logger.warning("event=reactor_coord.deadlock_not_told owner=%s error=%s", ring.victim, error)


def _holder(ring: Ring, owner: str) -> str:
    return next(f"execution {link.blocker.owner}" for link in ring.links if link.wait.owner == owner)


def _record_for_others(ring: Ring, victim: str, cycle: Sequence[str]) -> None:
    """A row in the trace of everyone else in the ring: why it waited, and who made way."""
    rows = [
        TraceEvent(
            root_id=execution.id,
            execution=execution,
            at=clock.present(),
            kind=EventKind.DEADLOCK,
            step=wait.step,
            primitive=wait.primitive,
            key=wait.key,
            data={"victim": victim, "cycle": list(cycle)},
        )
        for wait in (link.wait for link in ring.links if link.wait.owner != victim)
        if (identity := _as_id(wait.owner)) and (execution := store.load(identity)) is not None
    ]
    if rows:
        store.record(rows)


# ---- what no line shows


class _Parked:
    """What the row of a parked execution says of its wait."""

    __slots__ = ("kind", "queue", "ticket", "waiting_on")

    def __init__(self, kind: str, waiting_on: Mapping[str, Any], queue: str, ticket: str) -> None:
        self.kind, self.waiting_on, self.queue, self.ticket = kind, waiting_on, queue, ticket


def _waits_elsewhere(own: Mapping[str, _Parked], owners: Sequence[str]) -> Waits:
    """What these wait for by their rows. One query, and one more for each that does wait."""
    found = dict(own)
    ids = [identity for owner in owners if owner not in own and (identity := _as_id(owner)) is not None]
    for row in elements.parked(ids) if ids else ():
        ticket = row.updated_at.isoformat()
        found[str(row.id)] = _Parked(row.park_kind, row.waiting_on or {}, row.queue, ticket)
    waits = ((owner, _wait(owner, found[owner])) for owner in owners if owner in found)
    return {owner: [wait] for owner, wait in waits if wait is not None}


def _wait(owner: str, parked: _Parked) -> Wait | None:
    if parked.kind in FOR_RESULTS:
        key, blockers = str(parked.waiting_on.get("path", "")), _units(parked)
        primitive = "result"
    elif parked.waiting_on.get("primitive") == ORDERED:
        key, blockers = str(parked.waiting_on["key"]), _ahead(parked)
        primitive = ORDERED
    else:
        return None
    if not blockers:
        return None
    where = parked.waiting_on
    execution, reactor, step = key_parts(where)
    return Wait(
        owner,
        primitive,
        key,
        parked.ticket,
        blockers,
        wake=wake_name(owner, parked.queue),
        execution=execution,
        reactor=reactor,
        step=step,
    )


def key_parts(waiting_on: Mapping[str, Any]) -> tuple[str, str, str]:
    """Execution, reactor and step at which a row says it waits."""
    path = str(waiting_on.get("path", ""))
    return path.rpartition("/")[0], str(waiting_on.get("reactor", "")), str(waiting_on.get("step", ""))


def _units(parked: _Parked) -> tuple[Blocker, ...]:
    """The units that may be waiting themselves; the others go on."""
    parent, _, step = str(parked.waiting_on.get("path", "")).rpartition("/")
    identity = _as_id(parent)
    rows = elements.begun_of_step(identity, step) if identity is not None else []
    return tuple(Blocker(str(row.id), "", str(row.id), row.label) for row in rows)


def _ahead(parked: _Parked) -> tuple[Blocker, ...]:
    """Those with an earlier position in the same line."""
    line = ordered_lines().view(str(parked.waiting_on["key"]))
    position = int(parked.waiting_on.get("position", 0))
    return tuple(
        Blocker(each.wake.partition("@")[0], str(each.position), each.execution, each.reactor, each.step)
        for each in line.in_flight
        if each.position < position and each.wake
    )


def _as_id(owner: str) -> UUID | None:
    try:
        return UUID(owner)
    except ValueError:
        return None
