"""Rings of executions that wait for each other: looked for after a refusal, by whoever has what others may wait for.

An execution that holds nothing, and whose end nobody awaits, closes no ring and is spared the look. The victim fails as by any
failure and is rolled back; another's is woken, and looks for itself before it fails. What Redis cannot know of, executions that
wait for the results of units or for their turn, is read from their rows.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import InterfaceError, OperationalError

from reactor_coord.coordination import Blocker, Refused, Ring, Wait, deadlocks, ordered_lines
from reactor_coord.coordination.deadlock import Waits
from reactor_coord.engine import records
from reactor_coord.engine.events import DeadlockFound
from reactor_coord.engine.states import ParkKind
from reactor_coord.errors import NO_ANSWER, DeadlockDetected
from reactor_coord.runtime.dispatch import wake, wake_name
from reactor_coord.storage import elements, journal, store

if TYPE_CHECKING:
    from reactor_coord.runtime.gates import Gate, Place
    from reactor_coord.runtime.parking import Park
    from reactor_coord.runtime.tree import Tree

logger = logging.getLogger("reactor_coord")

ORDERED = "ordered_lock"
NOT_LOOKED: tuple[type[Exception], ...] = (*NO_ANSWER, OperationalError, InterfaceError)
"""What keeps a look from being made; the work itself meets it, or the next look does."""

FOR_RESULTS = frozenset({ParkKind.RESULT, ParkKind.FAN_OUT})


def is_awaited(tree: Tree) -> bool:
    """Whether anybody could be waiting for this tree: for a key that it has, or for its result."""
    return bool(tree.holds or tree.kept) or tree.root.parent_id is not None


def look_before_park(gate: Gate, place: Place, park: Park) -> None:
    """Raise `DeadlockDetected`, its lines left, when this park would close a ring and this execution is the one to fail."""
    waits_on = park.waiting_on
    if park.kind != ParkKind.CONTENTION or park.is_timed:
        return
    own = {place.requester.owner: _Parked(park.kind, waits_on, "", "joining")}
    try:
        _look(place, gate.primitive, waits_on.key, own, before=partial(_note, gate, waits_on.keys, place))
    except DeadlockDetected:
        gate.leave(waits_on.keys, place.requester)
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
    if park.kind not in FOR_RESULTS and park.waiting_on.primitive != ORDERED:
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
    place.emit(DeadlockFound(step=place.step, primitive=primitive, key=key, victim=owner, cycle=tuple(cycle)))
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
    """The ring, if there is one. An outage of Redis or the database is for the work itself to meet: the next look finds it."""
    try:
        before()
        return deadlocks().find(owner, partial(_waits_elsewhere, own))
    except NOT_LOOKED as error:
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
    except NO_ANSWER as error:
        logger.warning("event=reactor_coord.deadlock_not_told owner=%s error=%s", ring.victim, error)


def _holder(ring: Ring, owner: str) -> str:
    return next(f"execution {link.blocker.owner}" for link in ring.links if link.wait.owner == owner)


def _record_for_others(ring: Ring, victim: str, cycle: Sequence[str]) -> None:
    """A row in the trace of every other execution in the ring. The signal is sent once, by the victim."""
    notes = [
        journal.note(execution, _deadlock(wait, victim, cycle))
        for wait in (link.wait for link in ring.links if link.wait.owner != victim)
        if (identity := _as_id(wait.owner)) and (execution := store.load(identity)) is not None
    ]
    if notes:
        store.record([journal.row(note) for note in notes])


def _deadlock(wait: Wait, victim: str, cycle: Sequence[str]) -> DeadlockFound:
    return DeadlockFound(step=wait.step, primitive=wait.primitive, key=wait.key, victim=victim, cycle=tuple(cycle))


# ---- what no line shows


@dataclass(frozen=True, slots=True)
class _Parked:
    """What the row of a parked execution says of its wait. `ticket` tells this park from an earlier one of the execution."""

    kind: str
    waits_on: records.Wait
    queue: str
    ticket: str


def _waits_elsewhere(own: Mapping[str, _Parked], owners: Sequence[str]) -> Waits:
    """What these wait for by their rows. One query, and one more for each that does wait."""
    found = dict(own)
    ids = [identity for owner in owners if owner not in own and (identity := _as_id(owner)) is not None]
    for row in elements.parked(ids) if ids else ():
        ticket = row.updated_at.isoformat()
        found[str(row.id)] = _Parked(row.park_kind, row.waits_on or records.Wait(), row.queue, ticket)
    waits = ((owner, _wait(owner, found[owner])) for owner in owners if owner in found)
    return {owner: [wait] for owner, wait in waits if wait is not None}


def _wait(owner: str, parked: _Parked) -> Wait | None:
    where = parked.waits_on
    if parked.kind in FOR_RESULTS:
        key, blockers = where.path, _units(parked)
        primitive = "result"
    elif where.primitive == ORDERED:
        key, blockers = where.key, _ahead(parked)
        primitive = ORDERED
    else:
        return None
    if not blockers:
        return None
    return Wait(
        owner,
        primitive,
        key,
        parked.ticket,
        blockers,
        wake=wake_name(owner, parked.queue),
        execution=where.execution,
        reactor=where.reactor,
        step=where.step,
    )


def _units(parked: _Parked) -> tuple[Blocker, ...]:
    """The units that may be waiting themselves; the others go on."""
    identity = _as_id(parked.waits_on.execution)
    rows = elements.begun_of_step(identity, parked.waits_on.step) if identity is not None else []
    return tuple(Blocker(str(row.id), "", str(row.id), row.label) for row in rows)


def _ahead(parked: _Parked) -> tuple[Blocker, ...]:
    """Those with an earlier position in the same line."""
    line = ordered_lines().view(parked.waits_on.key)
    position = parked.waits_on.position or 0
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
