"""When a parked execution looks again: by its patience, and never past the end of a hold that nothing prolongs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from reactor_coord import Input, Reactor, step, with_lock, with_ordered_lock, with_semaphore
from reactor_coord.coordination import Requester, Taken, Turn, inspect, locks, ordered_lines, semaphores
from reactor_coord.models import Execution
from reactor_coord.operations import views
from reactor_coord.runtime import deliver
from tests.integration.runtime.support import eventually, trace

pytestmark = pytest.mark.django_db(transaction=True)

SLOW = {"SNOOZE_BASE_DELAY": 30, "SNOOZE_MAX_DELAY": 60, "SNOOZE_JITTER": 0}


class Locked(Reactor):
    key = Input(str)

    @step(key=key)
    @with_lock("{key}")
    def only(key: str) -> str:
        return key


class Slotted(Reactor):
    key = Input(str)

    @step(key=key)
    @with_semaphore("{key}", limit=2)
    def only(key: str) -> str:
        return key


@pytest.fixture(autouse=True)
def _slow(settings: Any) -> None:
    settings.REACTOR_COORD = {**settings.REACTOR_COORD, **SLOW}


def held(key: str, ttl: float, *, renews: bool = False, name: str = "other") -> Taken:
    """As another process would have it: nothing here renews it."""
    answer = locks().take([key], Requester(name, name, renews=renews), ttl=ttl, join=False)
    assert isinstance(answer, Taken)
    return answer


def looks_in(reactor: type[Reactor] = Locked) -> float:
    """Seconds until a new waiter, refused, looks again."""
    handle = reactor.enqueue(key="k")
    begun = timezone.now()
    deliver(handle.id, "test")
    row = Execution.objects.get(pk=handle.id)
    assert row.status == "parked"
    assert row.resume_at is not None
    return (row.resume_at - begun).total_seconds()


def test_u111_a_look_is_not_set_past_the_end_of_a_hold_that_is_not_renewed(reactor_dispatches: Any) -> None:
    held("k", 2)
    assert 1.5 < looks_in() < 2.5


def test_u111_who_stands_further_back_looks_a_moment_later(reactor_dispatches: Any) -> None:
    held("k", 2)
    assert looks_in() < looks_in() < looks_in() < 3


def test_a_hold_that_is_renewed_is_looked_at_when_patience_says_so(reactor_dispatches: Any) -> None:
    held("k", 2, renews=True)
    assert looks_in() >= 29


def test_a_holder_that_missed_its_renewal_is_looked_at_when_its_hold_ends(reactor_dispatches: Any) -> None:
    """It died, or stands still: alive, it would have prolonged the hold when two thirds were left."""
    held("k", 2, renews=True)
    eventually(lambda: (hold := inspect.look("k").hold) is not None and hold.remaining < 0.95)
    assert looks_in() < 1.5


def test_what_another_keeps_parked_is_looked_at_when_that_ends(reactor_dispatches: Any) -> None:
    locks().park(held("k", 60, renews=True), 3)
    assert 2.5 < looks_in() < 3.5


def test_a_grant_that_another_does_not_come_for_is_looked_at_when_it_lapses(
    reactor_dispatches: Any, settings: Any
) -> None:
    settings.REACTOR_COORD = {**settings.REACTOR_COORD, "HANDOFF_GRACE": 3}
    taken = held("k", 60, renews=True)
    looks_in()
    assert locks().give(taken)
    assert 2.5 < looks_in() < 3.5


def test_of_a_semaphore_the_slot_that_ends_first_counts(reactor_dispatches: Any) -> None:
    for name, ttl in (("a", 60.0), ("b", 2.0)):
        assert isinstance(semaphores().take("k", Requester(name, name, renews=False), limit=2, ttl=ttl), Taken)
    assert 1.5 < looks_in(Slotted) < 2.5


@pytest.mark.parametrize("auto_extend", [True, False])
def test_what_a_step_declares_is_what_others_go_by(auto_extend: bool, reactor_dispatches: Any) -> None:
    seen: list[float] = []

    class Holding(Reactor):
        @step()
        @with_lock("k", ttl=3, auto_extend=auto_extend)
        def only() -> None:
            seen.append(looks_in())

    assert Holding.run().succeeded
    assert (seen[0] < 3.5) is not auto_extend
    assert timedelta(seconds=seen[0]) > timedelta(seconds=2)


@with_ordered_lock("{key}")
class Turned(Reactor):
    key = Input(str)

    @step(key=key)
    def only(key: str) -> str:
        return key


class TurnedStep(Reactor):
    key = Input(str)

    @step(key=key)
    @with_ordered_lock("{key}")
    def only(key: str) -> str:
        return key


def _left_by_a_dead_worker(handle: Any, reactor: type[Reactor]) -> None:
    """What its first worker had when it was killed."""
    identity, ttl = str(handle.id), 2
    step_name = "" if reactor is Turned else "only"
    who = Requester(identity, "dead", execution=identity, reactor=reactor.__name__, step=step_name)
    if reactor is Locked:
        assert isinstance(locks().take(["k"], who, ttl=ttl, join=False), Taken)
    elif reactor is Slotted:
        for owner in (who, Requester("other", "other")):
            assert isinstance(semaphores().take("k", owner, limit=2, ttl=ttl if owner is who else 60), Taken)
    else:
        name = f"{identity}|{identity}/{step_name}"
        ask = ordered_lines().entering("k", name, who, poison_timeout=600, ttl=3600, lease=ttl)
        assert isinstance(ordered_lines().send(ask), Turn)


@pytest.mark.parametrize("reactor", [Locked, Slotted, TurnedStep, Turned])
def test_u13_what_its_dead_worker_left_is_named_so_and_looked_at_when_it_ends(
    reactor: type[Reactor], reactor_dispatches: Any
) -> None:
    handle = reactor.enqueue(key="k")
    _left_by_a_dead_worker(handle, reactor)
    begun = timezone.now()
    deliver(handle.id, "test")
    row = Execution.objects.get(pk=handle.id)
    assert row.status == "parked"
    assert row.resume_at is not None
    assert 1 < (row.resume_at - begun).total_seconds() < 2.5
    (refused,) = trace(handle, "refused")
    assert str(refused.data["held_by"]).startswith("its dead worker")
    if reactor is not Slotted:  # of several slots the page shows whichever is held longest
        assert "its dead worker" in views.detail(row).explain
    due = row.resume_at
    eventually(lambda: timezone.now() > due, within=20)
    deliver(handle.id, "test")
    assert handle.status == "completed"
