"""The semaphore at a step and at a reactor, in process; what is declared about contention, for it and for the lock."""

from __future__ import annotations

import itertools
import time
from functools import partial
from typing import Any

import pytest

from reactor_coord import Input, compose, operations, step, testing, with_lock, with_rate_limit, with_semaphore
from reactor_coord.coordination import inspect, rate_limits
from reactor_coord.operations import views
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import Background, at_once, eventually, failure, forked, kill, told
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


@with_semaphore("{key}", limit=2, ttl=5, wait=10)
class PairedWork(Work):
    """Two at a time per key."""

    key = Input(str)


@with_semaphore("{key}", limit=1, ttl=5, wait=10)
class LoneWork(Work):
    """One at a time per key."""

    key = Input(str)

    def run(self) -> dict[str, Any]:
        """Also says what the tree holds."""
        return {**super().run(), "holds": {key: kind for kind, key in self.context.holds}}

    def undo(self, result: dict[str, Any]) -> None:
        """Also notes who has the slot."""
        held = inspect.look(self.key, primitive="semaphore").hold
        current().mark("undone by", owner=held and held.owner, root=self.context.root_id)
        super().undo(result)


class Paired(Named):
    """One step of which two run at a time."""

    key = Input(str)
    seconds = Input(float, default=0.0)
    charge = step(PairedWork)


class Lone(Named):
    """One step of which one runs at a time, and one behind it that may fail."""

    key = Input(str)
    seconds = Input(float, default=0.0)
    charge = step(LoneWork)
    behind = step(Work, seconds=0, after=charge)
    returns = charge


def slots(key: str) -> list[str]:
    return [hold.state for hold in inspect.look(key, primitive="semaphore").holds]


def test_family_01_never_more_than_the_limit_and_all_succeed(recorder: Recorder) -> None:
    outcomes = at_once(*[partial(Paired.run, name=f"n{number}", key="k", seconds=0.1) for number in range(5)])
    assert [outcome.status for outcome in outcomes] == ["completed"] * 5
    assert recorder.max_concurrency("run charge") == 2
    assert slots("k") == []


def test_family_02_the_key_is_among_the_trees_holds_during_the_body(recorder: Recorder) -> None:
    outcome = Lone.run(key="k")
    assert outcome.succeeded, outcome.failure
    assert outcome.value["holds"] == {"k": "semaphore"}
    assert told(outcome, "acquired", "released") == [("acquired", "charge", "k"), ("released", "charge", "k")]
    assert slots("k") == []


@with_lock("lock:{key}", ttl=5, wait=10)
@with_semaphore("slots:{key}", limit=1, ttl=5, wait=10)
class BothWork(Work):
    """A lock and a slot."""

    key = Input(str)


@with_semaphore("slots:{key}", limit=1, ttl=5, wait=10)
@with_lock("lock:{key}", ttl=5, wait=10)
class BothOtherwiseWork(Work):
    """The same pair, declared the other way round."""

    key = Input(str)


class Both(Named):
    """Two steps with the same pair."""

    key = Input(str)
    seconds = Input(float, default=0.02)
    first = step(BothWork)
    second = step(BothOtherwiseWork, after=first)


def test_family_08_lock_then_semaphore_and_back_in_reverse_with_no_deadlock(recorder: Recorder) -> None:
    begun = time.monotonic()
    outcomes = at_once(*[partial(Both.run, name=f"n{number}", key="k") for number in range(4)])
    assert [outcome.status for outcome in outcomes] == ["completed"] * 4
    assert time.monotonic() - begun < 8
    pair = [("acquired", "lock:k"), ("acquired", "slots:k"), ("released", "slots:k"), ("released", "lock:k")]
    for outcome in outcomes:
        assert [(kind, key) for kind, _, key in told(outcome, "acquired", "released")] == pair * 2
    testing.assert_free("lock:k")
    assert slots("slots:k") == []


