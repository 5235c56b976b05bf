"""What is held, used, marked or next under a key now, on the real Redis: one group for each primitive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reactor_coord.coordination import inspect, ordered_lines, periods, rate_limits
from reactor_coord.coordination.process import primitives
from reactor_coord.declare.coordination import WINDOWS
from reactor_coord.testing.assertions.story import Story, assertion, listed, row_of

if TYPE_CHECKING:
    from reactor_coord.coordination.inspect import HoldView
    from reactor_coord.coordination.ordered import LineView, PositionView
    from reactor_coord.coordination.period import Mark
    from reactor_coord.coordination.rate_limit import LimitView, Usage
    from reactor_coord.testing.assertions.story import Subject


# ---- locks and semaphores


@assertion
def assert_locked(key: str, by: Subject | None = None) -> None:
    """The lock on `key` is held now, by that execution's tree if one is given."""
    held = inspect.look(key).hold
    assert held is not None, f"expected {key!r} to be locked; it is free"
    if by is not None:
        owner = str(row_of(by).root_id)
        assert held.owner == owner, f"expected {key!r} to be held by {owner}; it is {_described(held)}"


@assertion
def assert_free(key: str, primitive: str = "lock") -> None:
    """No owner has the lock on `key`, or a slot of the semaphore: held, handed to a waiter, or kept by a parked execution."""
    held = inspect.look(key, primitive=primitive).holds
    assert not held, f"expected the {primitive} {key!r} to be free; it is {'; '.join(map(_described, held))}"


@assertion
def assert_slots_used(key: str, count: int, limit: int | None = None) -> None:
    """So many slots of the semaphore are used now, of a limit of so many if it is given. A slot kept by a parked one counts."""
    view = inspect.look(key, primitive="semaphore")
    found = f"{len(view.holds)} are, of {view.limit or 'no known limit'}: {listed(map(_described, view.holds))}"
    assert len(view.holds) == count, f"expected {count} slots of {key!r} to be used; {found}"
    assert limit in (None, view.limit), f"expected the limit of {key!r} to be {limit}; it is {view.limit}"


def _described(hold: HoldView) -> str:
    where = ".".join(part for part in (hold.reactor, hold.step) if part)
    return f"{hold.state} by {hold.owner}{f' ({where})' if where else ''}, {hold.remaining:.1f} s left"


# ---- rate limits


@assertion
def assert_starts_in_window(key: str, count: int, window: str | float | None = None) -> None:
    """So many starts were made in the present window of the rate limit. Those that are planned do not count yet.

    `window`: `"second"`, `"minute"`, `"hour"`, `"day"` or its length in seconds, where the limit has several.
    """
    view = rate_limits().look_at(key)
    if view is None:
        assert count == 0, f"expected {count} starts in the window of {key!r}; no start of it is known"
        return
    usage = _one(view, window)
    made, planned = _made(view, usage), len(view.planned)
    assert made == count, (
        f"expected {count} starts in the window of {key!r}; there are {made} of {_of_window(usage)}, and {planned} are planned"
    )


def _one(view: LimitView, window: str | float | None) -> Usage:
    seconds = WINDOWS[window] if isinstance(window, str) else window
    fitting = [usage for usage in view.windows if seconds in (None, usage.seconds)]
    assert len(fitting) == 1, f"which window of {view.key!r}? It has: {listed(map(_of_window, view.windows))}"
    return fitting[0]


def _made(view: LimitView, usage: Usage) -> int:
    """A fixed window counts the starts that are planned in it as well."""
    if usage.ends_at is None:
        return usage.count
    begins_at = usage.ends_at - usage.seconds
    return usage.count - sum(begins_at <= at < usage.ends_at for _, at in view.planned)


def _of_window(usage: Usage) -> str:
    return f"{usage.limit} per {usage.seconds:g} s"


# ---- periods


@assertion
def assert_period_marked(key: str, by: Subject | None = None) -> None:
    """A bucket of the period that is not over is marked: who comes in it is skipped. With `by`, that execution marked it."""
    marks = _marks(key)
    assert marks, f"expected a bucket of {key!r} to be marked; none is"
    if by is not None:
        ids = {str(pk) for pk in Story(by).rows}
        found = listed(f"{mark.bucket} by execution {mark.by}" for mark in marks)
        assert any(mark.by in ids for mark in marks), (
            f"expected {key!r} to be marked by {row_of(by).pk}; marked are: {found}"
        )


@assertion
def assert_period_free(key: str) -> None:
    """No bucket of the period is marked: who comes next runs."""
    found = listed(f"{mark.bucket} by {mark.by}" for mark in _marks(key))
    assert found == listed(()), f"expected no bucket of {key!r} to be marked; marked are: {found}"


def _marks(key: str) -> list[Mark]:
    """Those of the buckets that are not over, by the server's clock."""
    seconds, _ = primitives().connection.commands(("TIME",))[0]
    return [mark for mark in periods().marks(key) if mark.ends_at > int(seconds)]


# ---- ordered lines


@assertion
def assert_ordered_next(key: str, who: Subject | int) -> None:
    """It is that execution's turn in the ordered line, or that of this position, whether it has begun or not."""
    view = ordered_lines().view(key)
    wanted = f"position {who}" if isinstance(who, int) else f"execution {row_of(who).pk}"
    assert view.in_flight, f"expected {wanted} to be next in {key!r}; the line is drained"
    head = view.in_flight[0]
    is_so = head.position == who if isinstance(who, int) else head.execution in {str(pk) for pk in Story(who).rows}
    behind = listed(map(_of_position, view.in_flight[1:]))
    assert is_so, f"expected {wanted} to be next in {key!r}; next is {_of_position(head)}; behind it: {behind}"


@assertion
def assert_ordered_last(key: str, position: int) -> None:
    """That position is the last of the ordered line that has passed: completed, failed, skipped or given back. 0: none has."""
    view = ordered_lines().view(key)
    assert view.in_flight, f"expected position {position} to be the last that passed in {key!r}; {_whole(view)}"
    assert view.last_completed == position, (
        f"expected position {position} to be the last that passed in {key!r}; {_whole(view)}"
    )


@assertion
def assert_ordered_drained(key: str) -> None:
    """No execution is in the ordered line: who comes next has the turn at once, and begins a new line."""
    view = ordered_lines().view(key)
    assert view.is_drained, f"expected the line {key!r} to be drained; {_whole(view)}"


def _whole(view: LineView) -> str:
    if view.is_drained:
        return "the line is drained"
    failed = f", the first that failed {view.first_failed}" if view.first_failed else ""
    return (
        f"the last that passed is {view.last_completed}{failed}; in line: {listed(map(_of_position, view.in_flight))}"
    )


def _of_position(each: PositionView) -> str:
    where = ".".join(part for part in (each.reactor, each.step) if part)
    who = f" of execution {each.execution}" if each.execution else ""
    return f"position {each.position} ({each.state}, {where or 'another owner'}{who})"
