"""Mistakes that systems of this kind made in coordinating steps and reactors: rollbacks, calls, handed-off work, keys.

Each test carries the id of the case it pins. Holds over parks are in `test_defects_coordination`.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from reactor_coord import (
    Input,
    LockContended,
    Reactor,
    Retry,
    Step,
    async_reactor,
    async_step,
    compose,
    map_each,
    operations,
    step,
    testing,
    with_lock,
    with_semaphore,
)
from reactor_coord.coordination import inspect
from reactor_coord.models import Execution
from reactor_coord.runtime import deliver
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import Background, at_once, eventually, failure, row, runs, told, trace
from tests.live.reactors import LockedWork, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


# ---- rollback


@with_lock("{key}", ttl=5, rollback_wait=3)
class Refundable(Work):
    key = Input(str)


@with_lock("{key}", ttl=5, rollback_wait=0.2)
class HastilyRefundable(Work):
    key = Input(str)


class Outsider(Step):
    """Takes the key as somebody else would, and fails; that one lets go after a while, or at the test's end."""

    key = Input(str)
    seconds = Input(float)

    def run(self) -> None:
        held = OUTSIDERS.enter_context(testing.hold(self.key))
        if self.seconds:
            timer = threading.Timer(self.seconds, held.release)
            OUTSIDERS.callback(timer.join)
            timer.start()
        raise ArithmeticError("told to")


OUTSIDERS = ExitStack()


class Charging(Named):
    key = Input(str)
    seconds = Input(float, default=0.0)
    before = step(Work, seconds=0)
    charge = step(Refundable, seconds=0, after=before)
    behind = step(Outsider, after=charge)


class ChargingHastily(Named):
    key = Input(str)
    seconds = Input(float, default=0.0)
    before = step(Work, seconds=0)
    charge = step(HastilyRefundable, seconds=0, after=before)
    behind = step(Outsider, after=charge)


@pytest.fixture
def outsiders() -> Any:
    with OUTSIDERS:
        yield OUTSIDERS


def outcome_of(reactor: Any, way: str, **inputs: Any) -> Any:
    if way == "in process":
        return reactor.run(**inputs)
    handle = reactor.enqueue(**inputs)
    testing.drain()
    return handle.wait(1)


everywhere = pytest.mark.parametrize("way", ["in process", "in a worker"])