@with_rate_limit("starts:{key}", limit=5, period=60)
@with_semaphore("slots:{key}", limit=1, ttl=5)
class RatedWork(Work):
    """A start counts when the slot is had."""

    key = Input(str)


class Rated(Named):
    """One limited step."""

    key = Input(str)
    charge = step(RatedWork)


def test_family_09_contention_for_a_slot_spends_no_start(recorder: Recorder) -> None:
    with testing.hold("slots:k", "semaphore"):
        for _ in range(5):
            assert failure(Rated.run(key="k")).error_type == "SemaphoreContended"
    assert Rated.run(key="k").succeeded
    assert sum(count for _, count in rate_limits().view("starts:k").windows) == 1
    assert slots("slots:k") == []


def test_family_10_the_slot_of_a_killed_process_is_back_after_its_ttl(recorder: Recorder) -> None:
    @with_semaphore("{key}", limit=1, ttl=1, wait=5)
    class BriefWork(Work):
        key = Input(str)

    class Brief(Named):
        key = Input(str)
        seconds = Input(float, default=0.0)
        charge = step(BriefWork)

    with forked(lambda: Brief.run(key="k", seconds=30)) as pid:
        recorder.wait_for("run charge")
        kill(pid)
        killed = time.monotonic()
        assert Brief.run(key="k").succeeded
    assert 0.3 < time.monotonic() - killed < 2


@with_semaphore("{key}", limit=1, ttl=5)
class Inside(Named):
    """A child that needs the slot its parent has, and a step that needs it too."""

    key = Input(str)
    charge = step(LoneWork)
    returns = charge


@with_semaphore("{key}", limit=1, ttl=5)
class Around(Named):
    """A reactor with one slot, down to its child's step."""

    key = Input(str)
    own = step(LoneWork)
    child = compose(Inside, after=own)

    @step(key=key, after=child)
    def count(key: str) -> int:
        """How many slots are in use while all of that is held."""
        return len(inspect.look(key, primitive="semaphore").holds)

    returns = count


def test_reenter_11_nested_in_one_tree_it_is_one_slot(recorder: Recorder) -> None:
    outcome = Around.run(key="k")
    assert outcome.succeeded, outcome.failure
    assert outcome.value == 1
    assert slots("k") == []


def test_reenter_11_a_call_in_the_body_is_part_of_the_tree(recorder: Recorder) -> None:
    class Calling(Named):
        key = Input(str)

        @step(key=key)
        @with_semaphore("{key}", limit=1, ttl=5)
        def outer(key: str, context: Any) -> Any:
            return LoneWork.call(context=context, key=key)

    assert Calling.run(key="k").succeeded
    with testing.hold("k", "semaphore"):
        assert failure(Calling.run(key="k")).error_type == "SemaphoreContended"


def test_b031_a_parent_with_the_last_slot_and_a_child_that_needs_it_do_not_hang(recorder: Recorder) -> None:
    @with_semaphore("{key}", limit=2, ttl=5, wait=5)
    class Child(Named):
        key = Input(str)
        seconds = Input(float, default=0.1)
        work = step(Work)

    @with_semaphore("{key}", limit=2, ttl=5, wait=5)
    class Parent(Named):
        key = Input(str)
        child = compose(Child)

    begun = time.monotonic()
    outcomes = at_once(lambda: Parent.run(key="k"), lambda: Parent.run(key="k"))
    assert [outcome.status for outcome in outcomes] == ["completed"] * 2
    assert time.monotonic() - begun < 4


def test_rollback_04_the_slot_is_taken_again_for_the_undo(recorder: Recorder) -> None:
    outcome = Lone.run(key="k", fail_at="behind")
    assert outcome.failed
    [undone] = [entry for entry in recorder.entries() if entry.label == "undone by"]
    assert undone.notes["owner"] == undone.notes["root"] == str(outcome.execution.id)
    testing.assert_rolled_back(outcome, "charge")
    assert slots("k") == []


