"""Handed-off work in process: maps that loop, units that are refused, cancelled or undone."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import (
    Input,
    Reactor,
    Step,
    async_reactor,
    async_step,
    compose,
    element,
    map_each,
    step,
    testing,
    with_lock,
)
from reactor_coord.models import Execution, StepRun
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.recorder import Recorder
from tests.live.reactors import LockedWork, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


class Item(Step):
    """One element of two steps' worth, recorded with its number."""

    number = Input(int)
    fail_at = Input(str, default="")

    def run(self) -> int:
        with _recorder().recording(f"run e[{self.number}]"):
            if self.fail_at == f"e{self.number}":
                raise ValueError(f"element {self.number} was told to fail")
        return self.number * 10

    def compensate(self, error: BaseException) -> None:
        _recorder().mark(f"comp e[{self.number}]")

    def undo(self, result: int) -> None:
        _recorder().mark(f"undo e[{self.number}]")


def _recorder() -> Recorder:
    from reactor_coord.testing import recorder

    return recorder.current()


class Pair(Reactor):
    """e1, e2 of one element."""

    number = Input(int)
    fail_at = Input(str, default="")

    @step(number=number)
    def e1(number: int) -> int:
        _recorder().mark(f"e1[{number}]")
        return number

    @e1.undo
    def _(result: int, number: int) -> None:
        _recorder().mark(f"undo e1[{number}]")

    @step(number=number, fail_at=fail_at, after=e1)
    def e2(number: int, fail_at: str) -> int:
        _recorder().mark(f"e2[{number}]")
        if fail_at == f"e2[{number}]":
            raise ValueError("told to")
        return number * 10

    @e2.undo
    def _(result: int, number: int) -> None:
        _recorder().mark(f"undo e2[{number}]")

    @e2.compensate
    def _(error: BaseException, number: int) -> None:
        _recorder().mark(f"comp e2[{number}]")

    returns = e2


class MapOfSteps(Named):
    """a, a map of steps, z."""

    numbers = Input(list[int])

    a = step(Work)
    mapped = map_each(Item, over=numbers, number=element(), after=a)
    z = step(Work, after=mapped)

    returns = mapped


class MapOfReactors(Named):
    """a, a map of reactors, z."""

    numbers = Input(list[int])

    a = step(Work)
    mapped = map_each(Pair, over=numbers, number=element(), after=a, collect=sum)
    z = step(Work, after=mapped)

    returns = mapped


class Beside(Named):
    """a, then a unit on the side, then b."""

    a = step(Work)
    u = async_step(Work, after=a)
    b = step(Work, after=a)


class Detached(Named):
    """The same, let run whatever happens."""

    a = step(Work)
    u = async_step(Work, after=a, detach=True)
    b = step(Work, after=a)


@with_lock("{key}", ttl=5)
class LockedChild(Named):
    """A reactor that wants a key."""

    key = Input(str)

    inner = step(Work)


class Dispatching(Named):
    """Hands off a reactor that wants the key."""

    key = Input(str)

    a = step(Work)
    child = async_reactor(LockedChild, after=a)


class HoldingAround(Named):
    """A locked composition that hands off work which wants the same key."""

    key = Input(str)

    before = step(Work)
    inner = compose(Dispatching, coordination=[with_lock("{key}", ttl=5)], after=before)


@with_lock("{key}", ttl=5)
class HoldingItself(Named):
    """Holds the key that its unit wants."""

    key = Input(str)

    a = step(Work)
    u = async_step(LockedWork, after=a)


def test_in_process_a_map_loops_in_order(recorder: Recorder) -> None:
    outcome = MapOfSteps.run(numbers=[1, 2, 3])
    assert outcome.succeeded
    assert outcome.value == [10, 20, 30]
    assert recorder.sequence() == ["run a", "run e[1]", "run e[2]", "run e[3]", "run z"]


def test_b148_a_map_over_nothing_completes_with_an_empty_result(recorder: Recorder) -> None:
    outcome = MapOfSteps.run(numbers=[])
    assert outcome.value == []
    assert MapOfReactors.run(numbers=[]).value == 0


def test_seq_05_the_failing_element_first_then_the_others_newest_first(recorder: Recorder) -> None:
    outcome = MapOfReactors.run(numbers=[0, 1, 2, 3], fail_at="e2[2]")
    assert outcome.failed
    assert outcome.failure is not None
    assert outcome.failure.error_type == "ValueError"
    assert recorder.sequence() == [
        "run a", "e1[0]", "e2[0]", "e1[1]", "e2[1]", "e1[2]", "e2[2]",
        "comp e2[2]", "undo e1[2]", "undo e2[1]", "undo e1[1]", "undo e2[0]", "undo e1[0]", "undo a",
    ]  # fmt: skip


def test_d2_a_failure_after_the_map_undoes_every_element(recorder: Recorder) -> None:
    outcome = MapOfSteps.run(numbers=[1, 2], fail_at="z")
    assert outcome.failed
    assert recorder.sequence()[-4:] == ["comp z", "undo e[2]", "undo e[1]", "undo a"]


def test_d6_a_collector_that_raises_undoes_the_elements(recorder: Recorder) -> None:
    class Bad(Reactor):
        numbers = Input(list[int])
        mapped = map_each(Item, over=numbers, number=element(), collect=lambda values: 1 / 0)

    outcome = Bad.run(numbers=[1, 2])
    assert outcome.failed
    assert recorder.sequence() == ["run e[1]", "run e[2]", "undo e[2]", "undo e[1]"]