@everywhere
def test_d58_an_undo_waits_for_its_key_as_long_as_it_may(
    way: str, outsiders: ExitStack, reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    begun = time.monotonic()
    outcome = outcome_of(Charging, way, key="k", seconds=0.5)
    assert 0.4 < time.monotonic() - begun < 3
    assert (failure(outcome).error_type, failure(outcome).rollback_failures) == ("ArithmeticError", ())
    assert recorder.sequence() == ["run before", "run charge", "undo charge", "undo before"]
    testing.assert_free("k")


@everywhere
def test_d58_past_that_it_is_listed_with_its_key_and_the_others_are_undone(
    way: str, outsiders: ExitStack, reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    outcome = outcome_of(ChargingHastily, way, key="k", seconds=0)
    (left,) = failure(outcome).rollback_failures
    assert (left.step, left.kind, left.key, left.reason) == ("charge", "undo", "k", "coordination_unavailable")
    assert recorder.sequence() == ["run before", "run charge", "undo before"]
    outsiders.close()
    row(outcome).undo()
    testing.drain()
    assert recorder.sequence()[3:] == ["undo charge"]
    assert (row(outcome).failure or {})["rollback_failures"] == []


@with_semaphore("{key}", limit=1, ttl=5, rollback_wait=10)
class Slotted(Work):
    key = Input(str)


class Slots(Named):
    key = Input(str)
    seconds = Input(float, default=0.0)
    charge = step(Slotted, seconds=0)
    behind = step(Work, after=charge)


@with_lock("{key}", ttl=0.6)
class BrieflyLocked(Work):
    key = Input(str)


class Renewed(Named):
    key = Input(str)
    seconds = Input(float, default=0.0)
    work = step(BrieflyLocked)


def test_d78_a_rollback_that_waits_for_a_slot_keeps_nobody_from_renewing(recorder: Recorder) -> None:
    """The row asks for polling; what waits here waits for its wake, and on no connection that others share."""
    failing = Background(partial(Slots.run, key="k", seconds=0.4, fail_at="behind"))
    recorder.wait_for("run behind")
    with testing.hold("k", "semaphore") as slot:
        eventually(lambda: inspect.line("k", primitive="semaphore"))
        begun = time.monotonic()
        outcomes = at_once(*[partial(Renewed.run, key=f"own-{number}", seconds=1.5) for number in range(2)])
        assert time.monotonic() - begun < 4
        assert [outcome.status for outcome in outcomes] == ["completed"] * 2
        assert [told(outcome, "lock_lost") for outcome in outcomes] == [[], []]
        assert not failing.is_done
        slot.release()
        outcome = failing.result()
    assert failure(outcome).rollback_failures == ()
    assert recorder.count("undo charge") == 1


def test_d108_after_its_release_nobody_renews_the_key_for_who_has_it_next(recorder: Recorder) -> None:
    assert Renewed.run(key="k").succeeded
    with testing.hold("k", ttl=0.7):
        _lapses_unrenewed("k")


def test_d108_who_lost_the_key_in_its_body_does_not_renew_it_for_its_successor(recorder: Recorder) -> None:
    running = Background(partial(Renewed.run, key="k", seconds=1.2))
    recorder.wait_for("run work")
    hold = inspect.look("k").hold
    assert hold is not None
    assert operations.release_key("k", fence=hold.fence)
    with testing.hold("k", ttl=0.7):
        _lapses_unrenewed("k")
    assert failure(running.result()).error_type == "LockLost"


def _lapses_unrenewed(key: str) -> None:
    """Its holder renews nothing; a keeper left behind would have, every 0.2 s."""
    time.sleep(0.45)
    left = inspect.look(key).hold
    assert left is None or left.remaining < 0.3
    eventually(lambda: inspect.look(key).hold is None, within=0.6)


# ---- what is declared in two places


@with_lock("{key}:lock", ttl=5, wait=10)
class LockedByClass(Work):
    key = Input(str)


@with_semaphore("{key}:slots", limit=1, ttl=5, wait=10)
class SlottedByClass(Work):
    key = Input(str)


class SlotHere(Named):
    """A lock by the class, a semaphore at the place."""

    key = Input(str)
    seconds = Input(float, default=0.05)
    charge = step(LockedByClass, coordination=[with_semaphore("{key}:slots", limit=1, ttl=5, wait=10)])


class LockHere(Named):
    """The other way round."""

    key = Input(str)
    seconds = Input(float, default=0.05)
    charge = step(SlottedByClass, coordination=[with_lock("{key}:lock", ttl=5, wait=10)])


class LockHereAgain(Named):
    """Declared at both: the place's wins, once."""

    key = Input(str)
    seconds = Input(float, default=0.05)
    charge = step(LockedByClass, coordination=[with_lock("{key}:lock", ttl=5, wait=10)])


def test_d80_class_and_place_make_one_order_each_once_and_back_in_reverse(recorder: Recorder) -> None:
    both = [
        ("acquired", "charge", "k:lock"),
        ("acquired", "charge", "k:slots"),
        ("released", "charge", "k:slots"),
        ("released", "charge", "k:lock"),
    ]
    for reactor in (SlotHere, LockHere):
        assert told(reactor.run(key="k"), "acquired", "released") == both
    assert told(LockHereAgain.run(key="k"), "acquired", "released") == [both[0], both[3]]
    recorder.clear()
    outcomes = at_once(*[partial(reactor.run, key="k") for reactor in (SlotHere, LockHere) * 4], timeout=30)
    assert [outcome.status for outcome in outcomes] == ["completed"] * 8
    assert recorder.max_concurrency("run charge") == 1
    assert inspect.holds() == []


class Keyed(Work):
    key = Input(str)


class StepLockedHere(Named):
    key = Input(str)
    wanted = Input(bool, default=True)
    charge = step(Keyed, where=lambda wanted: wanted, coordination=[with_lock("{key}")])


class UnitLockedHere(Named):
    key = Input(str)
    wanted = Input(bool, default=True)
    charge = async_step(Keyed, where=lambda wanted: wanted, coordination=[with_lock("{key}")])


@pytest.mark.parametrize("reactor", [StepLockedHere, UnitLockedHere])
@everywhere
def test_d82_a_lock_declared_at_the_place_alone_is_taken_on_every_way(
    reactor: type[Reactor], way: str, reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    running = Background(partial(outcome_of, reactor, way, key="k"))
    if way == "in process" and reactor is UnitLockedHere:  # the unit is a worker's all the same
        eventually(lambda: Execution.objects.filter(parent__isnull=False).exists())
        testing.drain(timeout=1)
    assert running.result().succeeded
    events = [(event.kind, event.key) for event in _all_events("acquired", "released")]
    assert events == [("acquired", "k"), ("released", "k")]
    assert recorder.count("run charge") == 1


def _all_events(*kinds: str) -> list[Any]:
    from reactor_coord.models import TraceEvent

    return list(TraceEvent.objects.filter(kind__in=kinds).order_by("id"))


@pytest.mark.parametrize("reactor", [StepLockedHere, UnitLockedHere])
@everywhere
def test_d83_a_step_that_is_not_wanted_takes_nothing(
    reactor: type[Reactor], way: str, reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    with testing.hold("k"):
        outcome = outcome_of(reactor, way, key="k", wanted=False)
    assert outcome.succeeded
    assert (runs(outcome)["charge"].status, runs(outcome)["charge"].reason) == ("skipped", "where")
    assert _all_events("acquired", "refused", "released") == []
    assert not Execution.objects.filter(parent__isnull=False).exists()
    assert recorder.sequence() == []


# ---- calls


@with_lock("{key}", ttl=5)
class Called(Step):
    key = Input(str)

    def run(self) -> str:
        current().mark("called", held=sorted(key for _, key in self.context.holds))
        return self.key


class Calls(Named):
    """Has an effect, then calls what contends."""

    key = Input(str)
    before = step(Work)

    @step(key=key, after=before)
    @with_lock("own:{key}", ttl=5)
    def outer(key: str, context: Any) -> str:
        current().mark("effect")
        return str(Called.call(context=context, key=key))

    @outer.compensate
    def _(error: BaseException) -> None:
        current().mark("comp outer")


@everywhere
def test_d74_what_contends_in_a_call_is_told_of_the_class_called(
    way: str, reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    with testing.hold("k"):
        outcome = outcome_of(Calls, way, key="k")
    assert told(outcome, "refused") == [("refused", "Called", "k")]
    own = [("acquired", "outer", "own:k"), ("released", "outer", "own:k")]
    assert told(outcome, "acquired", "released") == own  # once, for its body and its compensation
    assert failure(outcome).message.startswith("Calls.Called could not have the lock 'k'")
    if way == "in process":
        assert (failure(outcome).error.step, failure(outcome).error.key) == ("Called", "k")


@everywhere
def test_d81_a_contended_call_in_a_body_fails_that_step_once_and_it_is_compensated(
    way: str, reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    with testing.hold("k"):
        outcome = outcome_of(Calls, way, key="k")
    assert (failure(outcome).step, failure(outcome).error_type) == ("outer", "LockContended")
    assert recorder.sequence() == ["run before", "effect", "comp outer", "undo before"]
    assert told(outcome, "parked") == []
    assert runs(outcome)["outer"].attempts == 1


def test_d90_a_call_without_a_context_works_again_and_again_and_leaves_nothing(recorder: Recorder) -> None:
    assert [Called.call(key="k") for _ in range(3)] == ["k"] * 3
    assert [entry.notes["held"] for entry in recorder.entries()] == [["k"]] * 3
    with testing.hold("k"):
        for _ in range(2):
            with pytest.raises(LockContended):
                Called.call(key="k")
        assert inspect.line("k") == []
    assert Called.call(key="k") == "k"
    assert inspect.holds() == []


# ---- handed-off work


class Labelled(Step):
    label = Input(str)

    def run(self) -> str:
        current().mark(f"run {self.label}")
        return self.label


class UnitBelow(Reactor):
    """Its unit has the name of one of its parent's."""

    unit = async_step(Labelled, label="below")

    @step(value=unit)
    def read(value: str) -> str:
        return value

    returns = read


class UnitAbove(Reactor):
    unit = async_step(Labelled, label="above")
    inner = compose(UnitBelow)

    @step(above=unit, below=inner)
    def read(above: str, below: str) -> list[str]:
        return [above, below]

    returns = read


def test_d87_a_childs_unit_is_the_childs(reactor_dispatches: Dispatches, recorder: Recorder) -> None:
    handle = UnitAbove.enqueue()
    testing.drain()
    assert handle.wait(1).value == ["above", "below"]
    child = Execution.objects.get(parent=handle.id, root_id=handle.id)
    (below,) = Execution.objects.filter(parent=child)
    (above,) = Execution.objects.filter(parent=handle.id).exclude(pk=child.pk)
    assert ((below.result, above.result), below.root_id) == (("below", "above"), below.pk)
    assert sorted(recorder.sequence()) == ["run above", "run below"]


@with_lock("own", ttl=5)
class Bare(Step):
    """Takes no inputs."""

    def run(self) -> None:
        current().mark("run bare")


class Plain(Step):
    def run(self) -> None:
        current().mark("run bare")


@with_lock("own", ttl=5)
class HandsOffByClass(Reactor):
    before = step(Work)
    unit = async_step(Bare, after=before)


@with_lock("own", ttl=5)
class HandsOffByPlace(Reactor):
    before = step(Work)
    unit = async_step(Plain, coordination=[with_lock("own", ttl=5)], after=before)


@with_lock(lambda inputs: "own", ttl=5)
class HandsOffByFunction(Reactor):
    before = step(Work)
    unit = async_step(Plain, coordination=[with_lock(lambda arguments: "own", ttl=5)], after=before)


@pytest.mark.parametrize("reactor", [HandsOffByClass, HandsOffByPlace, HandsOffByFunction])
@everywhere
def test_d93_a_unit_without_arguments_on_its_reactors_key_is_refused(
    reactor: type[Reactor], way: str, reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    outcome = outcome_of(reactor, way)
    assert (failure(outcome).step, failure(outcome).error_type) == ("unit", "HandOffRefused")
    assert "'own'" in failure(outcome).message
    assert recorder.sequence() == ["run before", "undo before"]
    assert not Execution.objects.filter(parent__isnull=False).exists()
    testing.assert_free("own")


@with_lock("{key}", ttl=5)
class LockedUnit(Named):
    key = Input(str)
    inner = step(Work)


@with_lock("{key}", ttl=60)
class HandsOffLater(Named):
    """A step has taken and given back the reactor's own key before the hand-off, over a park if need be."""

    key = Input(str)
    gate = Input(str)
    within = step(LockedWork)
    waits = step(LockedWork, key=gate, after=within)
    unit = async_reactor(LockedUnit, after=waits)


@everywhere
def test_d97_a_steps_release_does_not_hide_what_its_reactor_holds(
    way: str, reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    outcome = outcome_of(HandsOffLater, way, key="k", gate="free")
    assert (failure(outcome).step, failure(outcome).error_type) == ("unit", "HandOffRefused")
    assert not Execution.objects.filter(label="LockedUnit").exists()
    testing.assert_free("k")


def test_d97_nor_after_a_park(reactor_dispatches: Dispatches, recorder: Recorder) -> None:
    with testing.hold("gate"):
        handle = HandsOffLater.enqueue(key="k", gate="gate")
        testing.drain()
        deliver(str(handle.id), "test")
        testing.assert_locked("k", by=handle.execution)
    testing.drain()
    assert failure(handle.wait(1)).error_type == "HandOffRefused"
    testing.assert_free("k")


# ---- keys


SECRET = "4111-1111"


@with_lock("card:{card}", ttl=5, rollback_wait=1)
class Carded(Step):
    card = Input(str, redact=True)

    def run(self) -> str:
        current().mark("run card", held=sorted(key for _, key in self.context.holds))
        return "done"

    def undo(self, result: str) -> None:
        current().mark("undo card", held=sorted(key for _, key in self.context.holds))


class Cards(Named):
    card = Input(str, redact=True)
    charge = step(Carded)
    behind = step(Work, after=charge)


def test_d94_a_key_from_what_is_redacted_is_one_key_and_says_nothing(
    reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    """The row's dashboard could not tell the key from hidden arguments; ours reads the key that was computed, a hash."""
    key = _key_of(SECRET)
    with testing.hold(key):
        handle = Cards.enqueue(card=SECRET, fail_at="behind")
        testing.drain()
        assert (row(handle).waiting_key, row(handle).status) == (key, "parked")
        assert [waiter.owner for waiter in inspect.line(key)] == [str(handle.id)]
    testing.drain()
    assert failure(handle.wait(1)).rollback_failures == ()
    marks = [(entry.label, entry.notes.get("held")) for entry in recorder.entries() if "card" in entry.label]
    assert marks == [("run card", [key]), ("undo card", [key])]
    assert {event.key for event in trace(handle) if event.key} == {key}
    assert not any(SECRET in f"{event.key} {event.data}" for event in trace(handle))


def _key_of(secret: str) -> str:
    (declared,) = Carded.coordination["lock"].keys
    key: str = declared.compute({"card": secret}, frozenset({"card"}))
    assert secret not in key
    return key


# ---- the same mistakes, one place further on: what is declared around, below, or by default


@with_lock("{key}", ttl=5)
class Door(Named):
    key = Input(str)
    charge = step(Work)


class ReactorUnit(Named):
    """The lock is declared where the reactor is handed off."""

    key = Input(str)
    before = step(Work)
    unit = async_reactor(Door, coordination=[with_lock("{key}:place", ttl=5)], after=before)
    behind = step(Work, after=unit)


class ReactorElements(Named):
    """Where it is mapped."""

    key = Input(str)
    before = step(Work)
    unit = map_each(Door, over=[1, 2], coordination=[with_lock("{key}:place", ttl=5)], after=before)
    behind = step(Work, after=unit)


class RetriedElements(Named):
    """And its attempts."""

    key = Input(str)
    unit = map_each(Door, over=[1], retry=Retry(max_attempts=2, backoff="fixed", base_delay=0.05))


@pytest.mark.parametrize("reactor", [ReactorUnit, ReactorElements])
def test_d82_what_is_declared_where_a_reactor_is_handed_off_is_held_around_it(
    reactor: type[Reactor], reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    with testing.hold("k:place"):
        handle = reactor.enqueue(key="k", fail_at="behind")
        testing.drain()
        assert recorder.sequence() == ["run before"]
        assert {str(unit.status) for unit in Execution.objects.filter(parent=handle.id)} == {"parked"}
    testing.drain(timeout=2)
    assert failure(handle.wait(1)).rollback_failures == ()
    times = 1 if reactor is ReactorUnit else 2
    assert recorder.sequence() == [
        "run before", *["run charge"] * times, "run behind", "comp behind", *["undo charge"] * times, "undo before"
    ]  # fmt: skip
    events = [event.key for event in _all_events("acquired")]
    assert events == ["k:place", "k"] * 2 * times  # for the body, and for its undo
    assert inspect.holds() == []


def test_d82_so_it_is_in_process(recorder: Recorder) -> None:
    with testing.hold("k:place"):
        outcome = ReactorElements.run(key="k")
    assert failure(outcome).error_type == "LockContended"
    assert recorder.sequence() == ["run before", "undo before"]
    assert ReactorElements.run(key="k").succeeded


@everywhere
def test_d82_nor_are_the_attempts_of_a_mapped_reactor_forgotten(
    way: str, reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    if way == "in process":
        outcome = RetriedElements.run(key="k", fail_at="charge")
    else:
        handle = RetriedElements.enqueue(key="k", fail_at="charge")
        testing.drain(timeout=2)
        outcome = handle.wait(1)
    assert failure(outcome).error_type == "BodyFailed"
    assert recorder.count("run charge") == 2


@with_lock("region:{region}", ttl=5)
class Regional(Step):
    region = Input(str, default="north")

    def run(self) -> str:
        current().mark("run regional")
        return self.region


class RegionalUnit(Reactor):
    inner = step(Regional)


class RegionalAround(Reactor):
    """One level further down."""

    inner = compose(RegionalUnit)


@with_lock("region:north", ttl=5)
class HandsOffRegional(Reactor):
    unit = async_reactor(RegionalUnit)


@with_lock("region:north", ttl=5)
class HandsOffRegionalBelow(Reactor):
    unit = async_reactor(RegionalAround)


@pytest.mark.parametrize("reactor", [HandsOffRegional, HandsOffRegionalBelow])
def test_d91_the_guard_of_a_hand_off_knows_the_default_at_any_depth(
    reactor: type[Reactor], reactor_dispatches: Dispatches, recorder: Recorder
) -> None:
    outcome = outcome_of(reactor, "in a worker")
    assert failure(outcome).error_type == "HandOffRefused"
    assert "'region:north'" in failure(outcome).message
    assert not Execution.objects.filter(parent__isnull=False).exists()