def test_rollback_04_nobody_else_is_inside_while_it_is_undone(recorder: Recorder) -> None:
    first = Background(lambda: Lone.run(name="first", key="k", fail_at="behind", undo_seconds=0.5))
    recorder.wait_for("undo charge")
    assert Lone.run(name="second", key="k").succeeded
    assert first.result().failed
    assert not recorder.overlaps("undo charge", "run charge")


def test_rollback_waits_a_minute_unless_it_is_declared() -> None:
    from reactor_coord.runtime.gates import gate_of

    gate = gate_of("semaphore")
    assert gate is not None
    assert gate.rollback_wait(LoneWork.coordination["semaphore"]) == 60
    assert gate.rollback_wait(with_semaphore("k", limit=1, rollback_wait=3).declaration) == 3


def test_b043_capacity_is_full_again_after_every_ending(recorder: Recorder) -> None:
    class Ending(Named):
        key = Input(str)
        way = Input(str)

        @step(key=key, way=way)
        @with_semaphore("{key}", limit=2, ttl=5)
        def charge(way: str, context: Any, key: str) -> None:
            if way == "raise":
                raise ValueError("told to")
            if way == "exit":
                raise KeyboardInterrupt
            getattr(context, way)("told to")

    for way in ("raise", "fail", "skip", "halt", "succeed"):
        Ending.run(key="k", way=way)
        assert slots("k") == [], way
    with pytest.raises(KeyboardInterrupt):
        Ending.run(key="k", way="exit")
    assert slots("k") == []


def test_the_message_says_how_many_are_in_the_way(recorder: Recorder) -> None:
    @with_semaphore("{key}", limit=3, ttl=5)
    class Three(Work):
        key = Input(str)

    with testing.hold("k", "semaphore", limit=3), testing.hold("k", "semaphore", limit=3):
        with testing.hold("k", "semaphore", limit=3), pytest.raises(Exception, match="and 2 more") as caught:
            Three.call(key="k")
        assert caught.value.primitive == "semaphore"  # type: ignore[attr-defined]
        Three.call(key="k")


def test_holders_are_seen_by_operators_and_a_slot_can_be_released_by_its_fence(recorder: Recorder) -> None:
    @with_semaphore("{key}", limit=2, ttl=1)
    class BriefWork(Work):
        key = Input(str)

    class Brief(Named):
        key = Input(str)
        seconds = Input(float, default=0.9)
        charge = step(BriefWork)

    first = Background(lambda: Brief.run(name="first", key="k"))
    eventually(lambda: len(slots("k")) == 1)
    second = Background(lambda: Brief.run(name="second", key="k"))
    eventually(lambda: len(slots("k")) == 2)
    rows = [row for row in views.holds().rows if row.primitive == "semaphore"]
    assert [(row.key, row.reactor, row.step) for row in rows] == [("k", "Brief", "charge")] * 2
    oldest, newest = sorted(rows, key=lambda row: row.fence)
    found = views.hold("k", "semaphore", newest.fence)
    assert found is not None
    assert found.fence == newest.fence
    assert operations.release_key("k", fence=newest.fence, primitive="semaphore", actor="ops")
    assert not operations.release_key("k", fence=newest.fence, primitive="lock")
    assert [row.fence for row in views.holds().rows] == [oldest.fence]
    outcomes = [first.result(), second.result()]
    assert sorted(outcome.status for outcome in outcomes) == ["completed", "failed"]
    [failed] = [outcome for outcome in outcomes if outcome.failed]
    assert failure(failed).error_type == "LockLost"


# ---- what is declared about contention, for both primitives


numbers = itertools.count()


def decorated(primitive: str, **options: Any) -> Any:
    if primitive == "lock":
        return with_lock("{key}", ttl=5, **options)
    return with_semaphore("{key}", limit=1, ttl=5, **options)


