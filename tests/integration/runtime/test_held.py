"""What a body sees of its holds: by primitive and key, live, with the token that a store can fence by."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import Input, Reactor, Step, compose, step, with_lock, with_ordered_lock, with_period, with_semaphore
from reactor_coord.coordination import locks, ordered_lines
from tests.integration.runtime.support import eventually

pytestmark = pytest.mark.django_db(transaction=True)


@with_period("{key}", every="month")
@with_lock("{key}", ttl=5)
class _Billing(Step):
    """As in `MonthlyBilling`: one key for the month and for the lock."""

    key = Input(str)

    def run(self) -> Any:
        with pytest.raises(KeyError, match="a period is a mark and no hold"):
            self.context.fence(self.key, primitive="period")
        view = self.context.holds["lock", self.key]
        return {
            "held": list(self.context.holds),
            "fence": self.context.fence(self.key),
            "is_the_locks": self.context.fence(self.key, primitive="lock") == view.fencing_token,
            "read": (view.key, view.primitive, view.lost),
        }


@with_ordered_lock("{key}")
@with_lock("{key}", ttl=5)
@with_semaphore("{key}", limit=2)
class _AllOnOneKey(Step):
    key = Input(str)

    def run(self) -> Any:
        return {
            "held": sorted(self.context.holds),
            "by_key": self.context.fence(self.key),
            "by_name": {kind: self.context.fence(key, kind) for kind, key in self.context.holds},
        }


@with_semaphore("{key}", limit=2)
class _SlotOnly(Step):
    key = Input(str)

    def run(self) -> Any:
        with pytest.raises(KeyError, match="the lock 'k' is not held here; held: semaphore k"):
            self.context.fence(self.key, primitive="lock")
        with pytest.raises(KeyError, match="'other' is not held here"):
            self.context.holds["other"]
        return (
            self.context.fence(self.key),
            "other" in self.context.holds,
            ("semaphore", self.key) in self.context.holds,
        )


@with_ordered_lock("{key}")
@with_semaphore("{key}", limit=2)
class _TwoWithoutALock(Step):
    key = Input(str)

    def run(self) -> Any:
        with pytest.raises(KeyError, match="held here as ordered_lock and as semaphore: say which"):
            self.context.fence(self.key)
        return self.context.fence(self.key, primitive="semaphore") > 0


def _reactor(body: type[Step]) -> type[Reactor]:
    class Held(Reactor):
        key = Input(str)
        only = step(body)

    return Held


def test_u99_a_lock_and_a_period_on_one_key_do_not_shadow_each_other() -> None:
    value = _reactor(_Billing).run(key="k").unwrap()
    assert value["held"] == [("lock", "k")]
    assert value["fence"] > 0
    assert value["is_the_locks"]
    assert value["read"] == ("k", "lock", False)
    assert _Billing.call(key="k2")["held"] == [("lock", "k2")]


def test_u99_by_key_alone_it_is_the_locks_fence() -> None:
    value = _reactor(_AllOnOneKey).run(key="k").unwrap()
    assert value["held"] == [("lock", "k"), ("ordered_lock", "k"), ("semaphore", "k")]
    assert value["by_key"] == value["by_name"]["lock"]
    assert all(fence > 0 for fence in value["by_name"].values())
    assert set(value["by_name"]) == {"lock", "ordered_lock", "semaphore"}


def test_u99_by_key_alone_it_is_the_only_ones_fence() -> None:
    fence, knows_another, knows_its_own = _reactor(_SlotOnly).run(key="k").unwrap()
    assert fence > 0
    assert not knows_another
    assert knows_its_own


def test_u99_where_two_may_be_meant_it_is_said_which() -> None:
    assert _reactor(_TwoWithoutALock).run(key="k").unwrap() is True


@with_ordered_lock("{key}")
class _InTurn(Step):
    key = Input(str)

    def run(self) -> Any:
        return self.context.fence(self.key)


def test_the_fence_of_a_turn_grows_from_one_drained_line_to_the_next() -> None:
    """Positions begin at 1 again; a store that fences by them would refuse every line but the first."""
    fences = [_reactor(_InTurn).run(key="k").unwrap() for _ in range(4)]
    assert ordered_lines().view("k").is_drained
    assert fences == sorted(set(fences))


@with_semaphore("{key}", limit=2)
@with_lock("{key}", ttl=1.5, on_lost="warn")
class _LosesTheLock(Step):
    key = Input(str)

    def run(self) -> Any:
        holds = self.context.holds
        take_away(self.key)
        eventually(lambda: holds[self.key].lost)
        return (holds["lock", self.key].lost, holds["semaphore", self.key].lost)


def take_away(key: str) -> None:
    """As an operator, or a ttl that ran out."""
    from reactor_coord.coordination import inspect

    found = inspect.look(key).hold
    assert found is not None
    assert locks().release_by_force(key, fence=found.fence)[0]


def test_u99_a_lost_lock_is_seen_beside_a_slot_of_its_key() -> None:
    assert _reactor(_LosesTheLock).run(key="k").unwrap() == (True, False)


@with_lock("{key}", ttl=1.5, on_lost="warn")
class _LosesTheOuter(Step):
    key = Input(str)

    def run(self) -> Any:
        take_away(self.key)
        eventually(lambda: self.context.holds[self.key].lost)
        return len(self.context.holds)


@with_lock("{key}", ttl=1.5, on_lost="warn")
class _Inner(Reactor):
    key = Input(str)
    only = step(_LosesTheOuter)


@with_lock("{key}", ttl=60, on_lost="warn")
class _Around(Reactor):
    key = Input(str)
    inside = compose(_Inner)


def test_a_key_entered_again_is_one_hold_and_is_lost_where_any_entry_is() -> None:
    """The outer entry, of 60 s, would learn it a third of its ttl later."""
    assert _Around.run(key="k").unwrap() == 1
