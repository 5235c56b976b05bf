"""Mistakes that systems of this kind made in coordinating steps and reactors: holds over parks, at every depth.

Each test carries the id of the case it pins. What a rollback waits for, calls, handed-off work and keys are in
`test_defects_keys`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from reactor_coord import (
    Input,
    Reactor,
    Retry,
    Step,
    async_step,
    compose,
    element,
    map_each,
    operations,
    signals,
    step,
    testing,
    with_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)
from reactor_coord.coordination import inspect, periods, rate_limits
from reactor_coord.models import Execution
from reactor_coord.runtime import deliver
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import failure, row, runs, told, trace
from tests.live.reactors import Gated, LockedWork, Named, Outer, Single, Work

pytestmark = pytest.mark.django_db(transaction=True)

AGES = 315_360_000
"""A window, and a bucket, that no test sees the end of."""


def again(handle: Any, times: int = 3) -> None:
    """Deliver the parked one's message so often; it finds nothing new."""
    for _ in range(times):
        deliver(str(handle.id), "test")
        assert handle.status == "parked"


def held_by(handle: Any, *keys: str) -> None:
    for key in keys:
        testing.assert_locked(key, by=handle.execution)


def taken(of: Any, key: str) -> list[str]:
    """How often the key was taken, adopted, and given back, in order."""
    return [kind for kind, _, at in told(of, "acquired", "adopted", "released") if at == key]


class Opening(Named):
    """Its first step is the locked one."""

    key = Input(str)
    charge = step(LockedWork)


@with_lock("{outer_key}", ttl=60)
class AboveOpening(Named):
    """A locked parent of a child whose first step contends."""

    outer_key = Input(str)
    key = Input(str)
    inner = compose(Opening)


