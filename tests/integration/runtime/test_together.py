"""All of a place's coordination in one round trip, where something goes wrong on the way: nothing is left, nobody forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import (
    Input,
    Retry,
    step,
    testing,
    with_lock,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)
from reactor_coord.coordination import inspect, ordered_lines, periods, rate_limits
from reactor_coord.coordination.process import primitives
from reactor_coord.runtime import deliver
from reactor_coord.testing import faults
from reactor_coord.testing.proxy import Proxy
from reactor_coord.testing.recorder import Recorder, client
from tests.integration.runtime.support import Background, at_once, eventually, failure, told, trace
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)

PLENTY = 1000


@with_ordered_lock("{key}", poison_pill_timeout=600)
@with_period("{key}", every="year")
@with_rate_limit("{key}", limit=PLENTY, period=10**8)
@with_lock("{key}", "{key}:beside", ttl=60)
@with_semaphore("{key}", limit=1, ttl=60)
class Everything(Work):
    """All five; two keys of the lock."""

    key = Input(str)
    retry = Retry(max_attempts=3, backoff="fixed", base_delay=0)


class AllFive(Named):
    """Under all five at its step."""

    key = Input(str)
    seconds = Input(float, default=0.0)
    everything = step(Everything)


@with_ordered_lock("{key}", poison_pill_timeout=600)
@with_period("{key}", every="year")
@with_rate_limit("{key}", limit=PLENTY, period=10**8)
@with_lock("{key}", "{key}:beside", ttl=60)
@with_semaphore("{key}", limit=1, ttl=60)
class AllFiveAround(Named):
    """The same around it."""

    key = Input(str)
    work = step(Work)


def is_free(key: str = "k") -> bool:
    locks = [inspect.look(name).hold for name in (key, f"{key}:beside")]
    slots = inspect.look(key, primitive="semaphore").holds
    return not any(locks) and not slots and ordered_lines().view(key).is_drained


def lines(key: str = "k") -> int:
    return len(inspect.line(key)) + len(inspect.line(key, primitive="semaphore"))


def starts(key: str = "k") -> int:
    return sum(count for _, count in rate_limits().view(key).windows)


def watching() -> int:
    return primitives().locks.keeper.watching


@pytest.mark.parametrize("reactor", [AllFive, AllFiveAround])
@pytest.mark.parametrize("lost", [1, 2])
def test_b007_a_lost_reply_of_the_taking_leaves_nothing_held_and_no_turn(
    redis_proxy: Proxy,
    reactor_dispatches: Any,
    reactor_settings: Any,
    recorder: Recorder,
    reactor: Any,
    lost: int,
) -> None:
    """Once it is had again, twice it is unavailable: and so at the step and around the reactor, in process and in a worker."""
    reactor_settings(REDIS_PATIENCE=0)
    assert reactor.run(key="warm").succeeded
    handle = reactor.enqueue(key="k")
    redis_proxy.swallow_replies(lost, match=b"evalsha")
    deliver(str(handle.id), "w")
    assert redis_proxy.swallowed == lost
    assert handle.status == ("completed" if lost == 1 else "failed")
    assert watching() == 0
    eventually(is_free, within=3)
    if lost == 2:
        assert handle.execution.failure["error_type"] == "CoordinationUnavailable"
        assert periods().marks("k") == []
    assert starts() == 1  # what is charged cannot be handed back


@pytest.mark.parametrize("point", ["step.after_take", "step.before_take"])
@pytest.mark.parametrize("skip", [0, 1])
def test_interrupted_between_two_of_five_all_of_it_is_given_back(
    fault_points: Any, recorder: Recorder, point: str, skip: int
) -> None:
    fault_points({point: {"action": "raise", "error": "builtins.KeyboardInterrupt", "skip": skip}})
    with pytest.raises(KeyboardInterrupt):
        AllFive.run(key="k")
    assert faults.times_reached(point) == skip + 1
    assert watching() == 0
    eventually(is_free, within=3)


def test_a_lost_reply_of_a_lone_turn_leaves_no_turn_either(redis_proxy: Proxy, recorder: Recorder) -> None:
    assert Posted.run(key="warm").succeeded
    redis_proxy.swallow_replies(2, match=b"evalsha")
    assert failure(Posted.run(key="k")).error_type == "CoordinationUnavailable"
    eventually(is_free, within=3)
    assert Posted.run(key="k").succeeded


def test_a_lost_reply_of_the_giving_back_is_had_again_and_wakes_who_waits(
    redis_proxy: Proxy, reactor_dispatches: Any, recorder: Recorder
) -> None:
    """One waits for the lock, another for the slot of the same step: the one script hands both on."""
    assert Both.run(key="warm").succeeded
    running = Background(lambda: Both.run(key="k", seconds=0.3))
    recorder.wait_for("run both", 2)
    locked, pooled = OnlyLocked.enqueue(key="k"), OnlyPooled.enqueue(key="k")
    for handle in (locked, pooled):
        deliver(str(handle.id), "w")
        assert handle.status == "parked"
    reactor_dispatches.clear()
    redis_proxy.swallow_replies(1, match=b"evalsha")
    assert running.result().succeeded
    assert redis_proxy.swallowed == 1
    assert sorted(reactor_dispatches.ids) == sorted([str(locked.id), str(pooled.id)])
    testing.drain()
    assert (locked.status, pooled.status) == ("completed", "completed")
    assert watching() == lines() == 0
    eventually(is_free, within=3)


def test_the_one_script_that_gives_back_wakes_the_lock_the_slot_and_the_line(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    running = Background(lambda: AllFive.run(key="k", seconds=0.3))
    recorder.wait_for("run everything")
    waiting = [reactor.enqueue(key="k") for reactor in (OnlyLocked, OnlyPooled, AllFive)]
    for handle in waiting:
        deliver(str(handle.id), "w")
        assert handle.status == "parked"
    reactor_dispatches.clear()
    assert running.result().succeeded
    assert sorted(reactor_dispatches.ids) == sorted(str(handle.id) for handle in waiting)
    testing.drain()
    assert [handle.status for handle in waiting] == ["completed"] * 3
    assert recorder.count("run everything") == 1  # its period skips the second
    assert lines() == 0 and is_free()


def test_scripts_forgotten_and_connections_cut_between_taking_and_giving_cost_nothing(
    redis_proxy: Proxy, recorder: Recorder
) -> None:
    running = Background(lambda: AllFive.run(key="k", seconds=0.3))
    recorder.wait_for("run everything")
    client(recorder.url).script_flush()
    redis_proxy.cut()
    outcome = running.result()
    assert outcome.succeeded
    assert told(outcome, "lock_lost") == []
    assert starts() == len(periods().marks("k")) == 1
    assert is_free() and watching() == 0


def test_given_back_while_redis_is_away_it_is_given_back_when_it_is_here_again(
    redis_proxy: Proxy, reactor_dispatches: Any, recorder: Recorder
) -> None:
    running = Background(lambda: Both.run(key="k", seconds=0.3))
    recorder.wait_for("run both")
    handle = OnlyPooled.enqueue(key="k")
    deliver(str(handle.id), "w")
    reactor_dispatches.clear()
    redis_proxy.refuse()
    assert running.result().succeeded
    assert not reactor_dispatches.ids
    redis_proxy.refuse(False)
    eventually(lambda: reactor_dispatches.ids == [str(handle.id)], within=5)
    assert watching() == 0
    testing.drain()
    assert handle.status == "completed"


@pytest.mark.parametrize("fails", [0, 2, 9])
def test_each_attempt_is_one_start_and_only_a_success_marks(recorder: Recorder, fails: int) -> None:
    outcome = AllFive.run(key="k", fail_at="everything", fails=fails)
    attempts = min(fails + 1, 3)
    assert outcome.succeeded == (fails < 3)
    assert starts() == recorder.count("run everything") == attempts
    assert len(periods().marks("k")) == (fails < 3)
    assert is_free() and watching() == 0


def test_a_slot_of_a_limit_that_is_near_is_waited_for_under_what_is_held(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    begun = recorder.now()
    handles = [Paced.enqueue(key="k") for _ in range(4)]
    for handle in handles:
        deliver(str(handle.id), "w")
    assert [handle.status for handle in handles] == ["completed"] * 4
    assert recorder.intervals("run paced")[-1].entered - begun >= 0.29
    assert is_free() and lines() == 0


@pytest.mark.parametrize("reactor", ["Hammered", "HammeredAround"])
def test_many_at_once_under_all_five_are_never_two_inside_and_leave_nothing(recorder: Recorder, reactor: str) -> None:
    kind = {"Hammered": Hammered, "HammeredAround": HammeredAround}[reactor]
    outcomes = at_once(*[lambda: [kind.run(key="k") for _ in range(5)] for _ in range(4)])
    label = "run work" if reactor == "HammeredAround" else "run hammered"
    assert all(outcome.succeeded for several in outcomes for outcome in several)
    assert recorder.count(label) == starts() == 20
    assert recorder.max_concurrency(label) == 1
    assert is_free() and watching() == lines() == 0


def test_an_undo_takes_lock_and_slot_again_and_a_reentered_one_keeps_what_is_around_it(recorder: Recorder) -> None:
    outcome = Undone.run(key="k", fail_at="behind")
    assert outcome.failed and outcome.failure is not None and not outcome.failure.rollback_failures
    assert recorder.count("undo both") == 1
    held = [(kind, key) for kind, step_name, key in told(outcome, "acquired") if step_name == "both"]
    assert len(held) == 4  # forward and back, the lock and the slot
    inner = [each.data["inner"] for each in _releases(outcome, "both")]
    assert inner == [True] * 4
    assert is_free() and watching() == 0


def _releases(outcome: Any, step_name: str) -> list[Any]:
    return [each for each in trace(outcome, "released") if each.step == step_name]


@with_ordered_lock("{key}", poison_pill_timeout=600)
class _Posted(Work):
    key = Input(str)


class Posted(Named):
    """A turn and nothing else."""

    key = Input(str)
    post = step(_Posted)


@with_lock("{key}", ttl=60)
@with_semaphore("{key}", limit=1, ttl=60)
class _Both(Work):
    key = Input(str)


class Both(Named):
    """A lock and a slot."""

    key = Input(str)
    seconds = Input(float, default=0.0)
    both = step(_Both)


@with_lock("{key}", ttl=60)
class _Locked(Work):
    key = Input(str)


class OnlyLocked(Named):
    """The lock of these."""

    key = Input(str)
    locked = step(_Locked)


@with_semaphore("{key}", limit=1, ttl=60)
class _Pooled(Work):
    key = Input(str)


class OnlyPooled(Named):
    """The slot of these."""

    key = Input(str)
    pooled = step(_Pooled)


@with_rate_limit("{key}", limit=1, period=0.1, algorithm="sliding_window")
@with_lock("{key}", ttl=60)
@with_semaphore("{key}", limit=1, ttl=60)
class _Paced(Work):
    key = Input(str)


class Paced(Named):
    """One in 100 ms."""

    key = Input(str)
    paced = step(_Paced)


@with_rate_limit("{key}", limit=PLENTY, period=10**8)
@with_lock("{key}", "{key}:beside", ttl=60, wait=30)
@with_semaphore("{key}", limit=1, ttl=60, wait=30)
class _Hammered(Work):
    key = Input(str)


class Hammered(Named):
    """Waits in process for what it has to wait for."""

    key = Input(str)
    hammered = step(_Hammered)


@with_rate_limit("{key}", limit=PLENTY, period=10**8)
@with_lock("{key}", "{key}:beside", ttl=60, wait=30)
@with_semaphore("{key}", limit=1, ttl=60, wait=30)
class HammeredAround(Named):
    """The same around it."""

    key = Input(str)
    work = step(Work)


@with_lock("{key}", ttl=60)
@with_semaphore("{key}", limit=1, ttl=60)
class Undone(Named):
    """Holds what its step asks for."""

    key = Input(str)
    both = step(_Both)
    behind = step(Work, after=both)
