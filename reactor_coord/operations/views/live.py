"""What Redis says right now of all five primitives, as rows. An unreachable Redis is a notice, never an error of the page.

The only module of the surfaces that reads `coordination`. One survey of each primitive serves a whole page.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from reactor_coord.coordination import deadlocks, inspect, ordered_lines, periods, rate_limits
from reactor_coord.coordination.ordered import LineView
from reactor_coord.coordination.period import Mark
from reactor_coord.coordination.rate_limit import LimitView
from reactor_coord.errors import NO_ANSWER, CoordinationDamaged

from .masking import mask_secrets
from .shapes import (
    BucketRow,
    HolderView,
    HoldRow,
    LimitRow,
    LineRow,
    Live,
    PositionRow,
    SlotRow,
    WaiterRow,
    WindowRow,
)

PRIMITIVES = frozenset(inspect.PRIMITIVES)
"""Those whose holders and lines Redis can be asked for; of the others a row says what was recorded."""

LISTED = 2000
"""Live keys looked at for one page, and places in line shown on it, at most."""


POSITIONS = 50
"""Positions of one ordered line, and planned slots of one limit, shown at most."""

Row = TypeVar("Row")


def holds(limit: int = LISTED) -> Live[HoldRow]:
    """Every live hold, the longest held first."""

    def read() -> list[HoldRow]:
        return [_hold_row(hold, view) for view in inspect.survey(limit=limit + 1) for hold in view.holds]

    found = _live(read, limit)
    rows = sorted(found.rows, key=lambda row: (row.since is None, row.since, row.key))
    return replace(found, rows=tuple(rows))


def hold(key: str, primitive: str, fence: int | None = None) -> HoldRow | None:
    """The live hold of one key, of a semaphore's several the one with that fence, else the oldest.

    Raises one of NO_ANSWER: whoever acts on it must not guess.
    """
    if primitive not in PRIMITIVES:
        return None
    view = inspect.look(key, primitive=primitive)
    rows = [_hold_row(each, view) for each in view.holds]
    return next((row for row in rows if row.fence == fence), rows[0] if rows else None)


def holds_of(key: str, primitive: str) -> Live[HoldRow]:
    """The live holds of one key."""

    def read() -> list[HoldRow]:
        view = inspect.look(key, primitive=primitive)
        return [_hold_row(each, view) for each in view.holds]

    return _live(read, LISTED)


def blocked(owner: str) -> list[tuple[str, str, HolderView]]:
    """What a process blocks for on behalf of this owner: primitive, key, and one who has it. Empty when Redis is away."""
    try:
        waits = deadlocks().waits_of(owner)
    except NO_ANSWER:
        return []
    return [
        (wait.primitive, wait.key, HolderView(each.owner, each.execution or each.owner, each.reactor, each.step))
        for wait in waits
        if wait.inbox
        for each in wait.blockers[:1]
    ]


def waiters(limit: int = LISTED) -> Live[WaiterRow]:
    """Everybody in line, key by key, in the order in which they will be served."""

    def read() -> list[WaiterRow]:
        waited_for = sorted(inspect.waited_for(), key=lambda view: (view.key, view.primitive))
        return [_waiter_row(each) for each in inspect.lines(waited_for, limit=limit + 1)]

    found = _live(read, limit)
    return replace(found, rows=tuple(sorted(found.rows, key=lambda row: (row.key, row.primitive, row.place))))


def limits(limit: int = LISTED) -> Live[LimitRow]:
    """Every rate limit of which something is left, by key."""
    return _by_key(_live(lambda: [_limit_row(each) for each in rate_limits().survey(limit=limit + 1)], limit))


def limit_of(key: str) -> LimitRow | None:
    """One rate limit. Raises one of NO_ANSWER."""
    found = rate_limits().look_at(key)
    return _limit_row(found, shown=LISTED) if found is not None else None


def buckets(limit: int = LISTED) -> Live[BucketRow]:
    """Every marked bucket that is not over, by key."""

    def read() -> list[BucketRow]:
        return [_bucket_row(key, mark) for key, marks in periods().survey(limit=limit + 1) for mark in marks]

    return _by_key(_live(read, limit))


def bucket(key: str, name: str) -> BucketRow | None:
    """One marked bucket. Raises one of NO_ANSWER."""
    return next((_bucket_row(key, mark) for mark in periods().marks(key) if mark.bucket == name), None)


def ordered(limit: int = LISTED) -> Live[LineRow]:
    """Every ordered line somebody is in, or that is failed for those who come, by key."""

    def read() -> list[LineRow]:
        return [_line_row(each) for each in ordered_lines().survey(limit=limit + 1, shown=POSITIONS)]

    return _by_key(_live(read, limit))


def ordered_line(key: str) -> LineRow | None:
    """One ordered line, whole; None when nobody is in it and nothing is left of it. Raises one of NO_ANSWER."""
    found = ordered_lines().view(key)
    return None if found.is_drained and not found.failed_until else _line_row(found)


def waiter(key: str, primitive: str, ticket: int) -> WaiterRow | None:
    """Who stands in line with that ticket. Raises one of NO_ANSWER."""
    found = inspect.line(key, primitive=primitive) if primitive in PRIMITIVES else ()
    return next((_waiter_row(each) for each in found if each.ticket == ticket), None)


def _live(read: Callable[[], list[Row]], limit: int) -> Live[Row]:
    try:
        found = read()
    except NO_ANSWER as error:
        return Live((), notice=unreachable(error))
    return Live(tuple(found[:limit]), truncated=len(found) > limit)


def _by_key(found: Live[Any]) -> Live[Any]:
    return replace(found, rows=tuple(sorted(found.rows, key=lambda row: row.key)))


def line(key: str, primitive: str = "lock") -> Live[WaiterRow]:
    """The line of one key."""
    try:
        return Live(tuple(map(_waiter_row, inspect.line(key, primitive=primitive))))
    except NO_ANSWER as error:
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


def _cause(error: Exception) -> str:
    return f" ({mask_secrets(str(error.__cause__))})" if error.__cause__ else ""


def unreachable(error: Exception) -> str:
    """The banner: what is missing on this page, why, and that nothing else is wrong with it."""
    if isinstance(error, CoordinationDamaged):
        return mask_secrets(f"Holders and places in line are as last recorded: {error}")
    return (
        f"Redis cannot be reached, so holders and places in line are as last recorded{_cause(error)}. "
        "Check the server, and the CACHES alias that REACTOR_COORD['REDIS_ALIAS'] names."
    )


def _hold_row(view: inspect.HoldView, of: inspect.KeyView) -> HoldRow:
    is_slot = view.primitive == "semaphore"
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
        slots_used=len(of.holds) if is_slot else None,
        limit=of.limit if is_slot else None,
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
        priority=view.priority,
        ticket=view.ticket,
    )


def _limit_row(view: LimitView, shown: int = POSITIONS) -> LimitRow:
    return LimitRow(
        key=view.key,
        algorithm=view.algorithm,
        windows=tuple(WindowRow(each.limit, each.seconds, each.count, instant(each.ends_at)) for each in view.windows),
        planned=tuple(SlotRow(who, *_place_of(who), at, instant(at)) for who, at in view.planned[:shown]),
        planned_total=len(view.planned),
    )


def _place_of(who: str) -> tuple[str, str]:
    """Execution and step of an arrival, as gates name one: `<owner>|<execution>/<step>`; an owner outside any has neither."""
    execution, _, step = who.partition("|")[2].rpartition("/")
    return execution, step


def _bucket_row(key: str, mark: Mark) -> BucketRow:
    return BucketRow(key, mark.bucket, mark.by, instant(mark.at), instant(mark.ends_at))


def _line_row(view: LineView) -> LineRow:
    flight = tuple(
        PositionRow(each.position, each.state, each.execution, each.reactor, each.step, instant(each.due))
        for each in view.in_flight
    )
    return LineRow(
        key=view.key,
        epoch=view.epoch,
        next=view.next,
        last_completed=view.last_completed,
        last_given=view.last_given,
        first_failed=view.first_failed,
        waiting=view.waiting,
        in_flight=flight,
        failed_until=instant(view.failed_until),
        failed_by=view.failed_by,
    )