@pytest.mark.parametrize(
    ("reactor", "inputs", "kept"),
    [
        (AboveOpening, {"outer_key": "outer", "key": "k"}, ["outer"]),
        (Gated, {"key": "outer", "inner_key": "k"}, ["outer"]),
        (Outer, {"outer_key": "outer", "middle_key": "middle", "key": "k"}, ["outer", "middle"]),
    ],
)
def test_d59_what_is_held_above_the_parked_step_stays_held_at_any_depth(
    reactor: type[Reactor], inputs: dict[str, str], kept: list[str], reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    """A parent's lock is not released in the gap; taken once, and taken up again without competing."""
    with testing.hold("k"):
        handle = reactor.enqueue(**inputs)
        testing.drain()
        assert handle.status == "parked"
        held_by(handle, *kept)
        again(handle)
        held_by(handle, *kept)
    testing.drain()
    assert handle.status == "completed"
    for key in kept:
        assert taken(handle, key) == ["acquired", *["adopted"] * 4, "released"]
        testing.assert_free(key)


@with_period("{key}:period", every=AGES)
@with_rate_limit("{key}:rate", limit=5, period=AGES)
class OnceOpening(Named):
    """Asked at its door; its first step is the one that parks."""

    key = Input(str)
    charge = step(LockedWork)


class AboveOnceOpening(Named):
    key = Input(str)
    inner = compose(OnceOpening)


@pytest.mark.parametrize("reactor", [OnceOpening, AboveOnceOpening])
def test_d61_a_park_of_the_very_first_step_is_no_fresh_start(
    reactor: type[Reactor], reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    """That it was let in is written down, not guessed from whether a step is done."""
    with testing.hold("k"):
        handle = reactor.enqueue(key="k")
        testing.drain()
        bucket, mark = periods().look("k:period", AGES, "UTC")
        assert mark is None
        periods().mark("k:period", bucket, "somebody")
        again(handle)
    testing.drain()
    assert handle.status == "completed", row(handle).reason
    assert recorder.sequence() == ["run charge"]
    assert sum(count for _, count in rate_limits().view("k:rate").windows) == 1


@with_lock("{key}", ttl=60)
class Reading(Named):
    """Under its own lock it waits for the result of a unit."""

    key = Input(str)
    unit = async_step(Work)
    read = step(Work, after=unit)


class AboveReading(Named):
    key = Input(str)
    before = step(Work)
    inner = compose(Reading, after=before)


def test_d62_a_childs_own_lock_is_kept_while_it_waits_for_a_result(
    reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    handle = AboveReading.enqueue(key="k")
    again(handle)
    held_by(handle, "k")
    testing.drain()
    assert handle.status == "completed"
    assert recorder.sequence() == ["run before", "run unit", "run read"]
    events = taken(handle, "k")
    assert events == ["acquired", *["adopted"] * events.count("adopted"), "released"]
    assert events.count("adopted") >= 3
    testing.assert_free("k")


class ReadsBelow(Named):
    """A child that reads its own unit's value."""

    unit = async_step(Work)

    @step(value=unit)
    def read(value: dict[str, Any]) -> str:
        return str(value["step"])

    returns = read


class ReadsAbove(Named):
    """The unit is the child's."""

    before = step(Work)
    inner = compose(ReadsBelow, after=before)
    returns = inner


class Given(Named):
    """Is given what a unit of its parent's returned."""

    value = Input(dict)

    @step(value=value)
    def read(value: dict[str, Any]) -> str:
        return str(value["step"])

    returns = read


class GivesBelow(Named):
    """The unit is the parent's."""

    before = step(Work)
    unit = async_step(Work, after=before)
    inner = compose(Given, value=unit)
    returns = inner


@pytest.mark.parametrize("reactor", [ReadsAbove, GivesBelow])
def test_d64_a_child_that_reads_what_is_not_ready_parks_the_whole(
    reactor: type[Reactor], reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    handle = reactor.enqueue()
    again(handle)
    assert row(handle).park_kind == "result"
    testing.drain()
    assert handle.wait(1).value == "unit"
    assert recorder.sequence() == ["run before", "run unit"]
    assert told(handle, "rolling_back", "step_failed", "retrying") == []


@with_lock("{key}", ttl=5)
class LockedBelow(Named):
    key = Input(str)
    inner = step(Work)


@with_semaphore("{key}", limit=1, ttl=5)
class SlottedBelow(Named):
    key = Input(str)
    inner = step(Work)


@with_rate_limit("{key}", limit=1, period=1.5, algorithm="sliding_window")
class PacedBelow(Named):
    key = Input(str)
    inner = step(Work)


class AboveLocked(Named):
    key = Input(str)
    before = step(Work)
    child = compose(LockedBelow, after=before)


class AboveSlotted(Named):
    key = Input(str)
    before = step(Work)
    child = compose(SlottedBelow, after=before)


class AbovePaced(Named):
    key = Input(str)
    before = step(Work)
    child = compose(PacedBelow, after=before)


both_holdings = pytest.mark.parametrize(
    ("reactor", "primitive"), [(AboveLocked, "lock"), (AboveSlotted, "semaphore")], ids=["lock", "semaphore"]
)


@both_holdings
def test_d66_a_child_whose_own_door_is_busy_parks_the_whole(
    reactor: type[Reactor], primitive: str, reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    with testing.hold("k", primitive):
        handle = reactor.enqueue(key="k")
        testing.drain()
        again(handle)
        waiting_on = row(handle).waiting_on or {}
        assert (waiting_on["primitive"], waiting_on["key"], waiting_on["step"]) == (primitive, "k", "")
    testing.drain()
    assert handle.status == "completed"
    assert recorder.sequence() == ["run before", "run inner"]


@both_holdings
def test_d66_past_its_own_ceiling_the_composition_fails_and_is_rolled_back(
    reactor: type[Reactor],
    primitive: str,
    reactor_dispatches: Dispatches,
    reactor_settings: Any,
    recorder: Recorder,
) -> None:
    reactor_settings(SNOOZE_MAX_ATTEMPTS=2, SNOOZE_BASE_DELAY=0.05, SNOOZE_MAX_DELAY=0.05, SNOOZE_JITTER=0)
    with testing.hold("k", primitive):
        handle = reactor.enqueue(key="k")
        testing.drain(timeout=5)
        found = failure(handle.wait(1))
    assert (found.error_type, found.rollback_failures) == ("ContentionCeilingReached", ())
    assert "'k'" in found.message
    assert recorder.sequence() == ["run before", "undo before"]
    assert len(told(handle, "parked")) == 2
    assert inspect.line("k", primitive=primitive) == []


def test_d66_a_childs_busy_rate_limit_parks_the_whole(reactor_dispatches: Dispatches, recorder: Recorder) -> None:
    handles = [AbovePaced.enqueue(key="k") for _ in range(2)]
    testing.drain()
    assert [handle.status for handle in handles] == ["completed", "parked"]
    testing.drain(timeout=5)
    assert handles[1].status == "completed"
    assert recorder.count("undo before") == 0


class RetryingAbove(Named):
    """A composition with attempts to lose."""

    key = Input(str)
    inner = compose(Opening, retry=Retry(max_attempts=2, backoff="fixed", base_delay=0.1))


@with_lock("{key}", ttl=5)
class Door(Named):
    key = Input(str)
    charge = step(Work)


class RetryingAboveDoor(Named):
    """The same; it is the child's own door that is busy."""

    key = Input(str)
    inner = compose(Door, retry=Retry(max_attempts=2, backoff="fixed", base_delay=0.1))


class RetryingAround(Named):
    """The same; it is what is declared at the composition."""

    key = Input(str)
    inner = compose(
        Door, coordination=[with_lock("{key}")], retry=Retry(max_attempts=2, backoff="fixed", base_delay=0.1)
    )


@pytest.mark.parametrize("reactor", [RetryingAbove, RetryingAboveDoor, RetryingAround])
def test_d67_a_park_costs_the_composition_no_attempt(
    reactor: type[Reactor], reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    with testing.hold("k"):
        handle = reactor.enqueue(key="k", fail_at="charge", fails=0)
        testing.drain()
        again(handle)
        assert runs(handle)["inner"].attempts == (0 if reactor is RetryingAround else 1)
    testing.drain()
    assert handle.status == "completed"
    assert (runs(handle)["inner"].attempts, runs(handle)["charge"].attempts) == (1, 1)


class Numbered(Step):
    number = Input(int)

    def run(self) -> int:
        return self.number


class BehindAMap(Named):
    """What contends comes after a fan-out."""

    queue = "of-its-own"
    key = Input(str)
    mapped = map_each(Numbered, over=[1, 2, 3], number=element(), batch_size=1)
    charge = step(LockedWork, after=mapped)
    returns = mapped


def test_d68_a_step_parked_behind_a_fan_out_goes_on_in_its_own_queue(
    reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    with testing.hold("k") as holder:
        handle = BehindAMap.enqueue(key="k")
        testing.drain()
        again(handle)
        reactor_dispatches.clear()
        holder.release()
        assert [(each.execution_id, each.queue) for each in reactor_dispatches] == [(str(handle.id), "of-its-own")]
    testing.drain()
    assert handle.wait(1).value == [1, 2, 3]
    assert recorder.sequence() == ["run charge"]


@contextmanager
def hearing(*heard_of: Any) -> Iterator[list[tuple[str, str, str]]]:
    """What the signals say: kind, step, key."""
    heard: list[tuple[str, str, str]] = []

    def hear(sender: Any, **said: Any) -> None:
        heard.append((str(said["kind"]), said["step"], said["key"]))

    for signal in heard_of:
        signal.connect(hear)
    try:
        yield heard
    finally:
        for signal in heard_of:
            signal.disconnect(hear)


def test_d73_a_reactors_hold_is_no_steps_also_after_a_park(reactor_dispatches: Dispatches, recorder: Recorder) -> None:
    about = (signals.hold_acquired, signals.hold_adopted, signals.hold_released)
    with hearing(*about) as heard:
        with testing.hold("k"):
            handle = Gated.enqueue(key="outer", inner_key="k")
            testing.drain()
            again(handle, 1)
        testing.drain()
    assert handle.status == "completed"
    expected = [
        ("acquired", "", "outer"),
        ("adopted", "", "outer"),
        ("adopted", "", "outer"),
        ("acquired", "charge", "k"),
        ("released", "charge", "k"),
        ("released", "", "outer"),
    ]
    assert heard == expected
    assert told(handle, "acquired", "adopted", "released") == expected


@with_lock("{key}", ttl=60)
class InnerDoor(Named):
    """A lock of its own, and a step that waits for another key."""

    outer_key = Input(str)
    key = Input(str)
    gate = Input(str)
    charge = step(LockedWork, key=gate)


class TwoDoors(Named):
    """A locked composition around a locked reactor with a locked step."""

    outer_key = Input(str)
    key = Input(str)
    gate = Input(str)
    inner = compose(InnerDoor, coordination=[with_lock("{outer_key}", ttl=60)])


def test_d88_of_several_levels_each_is_marked_taken_and_released_once(
    reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    """First the inner level parks, then the innermost; neither park forgets what the level around it keeps."""
    with testing.hold("gate"):
        with testing.hold("middle"):
            handle = TwoDoors.enqueue(outer_key="outer", key="middle", gate="gate")
            testing.drain()
            again(handle, 1)
            held_by(handle, "outer")
        testing.drain()
        again(handle, 1)
        held_by(handle, "outer", "middle")
    testing.drain()
    assert handle.status == "completed"
    for key in ("outer", "middle", "gate"):
        events = taken(handle, key)
        assert (events[0], events[-1]) == ("acquired", "released")
        assert set(events[1:-1]) <= {"adopted"}
        testing.assert_free(key)


@with_lock("{key}:lock", ttl=5)
@with_semaphore("{key}:slots", limit=1, ttl=5)
class LockedAndSlotted(Work):
    key = Input(str)


class Pair(Named):
    key = Input(str)
    charge = step(LockedAndSlotted)


def test_d89_a_step_whose_slot_is_busy_keeps_no_lock_over_its_park(
    reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    with testing.hold("k:slots", "semaphore"):
        handle = Pair.enqueue(key="k")
        testing.drain()
        assert (row(handle).waiting_on or {})["primitive"] == "semaphore"
        testing.assert_free("k:lock")
        assert Single.run(key="k:lock").succeeded
        again(handle)
        testing.assert_free("k:lock")
    testing.drain()
    assert handle.status == "completed"
    assert taken(handle, "k:slots") == ["acquired", "released"]


def test_d95_what_contended_in_process_leaves_no_mark_of_waiting(recorder: Recorder) -> None:
    class Audited(Named):
        key = Input(str)
        audit = step(Work)
        charge = step(LockedWork, after=audit)

    with testing.hold("k"):
        outcome = Audited.run(key="k")
        assert failure(outcome).error_type == "LockContended"
        assert inspect.line("k") == []
    found = row(outcome)
    assert (found.status, found.waiting_on, found.park_kind, found.resume_at) == ("failed", None, "", None)
    assert not found.holds_kept
    assert told(outcome, "parked", "woken") == []
    assert {name: run.status for name, run in runs(outcome).items()} == {"audit": "undone", "charge": "failed"}


class Handing(Named):
    """Hands off, and reads."""

    seconds = Input(float, default=0.0)
    unit = async_step(Work)
    read = step(Work, seconds=0, after=unit)


def test_d96_of_two_deliveries_of_a_units_message_one_runs_it(
    reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    handle = Handing.enqueue(seconds=0.3)
    deliver(str(handle.id), "test")
    unit = Execution.objects.get(parent=handle.id)
    barrier = threading.Barrier(3)

    def receive() -> None:
        from django.db import connections

        try:
            barrier.wait(5)
            deliver(str(unit.pk), threading.current_thread().name)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=receive) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    deliver(str(unit.pk), "once more")
    testing.drain()
    deliver(str(unit.pk), "long after")
    assert handle.status == "completed"
    assert recorder.sequence() == ["run unit", "run read"]
    assert [event.kind for event in trace(_Of(unit), "started", "completed")] == ["started", "completed"]


class _Of:
    """What a reading of the trace asks for."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution


@with_lock("{key}", ttl=60, rollback_wait=0.3)
class Resumed(Named):
    """Parks behind a step of its own, under its own lock."""

    key = Input(str)
    first = step(Work)
    charge = step(LockedWork, key="inner", after=first)


def _lapse(key: str) -> None:
    """Let go of what a parked execution keeps, as its lapse over a long gap would."""
    (hold,) = [each for each in inspect.holds() if each.key == key]
    assert operations.release_key(key, fence=hold.fence)


def test_d110_an_admitted_run_at_its_ceiling_is_rolled_back_and_what_could_not_be_is_listed(
    reactor_dispatches: Dispatches, reactor_settings: Any, recorder: Recorder
) -> None:
    """The row would have it wait for ever; semantics 4 has a ceiling for all contention, and a rollback behind it.

    Never is it marked failed with its steps standing and nothing said. Its undo runs under the reactor's key: while
    somebody else has that, the undo is listed; free again, it is done.
    """
    reactor_settings(SNOOZE_MAX_ATTEMPTS=2, SNOOZE_BASE_DELAY=0.05, SNOOZE_MAX_DELAY=0.05, SNOOZE_JITTER=0)
    with testing.hold("inner"):
        handle = Resumed.enqueue(key="k")
        deliver(str(handle.id), "test")
        _lapse("k")
        with testing.hold("k"):
            testing.drain(timeout=5)
            found = failure(handle.wait(1))
            assert (found.error_type, found.step) == ("ContentionCeilingReached", "")
            assert [(each.step, each.key, each.reason) for each in found.rollback_failures] == [
                ("first", "k", "coordination_unavailable")
            ]
            assert recorder.sequence() == ["run first"]
    row(handle).undo()
    testing.drain()
    assert recorder.sequence() == ["run first", "undo first"]
    assert failure(handle.wait(1)).rollback_failures == ()


def test_d110_an_admitted_run_waits_for_its_busy_reactor_key_as_long_as_the_line_moves(
    reactor_dispatches: Dispatches, reactor_settings: Any, recorder: Recorder
) -> None:
    """A line that moves never trips the ceiling, however often it looks in vain."""
    reactor_settings(SNOOZE_MAX_ATTEMPTS=2)
    with testing.hold("inner"):
        handle = Resumed.enqueue(key="k")
        deliver(str(handle.id), "test")
        _lapse("k")
        with testing.hold("k"):
            before = [Single.enqueue(name=str(number), key="k") for number in range(5)]
            for each in before:
                deliver(str(each.id), "test")
            again(handle, 1)
            assert (row(handle).waiting_on or {})["place"] == 6
        for each in before:
            again(handle, 1)
            deliver(str(each.id), "test")
            assert each.status == "completed"
    testing.drain(timeout=5)
    assert handle.status == "completed"
    assert recorder.sequence() == ["run first", *["run charge"] * 6]