def test_seq_18_a_unit_that_has_not_begun_is_cancelled_and_never_runs(
    recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    outcome = Beside.run(fail_at="b")
    assert outcome.failed
    assert recorder.sequence() == ["run a", "run b", "comp b", "undo a"]
    unit = Execution.objects.get(parent=outcome.execution)
    assert unit.status == "cancelled"
    testing.drain()
    assert recorder.sequence() == ["run a", "run b", "comp b", "undo a"]


def test_a_detached_unit_runs_whatever_becomes_of_its_parent(
    recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    outcome = Detached.run(fail_at="b")
    assert outcome.failed
    testing.drain()
    assert recorder.sequence() == ["run a", "run b", "comp b", "undo a", "run u"]


def test_a_unit_is_waited_for_and_undone_with_its_parent(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    class Reading(Named):
        u = async_step(Work)
        b = step(Work, after=u)

    handle = Reading.enqueue(fail_at="b")
    testing.drain()
    assert handle.status == "failed"
    assert recorder.sequence() == ["run u", "run b", "comp b", "undo u"]


@pytest.mark.parametrize("reactor", [HoldingAround, HoldingItself])
def test_reenter_05_06_work_that_wants_a_key_the_tree_holds_is_refused_before_dispatch(
    reactor: Any, recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    outcome = reactor.run(key="k")
    assert outcome.failed
    assert outcome.failure is not None
    assert outcome.failure.error_type == "HandOffRefused"
    assert "'k'" in outcome.failure.message
    assert str(outcome.execution.id) in outcome.failure.message
    assert reactor_dispatches == []
    assert not Execution.objects.filter(tags__has_key="dispatched_by").exists()
    assert not StepRun.objects.filter(status="dispatched").exists()
    assert "undo a" in recorder.sequence()


def test_reenter_05_a_locked_composition_refuses_to_hand_off(
    recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    outcome = HoldingAround.run(key="k")
    assert recorder.sequence() == ["run before", "run a", "undo a", "undo before"]
    assert outcome.failure is not None
    assert outcome.failure.step == "child"


def test_reenter_06_a_units_key_held_by_the_reactor(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    outcome = HoldingItself.run(key="k")
    assert outcome.failure is not None
    assert outcome.failure.step == "u"
    testing.assert_free("k")


def test_a_fanned_out_map_by_draining(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    handle = MapOfReactors.enqueue(numbers=list(range(7)))
    testing.drain()
    outcome = handle.wait(1)
    assert outcome.succeeded
    assert outcome.value == sum(number * 10 for number in range(7))
    assert recorder.count("run z") == 1


def test_d1_d3_a_fanned_out_failure_undoes_what_completed(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    handle = MapOfReactors.enqueue(numbers=[0, 1, 2, 3], fail_at="e2[2]")
    testing.drain()
    outcome = handle.wait(1)
    assert outcome.failed
    done = {label[len("e2") :] for label in recorder.sequence() if label.startswith("e2[")} - {"[2]"}
    undone = {label[len("undo e2") :] for label in recorder.sequence() if label.startswith("undo e2[")}
    assert undone == done
    assert recorder.count("comp e2[2]") == 1
    assert recorder.sequence()[-1] == "undo a"


def test_d4_after_a_fan_out_a_later_failure_undoes_all(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    handle = MapOfReactors.enqueue(numbers=[0, 1, 2], fail_at="z")
    testing.drain()
    assert handle.wait(1).failed
    assert [label for label in recorder.sequence() if label.startswith("undo e2")] == [
        "undo e2[2]",
        "undo e2[1]",
        "undo e2[0]",
    ]


@with_lock("item:{number}", ttl=5)
class LockedItem(Item):
    """An element that holds a key of its own value."""


class MapOfLocked(Named):
    """a, a map whose elements are keyed on themselves, z."""

    a = step(Work)
    mapped = map_each(LockedItem, over=[1, 2], number=element(), after=a)
    z = step(Work, after=mapped)


class MapDeclaring(Named):
    """The same, declared at the map."""

    a = step(Work)
    mapped = map_each(
        Item, over=[1, 2], number=element(), after=a, coordination=[with_lock(lambda of: f"item:{of['number']}", ttl=5)]
    )
    z = step(Work, after=mapped)


class MapOfReactorsDeclaring(Named):
    """The same around reactors."""

    a = step(Work)
    mapped = map_each(Pair, over=[1, 2], number=element(), after=a, coordination=[with_lock("item:{number}", ttl=5)])
    z = step(Work, after=mapped)


@pytest.mark.parametrize("reactor", [MapOfLocked, MapDeclaring, MapOfReactorsDeclaring])
@pytest.mark.parametrize("how", ["run", "enqueue"])
def test_elements_keyed_on_their_own_values_are_undone_under_those_keys(
    reactor: type[Named], how: str, recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    handle = getattr(reactor, how)(fail_at="z")
    if how == "enqueue":
        testing.drain(10)
    testing.assert_rolled_back(handle)
    undone = [each for each in recorder.sequence() if each.startswith("undo")]
    pair = ["undo e2[2]", "undo e1[2]", "undo e2[1]", "undo e1[1]"]
    assert undone[:-1] == (pair if reactor is MapOfReactorsDeclaring else ["undo e[2]", "undo e[1]"])
    testing.assert_free("item:1")
    testing.assert_free("item:2")
