"""Rollback under the same exclusivity, and whatever cannot be undone is listed (rollback_01 to 11)."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

import pytest

from reactor_coord import (
    CompensationError,
    Failure,
    Input,
    Reactor,
    ReactorFailed,
    Step,
    compose,
    step,
    testing,
    with_lock,
)
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.shapes import ByClass
from tests.integration.runtime.support import Background, eventually, failure, left_undone, row, runs, told, trace
from tests.live.reactors import Chain, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


@with_lock("{key}", ttl=5, rollback_wait=1)
class Brittle(Work):
    """Locked; its undo waits a second for the key."""

    key = Input(str)


class Taken(Named):
    """a, charge (locked), between (gives the key away if told so), z."""

    key = Input(str)
    a = step(Work)
    charge = step(Brittle, after=a)
    z = step(Work, after=charge)


def test_rollback_01_undo_holds_the_same_key_for_the_root(payment: type[Reactor], recorder: Recorder) -> None:
    outcome = payment.run(key="k", fail_at="behind")
    assert failure(outcome).step == "behind"
    assert recorder.sequence() == [
        "run before",
        "run charge",
        "run behind",
        "comp behind",
        "undo charge",
        "undo before",
    ]
    undo = recorder.intervals("undo charge")[0]
    assert undo.notes["held"] == ["k"]
    assert told(outcome, "acquired", "released", "undone")[-4:] == [
        ("acquired", "charge", "k"),
        ("undone", "charge", ""),
        ("released", "charge", "k"),
        ("undone", "before", ""),
    ]


def test_rollback_01_the_owner_is_the_root(recorder: Recorder) -> None:
    owners: list[str] = []

    @with_lock("{key}", ttl=5)
    class Looking(Step):
        key = Input(str)

        def run(self) -> None:
            """Nothing."""

        def undo(self, result: None) -> None:
            from reactor_coord.coordination import inspect

            hold = inspect.look(self.key).hold
            owners.append(hold.owner if hold else "")

    class Inner(Named):
        key = Input(str)
        look = step(Looking)

    class Outer(Named):
        key = Input(str)
        inner = compose(Inner)
        z = step(Work, after=inner)

    outcome = Outer.run(key="k", fail_at="z")
    assert owners == [str(outcome.execution.id)]


@pytest.mark.parametrize("fail_at, way, label", [("behind", "", "undo charge"), ("", "raise", "comp charge")])
def test_rollback_02_03_nobody_enters_while_it_is_cleaned_up(
    payment: type[Reactor], fail_at: str, way: str, label: str, recorder: Recorder
) -> None:
    failing = Background(lambda: payment.run(key="k", fail_at=fail_at, way=way, undo_seconds=1.0))
    recorder.wait_for(label)
    entering = Background(lambda: payment.run(name="other", key="k"))
    assert failing.result().failed
    assert entering.result().succeeded
    assert recorder.overlaps(label, "run charge") == []
    cleaned, entered = recorder.intervals(label)[0], recorder.intervals("run charge")[-1]
    assert cleaned.left <= entered.entered


def test_rollback_06_a_key_held_too_long_is_listed_and_the_rest_goes_on(recorder: Recorder) -> None:
    holds: list[Any] = []

    class Holding(Taken):
        @step(key=Taken.key, after=Taken.charge)
        def grab(key: str) -> None:
            context = testing.hold(key)
            holds.append((context, context.__enter__()))

        last = step(Work, after=grab)

    begun = time.monotonic()
    outcome = Holding.run(key="k", fail_at="last")
    assert time.monotonic() - begun >= 1.0
    assert recorder.sequence() == ["run a", "run charge", "run z", "run last", "comp last", "undo z", "undo a"]
    (left,) = failure(outcome).rollback_failures
    assert (left.step, left.kind, left.key, left.reason) == ("charge", "undo", "k", "coordination_unavailable")
    assert "testing.hold" in left.message
    assert row(outcome).reason == "rollback incomplete"
    assert told(outcome, "undo_failed") == [("undo_failed", "charge", "k")]
    assert runs(outcome)["charge"].status == "undo_failed"
    holds[0][0].__exit__(None, None, None)


@with_lock("{key}", ttl=0.5, auto_extend=False, rollback_wait=0.5)
class Overtaken(Work):
    """Its hold lapses under its body; another has the key when it fails."""

    key = Input(str)

    def run(self) -> dict[str, Any]:
        """Fails once the other has the key."""
        OUTSIDERS.enter_context(testing.hold(self.key, wait=5))
        return super().run()


OUTSIDERS = ExitStack()


def test_u92_rollback_06_a_compensation_without_its_key_is_listed_and_the_rest_goes_on(recorder: Recorder) -> None:
    class Losing(Named):
        key = Input(str)
        a = step(Work)
        charge = step(Overtaken, after=a)

    with OUTSIDERS:
        outcome = Losing.run(key="k", fail_at="charge")
        assert (failure(outcome).step, failure(outcome).error_type) == ("charge", "BodyFailed")
        assert recorder.sequence() == ["run a", "run charge", "undo a"]
        (left,) = failure(outcome).rollback_failures
        assert (left.step, left.kind, left.key, left.reason) == (
            "charge", "compensate", "k", "coordination_unavailable"
        )  # fmt: skip
        assert "testing.hold" in left.message
        assert row(outcome).reason == "rollback incomplete"
        assert told(outcome, "undo_failed") == [("undo_failed", "charge", "k")]
        assert told(outcome, "compensated") == []


def test_u89_a_compensation_that_cannot_have_its_key_is_an_error_of_its_own_naming_it(recorder: Recorder) -> None:
    class Losing(Named):
        key = Input(str)
        charge = step(Overtaken)

    with OUTSIDERS:
        outcome = Losing.run(key="k", fail_at="charge")
    (left,) = failure(outcome).rollback_failures
    assert (left.error_type, left.key) == ("CompensationError", "k")
    (event,) = [each.data for each in trace(outcome) if each.kind == "undo_failed"]
    assert event["error_type"] == "CompensationError"
    for seen in (outcome, outcome.handle.wait(1)):
        with pytest.raises(ReactorFailed) as caught:
            seen.unwrap()
        cause = caught.value.__cause__
        assert isinstance(cause, CompensationError)
        assert (cause.reactor, cause.step, cause.kind, cause.key) == ("Losing", "charge", "compensate", "k")
        assert "The compensate of step 'charge' of Losing was not done: it could not have the key 'k'" in str(cause)
    with pytest.raises(ReactorFailed) as caught:
        outcome.unwrap()
    assert caught.value.__cause__ is not None
    assert caught.value.__cause__.__cause__ is failure(outcome).error


def test_an_entry_of_a_cleanup_that_raised_names_its_class_and_the_cause_stays_the_step_s(recorder: Recorder) -> None:
    class Raising(Named):
        a = step(Work)
        b = step(Work, after=a)

    outcome = Raising.run(fail_at="b", undo_fail_at="a")
    (left,) = failure(outcome).rollback_failures
    assert (left.step, left.reason, left.error_type) == ("a", "raised", "BodyFailed")
    with pytest.raises(ReactorFailed) as caught:
        outcome.unwrap()
    assert caught.value.__cause__ is failure(outcome).error


def test_b116_what_stayed_undone_can_be_undone_again(reactor_dispatches: Any, recorder: Recorder) -> None:
    holds: list[Any] = []

    class Grabbing(Taken):
        @step(key=Taken.key, after=Taken.charge)
        def grab(key: str) -> None:
            context = testing.hold(key)
            holds.append((context, context.__enter__()))

        last = step(Work, after=grab)

    outcome = Grabbing.run(key="k", fail_at="last")
    assert len(failure(outcome).rollback_failures) == 1
    holds[0][0].__exit__(None, None, None)
    before = recorder.sequence()
    outcome.execution.undo()
    testing.drain(timeout=5)
    assert recorder.sequence()[len(before) :] == ["undo charge"]
    after = row(outcome)
    assert after.status == "failed"
    assert left_undone(outcome) == []
    assert after.reason == ""
    testing.assert_rolled_back(outcome, "charge", "a")


def test_rollback_08_the_other_gives_it_back_in_time(recorder: Recorder) -> None:
    class Handing(Named):
        key = Input(str)
        charge = step(Brittle)

        @step(after=charge)
        def reach() -> None:
            current().mark("reached")
            eventually(lambda: current().count("held"))

        last = step(Work, after=reach)

    running = Background(lambda: Handing.run(key="k", fail_at="last"))
    recorder.wait_for("reached")
    with testing.hold("k"):
        recorder.mark("held")
        recorder.wait_for("comp last")
        time.sleep(0.4)  # well within the second that the undo waits
    outcome = running.result()
    assert failure(outcome).rollback_failures == ()
    assert recorder.sequence()[-1] == "undo charge"
    testing.assert_rolled_back(outcome, "charge")


class UndoFails(Step):
    """Its undo fails in the way that is asked for."""

    way = Input(str, default="")

    def run(self) -> str:
        current().mark(f"run {self.context.step}")
        return self.context.step

    def undo(self, result: str) -> Any:
        current().mark(f"undo {self.context.step}")
        if self.way == "raise":
            raise ArithmeticError("cannot be undone")
        return Failure("will not be undone") if self.way == "return" else None


@pytest.mark.parametrize(
    "way, reason, message",
    [("raise", "raised", "cannot be undone"), ("return", "returned_failure", "will not be undone")],
)
def test_rollback_09_an_undo_that_fails_is_listed_and_the_rest_goes_on(
    way: str, reason: str, message: str, recorder: Recorder
) -> None:
    class Undoing(Named):
        first = step(UndoFails)
        second = step(UndoFails, way=way, after=first)
        third = step(UndoFails, after=second)
        last = step(Work, after=third)

    outcome = Undoing.run(fail_at="last")
    assert [each for each in recorder.sequence() if each.startswith("undo")] == [
        "undo third",
        "undo second",
        "undo first",
    ]
    (left,) = failure(outcome).rollback_failures
    assert (left.step, left.kind, left.reason) == ("second", "undo", reason)
    assert message in left.message
    assert failure(outcome).error_type == "BodyFailed"


def test_b115_failing_undos_do_not_stop_the_others(reactor_dispatches: Any, recorder: Recorder) -> None:
    broken = {"s3", "s2"}

    class Undone(Step):
        def run(self) -> None:
            """Nothing."""

        def undo(self, result: None) -> None:
            current().mark(f"undo {self.context.step}")
            if self.context.step in broken:
                raise ArithmeticError(self.context.step)

    class Five(Named):
        s1 = step(Undone)
        s2 = step(Undone, after=s1)
        s3 = step(Undone, after=s2)
        s4 = step(Undone, after=s3)
        s5 = step(Work, after=s4)

    outcome = Five.run(fail_at="s5")
    assert recorder.sequence() == ["run s5", "comp s5", "undo s4", "undo s3", "undo s2", "undo s1"]
    assert [left.step for left in failure(outcome).rollback_failures] == ["s3", "s2"]
    broken.discard("s2")
    outcome.execution.undo()
    testing.drain(timeout=5)
    assert recorder.sequence()[6:] == ["undo s3", "undo s2"]
    assert left_undone(outcome) == ["s3"]
    broken.clear()
    outcome.execution.undo()
    testing.drain(timeout=5)
    assert recorder.sequence()[8:] == ["undo s3"]
    assert row(outcome).reason == ""


def _breaks(value: Any) -> Any:
    raise LookupError("no such transform")


def test_rollback_11_a_transform_that_raises_fails_its_step(recorder: Recorder) -> None:
    class Transforming(Named):
        a = step(Work)
        b = step(Work, name=a.map(_breaks), after=a)

    outcome = Transforming.run()
    assert (failure(outcome).step, failure(outcome).error_type) == ("b", "LookupError")
    assert recorder.sequence() == ["run a", "undo a"]


def test_a_locked_compose_step_is_undone_under_its_lock(recorder: Recorder) -> None:
    held: list[list[str]] = []

    class Noting(Step):
        def run(self) -> None:
            held.append(sorted(key for _, key in self.context.holds))

        def undo(self, result: None) -> None:
            held.append(sorted(key for _, key in self.context.holds))

    class Inner(Named):
        note = step(Noting)

    class LockedOutside(Named):
        key = Input(str)
        inner = compose(Inner, coordination=[with_lock("outside", ttl=5)])
        z = step(Work, after=inner)

    @with_lock("own", ttl=5)
    class InnerOwn(Inner):
        pass

    class LockedInside(Named):
        inner = compose(InnerOwn)
        z = step(Work, after=inner)

    LockedOutside.run(key="k", fail_at="z")
    assert held == [["outside"], ["outside"]]
    held.clear()
    LockedInside.run(fail_at="z")
    assert held == [["own"], ["own"]]
    testing.assert_free("outside")
    testing.assert_free("own")


def test_undo_of_a_completed_execution_runs_once(reactor_dispatches: Any, recorder: Recorder) -> None:
    outcome = Chain.run()
    outcome.execution.undo()
    testing.drain(timeout=5)
    undone = ["undo c6", "undo c5", "undo c4", "undo c3", "undo c2", "undo c1"]
    assert recorder.sequence()[6:] == undone
    assert row(outcome).status == "reverted"
    from reactor_coord.errors import ExecutionConflict

    with pytest.raises(ExecutionConflict):
        row(outcome).undo()


def test_a_repeated_delivery_of_a_rollback_repeats_no_undo(reactor_dispatches: Any, recorder: Recorder) -> None:
    from reactor_coord.runtime import deliver

    handle = ByClass.enqueue(key="k", fail_at="behind")
    testing.drain(timeout=5)
    assert handle.status == "failed"
    before = recorder.sequence()
    for _ in range(3):
        deliver(str(handle.id), "again")
    assert recorder.sequence() == before


def test_a_reactor_lock_that_cannot_be_had_again_leaves_its_undos_listed(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    @with_lock("{key}", ttl=5, rollback_wait=0.3)
    class Child(Named):
        key = Input(str)
        c1 = step(Work)
        c2 = step(Work, after=c1)

    class Parent(Named):
        key = Input(str)
        a = step(Work)
        child = compose(Child, after=a)

        @step(key=key, after=child)
        def grab(key: str) -> None:
            context = testing.hold(key)
            holds.append((context, context.__enter__()))

        z = step(Work, after=grab)

    holds: list[Any] = []
    outcome = Parent.run(key="k", fail_at="z")
    assert recorder.sequence() == ["run a", "run c1", "run c2", "run z", "comp z", "undo a"]
    assert [(left.step, left.key, left.reason) for left in failure(outcome).rollback_failures] == [
        ("c2", "k", "coordination_unavailable"),
        ("c1", "k", "coordination_unavailable"),
    ]
    assert row(outcome).reason == "rollback incomplete"
    holds[0][0].__exit__(None, None, None)
    outcome.execution.undo()
    testing.drain(timeout=5)
    assert recorder.sequence()[6:] == ["undo c2", "undo c1"]
    assert left_undone(outcome) == []
    testing.assert_rolled_back(outcome, "c1", "c2", "a")
    testing.assert_free("k")