def reactor_with(primitive: str, **options: Any) -> type[Named]:
    @decorated(primitive, **options)
    class Contended(Work):
        key = Input(str)

    class Contending(Named):
        __qualname__ = f"Contending{next(numbers)}"  # a worker finds it by name
        key = Input(str)
        seconds = Input(float, default=0.0)
        charge = step(Contended)
        behind = step(Work, seconds=0, after=charge)

    return Contending


both = pytest.mark.parametrize("primitive", ["lock", "semaphore"])
everywhere = pytest.mark.parametrize("way", ["run", "worker"])


def outcome_of(reactor: type[Named], way: str, **inputs: Any) -> Any:
    if way == "run":
        return reactor.run(**inputs)
    handle = reactor.enqueue(**inputs)
    testing.drain(timeout=10)
    return handle.wait(1)


@both
@everywhere
def test_on_contention_fail_fails_at_once_everywhere(
    primitive: str, way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    with testing.hold("k", primitive):
        outcome = outcome_of(reactor_with(primitive, on_contention="fail", wait=30), way, key="k")
    assert failure(outcome).error_type == {"lock": "LockContended", "semaphore": "SemaphoreContended"}[primitive]
    assert recorder.sequence() == []
    assert told(outcome, "parked") == []


@both
@everywhere
def test_on_contention_skip_skips_the_step_and_goes_on(
    primitive: str, way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    with testing.hold("k", primitive):
        outcome = outcome_of(reactor_with(primitive, on_contention="skip", wait=30), way, key="k")
    assert outcome.succeeded, outcome.failure
    assert recorder.sequence() == ["run behind"]
    assert inspect.line("k", primitive=primitive) == []


@both
def test_b056_skip_also_while_a_dead_holders_lease_lasts(primitive: str, recorder: Recorder) -> None:
    reactor = reactor_with(primitive, on_contention="skip")
    with testing.hold("k", primitive, ttl=0.6):
        for _ in range(3):
            assert reactor.run(key="k").succeeded
        assert recorder.count("run charge") == 0
        eventually(lambda: inspect.look("k", primitive=primitive).hold is None)
        assert reactor.run(key="k").succeeded
        assert recorder.count("run charge") == 1


@both
@everywhere
def test_on_contention_wait_blocks_and_does_not_park(
    primitive: str, way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    reactor = reactor_with(primitive, on_contention="wait", wait=5)
    with testing.hold("k", primitive) as held:
        running = Background(lambda: outcome_of(reactor, way, key="k"))
        eventually(lambda: inspect.line("k", primitive=primitive))
        held.release()
        outcome = running.result()
    assert outcome.succeeded, outcome.failure
    assert told(outcome, "parked") == []
    assert recorder.sequence() == ["run charge", "run behind"]


@both
def test_on_contention_park_parks_in_a_worker_and_is_woken(
    primitive: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    reactor = reactor_with(primitive)
    with testing.hold("k", primitive) as held:
        handle = reactor.enqueue(key="k")
        testing.drain(timeout=5)
        assert handle.status == "parked"
        waiting_on = handle.execution.waiting_on
        assert waiting_on is not None
        assert (waiting_on["primitive"], waiting_on["key"], waiting_on["place"]) == (primitive, "k", 1)
        assert [waiter.owner for waiter in inspect.line("k", primitive=primitive)] == [str(handle.id)]
        held.release()
        testing.drain(timeout=5)
    assert handle.wait(1).succeeded
    assert told(handle, "granted") == [("granted", "charge", "k")]
    assert recorder.sequence() == ["run charge", "run behind"]


@both
@everywhere
def test_max_waiting_refuses_the_one_too_many_in_words(
    primitive: str, way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    reactor = reactor_with(primitive, max_waiting=1, wait=5)
    with testing.hold("k", primitive) as held:
        first = Background(lambda: reactor.run(name="first", key="k"))
        eventually(lambda: inspect.line("k", primitive=primitive))
        outcome = outcome_of(reactor, way, name="second", key="k")
        assert failure(outcome).error_type == {"lock": "LockContended", "semaphore": "SemaphoreContended"}[primitive]
        assert "max_waiting=1" in failure(outcome).message
        assert "1 stand in line already" in failure(outcome).message
        assert len(inspect.line("k", primitive=primitive)) == 1
        held.release()
        assert first.result().succeeded


@both
def test_priority_stands_before_arrival(primitive: str, reactor_dispatches: Any, recorder: Recorder) -> None:
    plain, urgent = reactor_with(primitive), reactor_with(primitive, priority=4094)
    with testing.hold("k", primitive) as held:
        handles = [
            (plain if number else urgent).enqueue(name=f"n{number}", key="k", seconds=0.0) for number in (1, 2, 0)
        ]
        testing.drain(timeout=5)
        assert [waiter.owner for waiter in inspect.line("k", primitive=primitive)] == [
            str(handles[each].id) for each in (2, 0, 1)
        ]
        held.release()
        testing.drain(timeout=5)
    assert all(handle.wait(1).succeeded for handle in handles)
    assert [each.notes["name"] for each in recorder.intervals("run charge")] == ["n0", "n1", "n2"]


@both
def test_a_rollback_stands_before_all_who_go_forward(
    primitive: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    reactor = reactor_with(primitive, priority=4094, rollback_wait=5)

    class Interposed(reactor):  # type: ignore[misc, valid-type]
        last = step(Work, after=reactor.behind, seconds=0.3)  # type: ignore[attr-defined]

    failing = Background(lambda: Interposed.run(name="failing", key="k", fail_at="last"))
    recorder.wait_for("run last")
    with testing.hold("k", primitive) as held:
        waiting = [reactor.enqueue(name=name, key="k") for name in "ab"]
        testing.drain(timeout=5)
        eventually(lambda: len(inspect.line("k", primitive=primitive)) == 3)
        assert inspect.line("k", primitive=primitive)[0].is_blocking
        held.release()
        assert failing.result().failed
        testing.drain(timeout=5)
    assert all(handle.wait(1).succeeded for handle in waiting)
    order = [label for label in recorder.sequence() if label.endswith("charge")]
    assert order == ["run charge", "undo charge", "run charge", "run charge"]


def test_a_slot_that_comes_while_the_lock_is_busy_is_passed_on_and_the_ticket_kept(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    class Pair(Named):
        key = Input(str)
        charge = step(BothWork, seconds=0)

    @with_semaphore("slots:{key}", limit=1, ttl=5)
    class SlotWork(Work):
        key = Input(str)

    class Slot(Named):
        key = Input(str)
        charge = step(SlotWork, seconds=0)

    with testing.hold("slots:k", "semaphore") as slot:
        pair = Pair.enqueue(name="pair", key="k")
        testing.drain(timeout=5)
        other = Slot.enqueue(name="other", key="k")
        testing.drain(timeout=5)
        with testing.hold("lock:k") as lock:
            slot.release()  # granted to the pair, which finds the lock busy
            testing.drain(timeout=5)
            assert other.wait(1).succeeded
            assert pair.status == "parked"
            assert (pair.execution.waiting_on or {})["primitive"] == "lock"
            assert slots("slots:k") == []
            with testing.hold("slots:k", "semaphore"):
                late = Slot.enqueue(name="late", key="k")
                testing.drain(timeout=5)
                lock.release()
                testing.drain(timeout=5)
                assert [waiter.owner for waiter in inspect.line("slots:k", primitive="semaphore")] == [
                    str(pair.id),
                    str(late.id),
                ]
        testing.drain(timeout=5)
    assert pair.wait(1).succeeded
    assert late.wait(1).succeeded
    names = [each.notes["name"] for each in recorder.intervals("run charge")]
    assert names == ["other", "pair", "late"]
