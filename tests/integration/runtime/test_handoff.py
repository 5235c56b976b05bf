"""Handed-off work in process: maps that loop, units that are refused, cancelled or undone."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import (
    DefinitionError,
    Failure,
    Input,
    Reactor,
    Skipped,
    Step,
    async_reactor,
    async_step,
    compose,
    element,
    map_each,
    step,
    testing,
    with_lock,
    with_period,
)
from reactor_coord.models import Execution, StepRun, TraceEvent
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
    undone = [label for label in recorder.sequence() if label.startswith("undo e2")]
    assert sorted(undone) == ["undo e2[0]", "undo e2[1]", "undo e2[2]"], "in workers, so in no order"


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
    whole = pair if reactor is MapOfReactorsDeclaring else ["undo e[2]", "undo e[1]"]
    assert undone[:-1] == whole if how == "run" else sorted(undone[:-1]) == sorted(whole), "in workers in no order"
    testing.assert_free("item:1")
    testing.assert_free("item:2")


@with_lock("acct:{account}", ttl=5)
class Keyed(Work):
    """Its key is made of an account, which may be missing."""

    account = Input(str, default="")


@with_period("{account}", every="month")
class KeyedReactor(Named):
    """The same around a reactor, under a key that others may share."""

    account = Input(str, default="")
    inner = step(Work)


class Guarded(Keyed):
    """Its guard sends away what has no account."""

    def guard(self) -> Any:
        """Skip what has none."""
        return None if self.account else Skipped(reason="no account")


class HandsOffAStep(Named):
    account = Input(str, default="")
    a = step(Work)
    u = async_step(Keyed, after=a)


class HandsOffAReactor(Named):
    account = Input(str, default="")
    a = step(Work)
    u = async_reactor(KeyedReactor, after=a)


class HandsOffUnderAKey(Named):
    account = Input(str, default="")
    a = step(Work)
    u = async_step(Work, coordination=[with_lock("acct:{fail_at}", ttl=5)], after=a)


class HandsOffElements(Named):
    a = step(Work)
    u = map_each(Keyed, over=["x", ""], account=element(), after=a)


@pytest.mark.parametrize("reactor", [HandsOffAStep, HandsOffAReactor, HandsOffUnderAKey, HandsOffElements])
def test_u90_a_key_that_cannot_be_computed_fails_the_step_that_would_hand_off(
    reactor: type[Named], recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    handle = reactor.enqueue()
    testing.drain(timeout=20)
    failure = handle.wait(1).failure
    assert failure is not None
    assert (failure.reactor, failure.step, failure.error_type) == (reactor.__name__, "u", "CoordinationKeyError")
    assert f"of step 'u' of {reactor.__name__} cannot be computed" in failure.message
    assert recorder.sequence() == ["run a", "undo a"]
    dispatched = Execution.objects.filter(parent=handle.id).exclude(status="cancelled", started_at=None)
    assert not dispatched.exists()


def test_a_unit_whose_guard_is_asked_before_its_key_may_need_none(
    recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    class HandsOffAGuarded(Named):
        account = Input(str, default="")
        u = async_step(Guarded)

    handle = HandsOffAGuarded.enqueue()
    testing.drain(timeout=20)
    assert handle.wait(1).succeeded
    assert Execution.objects.get(parent=handle.id).status == "completed"


@with_lock("outer:{account}", ttl=5)
class HoldsAndHandsOff(Named):
    """Holds a key, and hands off a reactor whose steps make keys of what is not known yet."""

    account = Input(str)

    class Child(Named):
        """Its second step's key depends on its first."""

        account = Input(str)
        first = step(Work)

        @step(found=first, coordination=[with_lock("found:{found[step]}", ttl=5)])
        def second(found: dict[str, Any]) -> None:
            """Nothing."""

    u = async_reactor(Child)


