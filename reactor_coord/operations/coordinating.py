"""What operators may do to keys, lines, limits and buckets: each names what was looked at, and does nothing if that changed.

Every act answers whether it was done, is told in the trace of the execution it concerned, with who did it and why, and wakes
whom it let through. Where it concerned no execution it is a signal, a log line and a count. `actor` is a text, or the user who
did it: then it is in the history of the admin as well. Only Redis changes: what an execution makes of it, it finds out itself,
at its next renewal or look.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import UUID

from reactor_coord.coordination import inspect, ordered_lines, periods, rate_limits
from reactor_coord.engine.events import OperatorActed
from reactor_coord.models import Execution
from reactor_coord.operations import history
from reactor_coord.runtime.dispatch import wake
from reactor_coord.storage import clock, journal, store

TOLD = 200
"""Executions in whose trace one act is told, at most."""


def release_key(key: str, *, fence: int, reason: str = "", actor: object = "", primitive: str = "lock") -> bool:
    """Take a key, or one slot, from the holder that was shown (named by its fence); False when it has changed hands since.

    The holder learns it at its next renewal, and its step fails with `LockLost`.
    """
    if primitive not in inspect.PRIMITIVES:
        return False
    execution, owner = _holder_with(key, primitive, fence)
    released, wakes = inspect.of_primitive(primitive).release_by_force(key, fence=fence, by=str(actor) or "operator")
    if released:
        told = OperatorActed(
            verb="release", primitive=primitive, key=key, reason=reason, actor=str(actor), fence=fence, owner=owner
        )
        _tell(actor, [execution], told)
    wake(wakes)
    return released


def drop_waiter(key: str, *, ticket: int, primitive: str = "lock", reason: str = "", actor: object = "") -> bool:
    """Take one waiter out of a line; False when that ticket does not stand there any more.

    Its execution is not ended: it looks again by itself when it was due to, and joins anew, last.
    """
    if primitive not in inspect.PRIMITIVES:
        return False
    waiter = next((each for each in inspect.line(key, primitive=primitive) if each.ticket == ticket), None)
    if waiter is None:
        return False
    wakes = inspect.of_primitive(primitive).drop_waiter(key, waiter.id, waiter.owner, by=str(actor) or "operator")
    told = OperatorActed(
        verb="drop", primitive=primitive, key=key, reason=reason, actor=str(actor), ticket=ticket, place=waiter.place
    )
    _tell(actor, [waiter.execution], told)
    wake(wakes)
    return True


def skip_position(key: str, *, position: int, epoch: int, reason: str = "", actor: object = "") -> bool:
    """Pass over one position of an ordered line; False when it passed, or the line is another by now.

    Who had it is not ended: still waiting, it arrives anew, last; running, it has lost its turn and is told so.
    """
    had = [each.execution for each in ordered_lines().view(key).in_flight if each.position == position]
    woken = ordered_lines().skip(key, position, epoch=epoch)
    if woken is None:
        return False
    _tell(actor, had, _of_line("skip", key, reason, actor, position=position))
    wake([woken] if woken else [])
    return True


def reset_line(key: str, *, epoch: int, reason: str = "", actor: object = "") -> bool:
    """Begin an ordered line afresh; False when it is another by now.

    Whoever waited in it is woken, in its order, and arrives anew; who runs has lost its turn, and nobody passes after it. A
    line that is failed is healed.
    """
    line = ordered_lines().view(key)
    flight = line.in_flight
    if not ordered_lines().reset(key, epoch=epoch):
        return False
    _tell(actor, [*(each.execution for each in flight), line.failed_by], _of_line("reset", key, reason, actor))
    wake(each.wake for each in flight if each.wake and each.state == "waiting")
    return True


def clear_period(key: str, *, bucket: str, by: str, reason: str = "", actor: object = "") -> bool:
    """Free a bucket that `by` marked: who comes next in it runs. False when it is free, or another's mark by now."""
    if not periods().free(key, bucket, by):
        return False
    _tell(
        actor,
        [by],
        OperatorActed(verb="clear", primitive="period", key=key, reason=reason, actor=str(actor), bucket=bucket),
    )
    return True


def forget_slot(key: str, *, who: str, at: float, reason: str = "", actor: object = "") -> bool:
    """Give back a slot that was planned for `who` at that time; False when it was used, or moved.

    Its execution still looks at that time, and asks anew: it may have to wait again.
    """
    if not rate_limits().forget(key, who, at):
        return False
    slot_at = datetime.fromtimestamp(at, tz=UTC)
    told = OperatorActed(
        verb="forget", primitive="rate_limit", key=key, reason=reason, actor=str(actor), slot_at=slot_at
    )
    _tell(actor, [place_of(who)[0]], told)
    return True


def place_of(who: str) -> tuple[str, str]:
    """Execution and step of an arrival, as gates name one: `<owner>|<execution>/<step>`."""
    owner, _, path = who.partition("|")
    execution, _, step = path.rpartition("/")
    return execution or owner, step


def _holder_with(key: str, primitive: str, fence: int) -> tuple[str, str]:
    """The execution that has this hold, if it is one's, else its owner."""
    found = inspect.look(key, primitive=primitive).holds
    view = next((view for view in found if view.fence == fence), None)
    if view is None:
        return "", ""
    return (view.execution, "") if _is_id(view.execution) else ("", view.owner)


def _of_line(verb: str, key: str, reason: str, actor: object, *, position: int | None = None) -> OperatorActed:
    return OperatorActed(
        verb=verb, primitive="ordered_lock", key=key, reason=reason, actor=str(actor), position=position
    )


def _tell(actor: object, concerned: Iterable[str], told: OperatorActed) -> None:
    """A trace row on each execution concerned; an owner outside any execution has no trace, and is told without."""
    ids = [each for each in dict.fromkeys(concerned) if _is_id(each)][:TOLD]
    rows = list(Execution.objects.using(store.alias()).filter(pk__in=ids).only(*journal.COLUMNS)) if ids else []
    notes = [journal.note(row, told) for row in rows]
    if notes:
        store.record([journal.row(note) for note in notes])
    for note in notes or [journal.Note(told, clock.present())]:
        journal.publish(note)
    words = f"{told.verb} {told.primitive.replace('_', ' ')} {told.key}: {told.reason}"
    history.note(actor, rows[0] if rows else None, told.key, words)


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
