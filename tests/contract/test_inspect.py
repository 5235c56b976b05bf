"""What operators see of holds and lines."""

from __future__ import annotations

import time

from reactor_coord import coordination
from reactor_coord.coordination import Locks, inspect
from tests.contract.conftest import MakeLocks
from tests.contract.people import refused, taken, who


def test_holds_in_every_state(locks: Locks) -> None:
    a = taken(locks.take(["a"], who("A", reactor="Payment", step="charge"), ttl=10))
    taken(locks.take(["a"], who("A"), ttl=10))
    b = taken(locks.take(["b"], who("B"), ttl=10))
    locks.park(b, 60)
    c = taken(locks.take(["c"], who("C"), ttl=10))
    refused(locks.take(["c"], who("D", step="charge"), ttl=10))
    locks.give(c)
    views = {view.key: view for view in inspect.holds(locks)}
    assert {key: view.state for key, view in views.items()} == {"a": "held", "b": "parked", "c": "granted"}
    view = views["a"]
    assert (view.owner, view.claim, view.execution) == ("A", "claim of A", "A")
    assert (view.reactor, view.step, view.count, view.fence) == ("Payment", "charge", 2, a.keys[0].fence)
    assert 9 < view.remaining <= 10
    assert abs(view.since - time.time()) < 5
    assert 59 < views["b"].remaining <= 60
    assert (views["c"].owner, views["c"].step, views["c"].released_by) == ("D", "charge", "C")
    assert views["c"].granted_at is not None
    assert len(inspect.holds(locks, limit=2)) == 2


def test_the_line_of_a_key(locks: Locks) -> None:
    taken(locks.take(["k"], who("A"), ttl=10))
    for name in ("B", "C"):
        refused(locks.take(["k"], who(name, reactor="Payment", step="charge", priority=1), ttl=10))
    first, second = inspect.line("k", locks)
    assert (first.place, first.owner, first.wake, first.is_blocking) == (1, "B", "B", False)
    assert (first.reactor, first.step, first.priority, first.lapses) == ("Payment", "charge", 1, 0)
    assert (second.place, second.owner) == (2, "C")
    assert second.ticket > first.ticket
    assert [view.key for view in inspect.waited_for(locks)] == ["k"]
    assert inspect.look("k", locks).waiting == 2
    assert inspect.line("nobody", locks) == []
    assert inspect.look("nobody", locks).hold is None


def test_what_lapsed_is_not_shown_and_a_line_without_a_hold_is(locks: Locks) -> None:
    taken(locks.take(["gone"], who("A"), ttl=0.05))
    taken(locks.take(["k"], who("A"), ttl=0.05))
    refused(locks.take(["k"], who("B"), ttl=10))
    time.sleep(0.06)
    assert inspect.holds(locks) == []
    assert [(view.key, view.waiting) for view in inspect.survey(locks)] == [("k", 1)]


def test_a_thousand_holds_are_listed_in_a_few_round_trips(locks: Locks) -> None:
    for number in range(1200):
        taken(locks.take([f"k{number}"], who("A"), ttl=30))
    begun = time.monotonic()
    assert len(inspect.holds(locks)) == 1200
    assert time.monotonic() - begun < 1


def test_the_processes_own_locks_follow_the_settings(
    settings: object, make_locks: MakeLocks, reactor_prefix: str
) -> None:
    first = coordination.locks()
    assert coordination.locks() is first
    assert first.names.prefix == reactor_prefix
    settings.REACTOR_COORD = {"KEY_PREFIX": f"{reactor_prefix}-other"}  # type: ignore[attr-defined]
    assert coordination.locks().names.prefix == f"{reactor_prefix}-other"
    held = taken(coordination.locks().take(["k"], who("A"), ttl=10))
    assert [view.key for view in inspect.holds()] == ["k"]
    coordination.locks().give(held)
