"""Executions that wait for each other, in process, in a worker, for a result, for a turn: one fails and says why."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from reactor_coord import Input, Reactor, Step, async_step, step, testing, with_lock, with_ordered_lock, with_semaphore
from reactor_coord.coordination import Deadlocks, locks
from reactor_coord.models import TraceEvent
from reactor_coord.testing import drain
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import Background, at_once, eventually, failure, trace

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("reactor_dispatches")]

MET = threading.Barrier(2)


@pytest.fixture(autouse=True)
def _fresh_barrier() -> None:
    MET.reset()


class Crossed(Reactor):
    """The first key for itself, the second at a step; both have the first before either asks for the second."""

    first = Input(str)
    second = Input(str)
    meets = Input(bool, default=True)


@with_lock("{first}", ttl=5)
class Pair(Crossed):
    """With locks."""

    @step(meets=Crossed.meets)
    def before(meets: bool) -> None:
        with current().recording("before"):
            if meets:
                MET.wait(5)

    @before.undo
    def unbefore() -> None:
        current().mark("undo before")

    @step(key=Crossed.second, after=before)
    @with_lock("{key}", ttl=5, wait=10)
    def inner(key: str) -> str:
        with current().recording("inner"):
            return key


def cycle_of(outcome: Any) -> str:
    """What the failure says."""
    return str(failure(outcome).message)


def test_two_threads_in_process(recorder: Recorder) -> None:
    begun = time.monotonic()
    outcomes = at_once(
        lambda: Pair.run(first="A", second="B"),
        lambda: Pair.run(first="B", second="A"),
    )
    assert time.monotonic() - begun < 3
    assert sorted(outcome.succeeded for outcome in outcomes) == [False, True]
    (given_up,) = [outcome for outcome in outcomes if not outcome.succeeded]
    assert failure(given_up).error_type == "DeadlockDetected"
    ids = sorted(str(outcome.execution.id) for outcome in outcomes)
    assert str(given_up.execution.id) == ids[1]  # the younger
    for part in ("'A'", "'B'", *ids):
        assert part in cycle_of(given_up)
    assert recorder.count("undo before") == 1
    for outcome in outcomes:  # a row on both sides
        (row,) = trace(outcome, "deadlock")
        assert row.data["victim"] == ids[1] and len(row.data["cycle"]) == 2
    testing.assert_free("A")
    testing.assert_free("B")


@with_lock("{first}", ttl=5)
class Slow(Crossed):
    """As `Pair`, parking at a gate of the test's own between the two keys."""

    gate = Input(str)

    @step(key=gate)
    @with_lock("{key}", ttl=5)
    def before(key: str) -> None:
        pass

    @step(key=Crossed.second, after=before)
    @with_lock("{key}", ttl=5)
    def inner(key: str) -> str:
        return key


def test_d75_in_a_worker_the_younger_fails_and_the_other_goes_on() -> None:
    with testing.hold("T"):
        older = Slow.enqueue(first="A", second="B", gate="T")
        drain()
        younger = Slow.enqueue(first="B", second="A", gate="free")
        drain()
        assert (older.status, younger.status) == ("parked", "parked")
    drain(timeout=3)  # the older closes the ring, is not the victim, and tells the younger
    assert older.wait(1).succeeded
    outcome = younger.wait(1)
    assert failure(outcome).error_type == "DeadlockDetected"
    for part in ("'A'", "'B'", str(older.id), str(younger.id)):
        assert part in cycle_of(outcome)
    for handle in (older, younger):
        (row,) = trace(handle, "deadlock")
        assert row.data["victim"] == str(younger.id)
    testing.assert_free("A")
    testing.assert_free("B")
    assert not locks().connection.client.exists(locks().names.waits(str(older.id)))


@with_semaphore("slots", limit=2, ttl=5)
class Slotted(Step):
    """Needs a slot."""

    name = Input(str)

    def run(self) -> str:
        """Its own name."""
        return self.name


