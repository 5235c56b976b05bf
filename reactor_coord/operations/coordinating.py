"""What operators may do to keys, lines, limits and buckets: each names what was looked at, and does nothing if that changed.

Every act answers whether it was done, is told in the trace of the execution it concerned, with who did it and why, and wakes
whom it let through. It changes Redis only: what an execution makes of it, it finds out itself, at its next renewal or look.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from reactor_coord.coordination import inspect, ordered_lines, periods, rate_limits
from reactor_coord.engine.states import EventKind
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.runtime import events
from reactor_coord.runtime.dispatch import wake
from reactor_coord.storage import clock, store

TOLD = 200
"""Executions in whose trace one act is told, at most."""


def release_key(key: str, *, fence: int, reason: str = "", actor: str = "", primitive: str = "lock") -> bool:
    """Take a key, or one slot, from the holder that was shown (named by its fence); False when it has changed hands since.

    The holder learns it at its next renewal, and its step fails with `LockLost`.
    """
    if primitive not in inspect.PRIMITIVES:
        return False
    holder = _holder_with(key, primitive, fence)
    released, wakes = inspect.of_primitive(primitive).release_by_force(key, fence=fence, by=actor or "operator")
    if released:
        _tell([holder], "release", primitive, key, reason, actor, fence=fence)
    wake(wakes)
    return released


def drop_waiter(key: str, *, ticket: int, primitive: str = "lock", reason: str = "", actor: str = "") -> bool:
    """Take one waiter out of a line; False when that ticket does not stand there any more.

    Its execution is not ended: it looks again by itself when it was due to, and joins anew, last.
    """
    if primitive not in inspect.PRIMITIVES:
        return False
    waiter = next((each for each in inspect.line(key, primitive=primitive) if each.ticket == ticket), None)
    if waiter is None:
        return False
    wakes = inspect.of_primitive(primitive).drop_waiter(key, waiter.id, waiter.owner, by=actor or "operator")
    _tell([waiter.execution], "drop", primitive, key, reason, actor, ticket=ticket, place=waiter.place)
    wake(wakes)
    return True


def skip_position(key: str, *, position: int, epoch: int, reason: str = "", actor: str = "") -> bool:
    """Pass over one position of an ordered line; False when it passed, or the line is another by now.

    Who had it is not ended: still waiting, it arrives anew, last; running, it has lost its turn and is told so.
    """
    had = [each.execution for each in ordered_lines().view(key).in_flight if each.position == position]
    woken = ordered_lines().skip(key, position, epoch=epoch)
    if woken is None:
        return False
    _tell(had, "skip", "ordered_lock", key, reason, actor, position=position)
    wake([woken] if woken else [])
    return True


def reset_line(key: str, *, epoch: int, reason: str = "", actor: str = "") -> bool:
    """Begin an ordered line afresh; False when it is another by now.

    Whoever waited in it is woken, in its order, and arrives anew; who runs has lost its turn, and nobody passes after it.
    """
    flight = ordered_lines().view(key).in_flight
    if not ordered_lines().reset(key, epoch=epoch):
        return False
    _tell([each.execution for each in flight], "reset", "ordered_lock", key, reason, actor)
    wake(each.wake for each in flight if each.wake and each.state == "waiting")
    return True


def clear_period(key: str, *, bucket: str, by: str, reason: str = "", actor: str = "") -> bool:
    """Free a bucket that `by` marked: who comes next in it runs. False when it is free, or another's mark by now."""
    if not periods().free(key, bucket, by):
        return False
    _tell([by], "clear", "period", key, reason, actor, bucket=bucket)
    return True


def forget_slot(key: str, *, who: str, at: float, reason: str = "", actor: str = "") -> bool:
    """Give back a slot that was planned for `who` at that time; False when it was used, or moved.

    Its execution still looks at that time, and asks anew: it may have to wait again.
    """
    if not rate_limits().forget(key, who, at):
        return False
    _tell([place_of(who)[0]], "forget", "rate_limit", key, reason, actor, slot=at)
    return True


def place_of(who: str) -> tuple[str, str]:
    """Execution and step of an arrival, as gates name one: `<owner>|<execution>/<step>`."""
    owner, _, path = who.partition("|")
    execution, _, step = path.rpartition("/")
    return execution or owner, step


def _holder_with(key: str, primitive: str, fence: int) -> str:
    found = inspect.look(key, primitive=primitive).holds
    return next((view.execution for view in found if view.fence == fence), "")


def _tell(
    concerned: Iterable[str], verb: str, primitive: str, key: str, reason: str, actor: str, **details: Any
) -> None:
    """A trace row on each execution concerned; an owner outside any execution has no trace."""
    ids = [each for each in dict.fromkeys(concerned) if _is_id(each)][:TOLD]
    rows = Execution.objects.using(store.alias()).filter(pk__in=ids).only("id", "root_id") if ids else ()
    data = {"verb": verb, "reason": reason, "actor": actor, **details}
    notes = [
        TraceEvent(
            root_id=row.root_id or row.id,
            execution=row,
            at=clock.present(),
            kind=EventKind.OPERATOR,
            primitive=primitive,
            key=key,
            data=data,
        )
        for row in rows
    ]
    if notes:
        store.record(notes)
    for note in notes:
        events.publish(note, None)


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