def test_u90_a_check_that_has_to_be_skipped_is_logged_with_reactor_step_and_execution(
    caplog: pytest.LogCaptureFixture, recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    handle = HoldsAndHandsOff.enqueue(account="7")
    with caplog.at_level("INFO", logger="reactor_coord"):
        testing.drain(timeout=20)
    assert handle.wait(1).succeeded
    (line,) = [each for each in caplog.records if "hand_off_unchecked" in each.getMessage()]
    assert line.levelname == "INFO"
    for part in ("reactor=HoldsAndHandsOff step=u", f"execution={handle.id}", "at=second", "key='found:{found[step]}'"):
        assert part in line.getMessage()


class Judging(Named):
    """Work on the side that may fail, a step that judges it, and one behind that."""

    a = step(Work)
    u = async_step(Work, fails_parent=False, after=a)

    @step(ended=u.outcome)
    def judge(ended: Any) -> str:
        return f"failed as {ended.error}" if isinstance(ended, Failure) else f"came to {ended.value['step']}"

    z = step(Work, after=judge)
    returns = judge


class Unread(Named):
    """Work on the side that no step reads."""

    a = step(Work)
    u = async_step(Work, fails_parent=False, after=a)


class ReadPlainly(Named):
    """A step reads the value of what failed."""

    a = step(Work)
    u = async_step(Work, fails_parent=False, after=a)

    @step(found=u)
    def reads(found: Any) -> None:
        """Never runs."""


@pytest.mark.parametrize(
    "fail_at, value, u",
    [("", "came to u", "succeeded"), ("u", "failed as BodyFailed: u was told to fail", "failed")],
)
def test_u94_a_reader_takes_the_failure_of_work_on_the_side_and_judges(
    fail_at: str, value: str, u: str, recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    handle = Judging.enqueue(fail_at=fail_at)
    testing.drain(timeout=20)
    outcome = handle.wait(1)
    assert (outcome.status, outcome.value, outcome.failure) == ("completed", value, None)
    assert StepRun.objects.get(execution=handle.id, step="u").status == u
    assert recorder.sequence()[-1] == "run z"
    assert ("u" in outcome.results) is (u == "succeeded")


def test_u94_a_failure_that_no_step_reads_fails_the_parent_unless_it_says_otherwise(
    recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    strict, lenient = Beside.enqueue(fail_at="u"), Unread.enqueue(fail_at="u")
    testing.drain(timeout=20)
    assert (strict.status, lenient.status, lenient.wait(1).value) == ("failed", "completed", None)
    (told,) = TraceEvent.objects.filter(root_id=lenient.id, kind="step_failed")
    assert (told.step, told.data["contained"], told.data["error_type"]) == ("u", True, "BodyFailed")
    assert not TraceEvent.objects.filter(root_id=lenient.id, kind="rolling_back").exists()


def test_u94_a_step_that_reads_the_value_of_what_failed_fails_and_says_how_to_judge(
    recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    handle = ReadPlainly.enqueue(fail_at="u")
    testing.drain(timeout=20)
    failure = handle.wait(1).failure
    assert failure is not None
    assert failure.step == "reads"
    assert "it failed (BodyFailed: u was told to fail). Read u.outcome to judge that" in failure.message
    assert recorder.sequence() == ["run a", "run u", "comp u", "undo a"]


def test_a_contained_failure_stays_told_as_such_when_the_execution_rolls_back_later(
    recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    class Later(Named):
        u = async_step(Work, fails_parent=False, fail_at="u")

        @step(ended=u.outcome)
        def judge(ended: Any) -> None:
            raise ArithmeticError("not good enough")

    handle = Later.enqueue()
    testing.drain(timeout=20)
    outcome = handle.wait(1)
    assert outcome.failure is not None
    assert (outcome.failure.step, outcome.failure.rollback_failures) == ("judge", ())
    assert StepRun.objects.get(execution=handle.id, step="u").status == "failed"
    assert TraceEvent.objects.filter(root_id=handle.id, kind="step_failed", step="u").count() == 1


def test_u94_only_what_does_not_fail_its_parent_has_an_outcome_to_be_judged() -> None:
    with pytest.raises(DefinitionError, match=r"outcome: only an async_step or async_reactor with fails_parent=False"):
        async_step(Work).outcome
    with pytest.raises(DefinitionError, match="fails_parent must be True or False"):
        async_step(Work, fails_parent=0)  # type: ignore[arg-type]