@with_semaphore("slots", limit=2, ttl=5)
class Parent(Reactor):
    """Has a slot, and hands off what needs one."""

    name = Input(str)

    child = async_step(Slotted, name=name)


def test_b031_parents_with_the_last_slots_and_children_that_need_one() -> None:
    parents = [Parent.enqueue(name=name) for name in ("one", "two")]
    drain(timeout=5)
    outcomes = [parent.wait(1) for parent in parents]
    assert sorted(outcome.succeeded for outcome in outcomes) == [False, True]
    (given_up,) = [outcome for outcome in outcomes if not outcome.succeeded]
    assert failure(given_up).error_type == "DeadlockDetected"
    assert "'slots'" in cycle_of(given_up)
    assert TraceEvent.objects.filter(kind="deadlock", root_id=given_up.execution.id).exists()


@with_lock("{key}", ttl=5)
class Behind(Reactor):
    """Has the key, and waits for its turn."""

    key = Input(str)
    gate = Input(str)

    @step(key=gate)
    @with_lock("{key}", ttl=5)
    def before(key: str) -> None:
        pass

    @step(after=before)
    @with_ordered_lock("line")
    def turn() -> None:
        pass


class Ahead(Reactor):
    """Has its turn, and waits for the key."""

    key = Input(str)

    @step(key=key)
    @with_ordered_lock("line")
    @with_lock("{key}", ttl=5)
    def turn(key: str) -> None:
        pass


@pytest.mark.parametrize("older_has_the_turn", [True, False])
def test_a_turn_that_is_kept_while_waiting_for_a_key(older_has_the_turn: bool) -> None:
    with testing.hold("T"):
        ahead = Ahead.enqueue(key="A") if older_has_the_turn else None
        behind = Behind.enqueue(key="A", gate="T")
        _run_first(behind)
        ahead = ahead or Ahead.enqueue(key="A")
        drain()
        assert (ahead.status, behind.status) == ("parked", "parked")
    drain(timeout=5)
    outcomes = [ahead.wait(1), behind.wait(1)]
    assert sorted(outcome.succeeded for outcome in outcomes) == [False, True]
    (given_up,) = [outcome for outcome in outcomes if not outcome.succeeded]
    assert failure(given_up).error_type == "DeadlockDetected"
    younger = max(outcomes, key=lambda outcome: str(outcome.execution.id))
    assert given_up is younger
    assert Ahead.enqueue(key="A").id  # and the line goes on
    drain()
    assert Ahead.run(key="A").succeeded


def _run_first(handle: Any) -> None:
    """Deliver this one's message before any other's."""
    from reactor_coord.runtime import deliver

    deliver(str(handle.id), "testing")


def test_a_bystander_waits_and_is_served(recorder: Recorder) -> None:
    pair = [
        Background(lambda: Pair.run(first="A", second="B")),
        Background(lambda: Pair.run(first="B", second="A")),
    ]
    eventually(lambda: recorder.count("before") == 2)
    bystander = Background(lambda: Slow.run(first="C", second="A", gate="free"))
    assert sorted(each.result(10).succeeded for each in pair) == [False, True]
    outcome = bystander.result(10)
    assert outcome.succeeded or failure(outcome).error_type == "LockContended"


def test_who_has_nothing_that_others_wait_for_is_not_held_up_by_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    find = Deadlocks.find

    def counted(self: Deadlocks, owner: str, *more: Any) -> Any:
        asked.append(owner)
        return find(self, owner, *more)

    monkeypatch.setattr(Deadlocks, "find", counted)
    with testing.hold("A"):
        empty = Slow.enqueue(first="A", second="B", gate="free")  # refused at its own door, with nothing in its hands
        drain()
        assert empty.status == "parked" and asked == []
    drain()
    assert empty.wait(1).succeeded and asked == []  # granted, and free
    with testing.hold("B"):
        full = Slow.enqueue(first="A", second="B", gate="free")
        drain()
        assert full.status == "parked" and asked == [str(full.id)]
