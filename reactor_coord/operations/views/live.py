"""What Redis says right now: holds and lines, as rows. An unreachable Redis is a notice, never an error of the page.

The only module of the surfaces that asks `coordination.inspect`. One survey serves a whole page.
"""

from __future__ import annotations

import datetime as dt

from reactor_coord.coordination import inspect
from reactor_coord.errors import CoordinationUnavailable

from .masking import mask_secrets
from .shapes import HolderView, HoldRow, Live, WaiterRow

PRIMITIVES = frozenset(inspect.PRIMITIVES)
"""Those whose holders and lines Redis can be asked for; of the others a row says what was recorded."""

LISTED = 2000
"""Live keys looked at for one page, and places in line shown on it, at most."""


def holds(limit: int = LISTED) -> Live[HoldRow]:
    """Every live hold, the longest held first."""
    try:
        found = inspect.holds(limit=limit + 1)
    except CoordinationUnavailable as error:
        return Live((), notice=unreachable(error))
    rows = sorted(map(_hold_row, found[:limit]), key=lambda row: (row.since is None, row.since, row.key))
    return Live(tuple(rows), truncated=len(found) > limit)


def hold(key: str, primitive: str, fence: int | None = None) -> HoldRow | None:
    """The live hold of one key, of a semaphore's several the one with that fence, else the oldest.

    Raises CoordinationUnavailable: whoever acts on it must not guess.
    """
    found = inspect.look(key, primitive=primitive).holds if primitive in PRIMITIVES else ()
    rows = [_hold_row(view) for view in found]
    return next((row for row in rows if row.fence == fence), rows[0] if rows else None)


def waiters(limit: int = LISTED) -> Live[WaiterRow]:
    """Everybody in line, key by key, in the order in which they will be served."""
    rows: list[WaiterRow] = []
    try:
        for key, primitive in sorted((view.key, view.primitive) for view in inspect.waited_for()):
            rows += map(_waiter_row, inspect.line(key, primitive=primitive))
            if len(rows) > limit:
                break
    except CoordinationUnavailable as error:
        return Live((), notice=unreachable(error))
    return Live(tuple(rows[:limit]), truncated=len(rows) > limit)


def line(key: str, primitive: str = "lock") -> Live[WaiterRow]:
    """The line of one key."""
    try:
        return Live(tuple(map(_waiter_row, inspect.line(key, primitive=primitive))))
    except CoordinationUnavailable as error:
        return Live((), notice=unreachable(error))


def holder_of(row: HoldRow) -> HolderView:
    """The holder of a live hold."""
    return HolderView(
        owner=row.owner,
        execution=row.execution,
        reactor=row.reactor,
        step=row.step,
        state=row.state,
        since=row.since,
        lease_left=row.lease_left,
        fence=row.fence,
    )


def instant(seconds: float | None) -> dt.datetime | None:
    """The server's Unix seconds as an aware time."""
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC) if seconds else None


def unreachable(error: Exception) -> str:
    """The banner: what is missing on this page, why, and that nothing else is wrong with it."""
    return (
        f"Redis cannot be reached, so holders and places in line are as last recorded. {mask_secrets(str(error))} "
        "Check the server, and the CACHES alias that REACTOR_COORD['REDIS_ALIAS'] names."
    )


def _hold_row(view: inspect.HoldView) -> HoldRow:
    return HoldRow(
        key=view.key,
        primitive=view.primitive,
        state=view.state,
        owner=view.owner,
        execution=view.execution,
        reactor=view.reactor,
        step=view.step,
        since=instant(view.since),
        lease_left=max(view.remaining, 0.0),
        fence=view.fence,
        count=view.count,
        waiting=view.waiting,
    )


def _waiter_row(view: inspect.WaiterView) -> WaiterRow:
    return WaiterRow(
        key=view.key,
        primitive=view.primitive,
        place=view.place,
        owner=view.owner,
        execution=view.execution,
        reactor=view.reactor,
        step=view.step,
        since=instant(view.since),
        kind="blocking" if view.is_blocking else "parked",
    )
