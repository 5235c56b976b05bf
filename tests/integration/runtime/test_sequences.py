"""What runs, in which order, in process: the rows of the sequences that need no worker."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from reactor_coord import Input, Reactor, Retry, Step, compose, step
from reactor_coord.testing import recorder as recorders
from reactor_coord.testing.recorder import Recorder
from tests.live.reactors import BodyFailed, Chain, Named, Ordering, PatientPayment, Payment, Retried, Work

pytestmark = pytest.mark.django_db(transaction=True)


class Child(Named):
    """c1, c2."""

    c1 = step(Work)
    c2 = step(Work, after=c1)


class OtherChild(Named):
    """y1, y2."""

    y1 = step(Work)
    y2 = step(Work, after=y1)


class OneChild(Named):
    """a, then a child."""

    a = step(Work)
    child = compose(Child, after=a)


class TwoChildren(Named):
    """x, then y."""

    x = compose(Child)
    y = compose(OtherChild, after=x)


class Branches(Named):
    """c is declared before b, so it completes first; d needs both."""

    a = step(Work)
    c = step(Work, after=a)
    b = step(Work, after=a)
    d = step(Work, after=[b, c])


class Skipping(Named):
    """a is skipped."""

    a = step(Work, where=lambda name: False)
    b = step(Work, after=a)


def test_seq_01_the_failing_step_is_compensated_the_ones_before_it_undone(recorder: Recorder) -> None:
    outcome = Chain.run(fail_at="c2")
    assert outcome.failed
    assert recorder.sequence() == ["run c1", "run c2", "comp c2", "undo c1"]


def test_seq_02_undone_newest_first(recorder: Recorder) -> None:
    Chain.run(fail_at="c4")
    assert recorder.sequence() == [
        "run c1", "run c2", "run c3", "run c4", "comp c4", "undo c3", "undo c2", "undo c1"
    ]  # fmt: skip


def test_seq_03_a_composed_child_is_rolled_back_first(recorder: Recorder) -> None:
    outcome = OneChild.run(fail_at="c2")
    assert recorder.sequence() == ["run a", "run c1", "run c2", "comp c2", "undo c1", "undo a"]
    assert outcome.failure is not None
    assert (outcome.failure.reactor, outcome.failure.step) == ("Child", "c2")
    assert outcome.failure.error_type == BodyFailed.__name__


def test_seq_04_a_completed_child_is_undone_after_the_failing_one(recorder: Recorder) -> None:
    TwoChildren.run(fail_at="y2")
    assert recorder.sequence() == [
        "run c1", "run c2", "run y1", "run y2", "comp y2", "undo y1", "undo c2", "undo c1"
    ]  # fmt: skip


def test_seq_07_the_undo_is_under_the_lock(recorder: Recorder) -> None:
    outcome = PatientPayment.run(key="k", fail_at="notify")
    assert recorder.sequence() == [
        "run audit", "run charge", "run notify", "comp notify", "undo charge", "undo audit"
    ]  # fmt: skip
    kinds = (
        [row.kind for row in outcome.execution.trace.all()] if hasattr(outcome.execution, "trace") else _kinds(outcome)
    )
    taken = [kind for kind in kinds if kind in {"acquired", "released", "undone", "step_succeeded", "compensated"}]
    assert taken == [
        "step_succeeded", "acquired", "step_succeeded", "released", "compensated",
        "acquired", "undone", "released", "undone",
    ]  # fmt: skip


def test_seq_08_a_contended_step_neither_runs_nor_is_compensated(recorder: Recorder) -> None:
    from reactor_coord import testing

    with testing.hold("k"):
        outcome = Payment.run(key="k")
    assert outcome.failed
    assert recorder.sequence() == ["run audit", "undo audit"]
    testing.assert_contended(outcome, "charge", key="k")


def test_seq_09_all_attempts_then_one_compensation(recorder: Recorder) -> None:
    outcome = Retried.run(key="k", fail_at="charge")
    assert recorder.sequence() == ["run before", "run charge", "run charge", "comp charge", "undo before"]
    assert outcome.failed


def test_seq_13_a_skipped_step_is_not_undone(recorder: Recorder) -> None:
    outcome = Skipping.run(fail_at="b")
    assert outcome.failed
    assert recorder.sequence() == ["run b", "comp b"]


def test_seq_14_branches_are_undone_in_reverse_of_their_completion(recorder: Recorder) -> None:
    Branches.run(fail_at="d")
    assert recorder.sequence() == [
        "run a", "run c", "run b", "run d", "comp d", "undo b", "undo c", "undo a"
    ]  # fmt: skip


def test_a_parents_later_failure_undoes_the_composed_steps(recorder: Recorder) -> None:
    outcome = Ordering.run(key="k", fail_at="z")
    assert outcome.failed
    assert recorder.sequence()[-5:] == ["comp z", "undo notify", "undo charge", "undo audit", "undo a"]


def test_seq_12_a_halt_undoes_nothing_and_stops_the_tree(recorder: Recorder) -> None:
    class Stop(Step):
        def run(self) -> None:
            self.halt(reason="enough")

    class Inner(Reactor):
        name = Input(str, default="")
        first = step(Work)
        stop = step(Stop, after=first)
        never = step(Work, after=stop)

    class Halting(Reactor):
        name = Input(str, default="")
        a = step(Work)
        inner = compose(Inner, after=a)
        z = step(Work, after=inner)

    outcome = Halting.run()
    assert outcome.halted
    assert outcome.reason == "enough"
    assert recorder.sequence() == ["run a", "run first"]


class Twice(Named):
    """a, then a child that may be run twice."""

    a = step(Work)
    child = compose(Child, after=a, retry=Retry(max_attempts=2, backoff="fixed", base_delay=0.05))
    z = step(Work, after=child)


class FailsOnce(Step):
    """Fails the first time it is run in this process."""

    seen: ClassVar[list[str]] = []

    def run(self) -> None:
        recorders.current().mark("run once")
        if not self.seen:
            self.seen.append("")
            raise BodyFailed("the first time")

    def compensate(self, error: BaseException) -> None:
        recorders.current().mark("comp once")


class WithAFailure(Named):
    """c1, then a step that fails the first time."""

    c1 = step(Work)
    once = step(FailsOnce, after=c1)


class Afresh(Named):
    """A child that fails once."""

    a = step(Work)
    child = compose(WithAFailure, after=a, retry=Retry(max_attempts=2, backoff="fixed", base_delay=0.05))
    z = step(Work, after=child)


def test_seq_17_d9_a_retried_composition_undoes_its_child_and_runs_it_afresh(recorder: Recorder) -> None:
    FailsOnce.seen.clear()
    outcome = Afresh.run()
    assert outcome.succeeded
    assert recorder.sequence() == [
        "run a", "run c1", "run once", "comp once", "undo c1", "run c1", "run once", "run z"
    ]  # fmt: skip


def test_d10_after_a_retried_composition_a_later_failure_undoes_its_last_run_alone(recorder: Recorder) -> None:
    FailsOnce.seen.clear()
    outcome = Afresh.run(fail_at="z")
    assert outcome.failed
    assert recorder.sequence()[8:] == ["comp z", "undo c1", "undo a"]


def test_a_retried_composition_that_keeps_failing_fails_its_parent(recorder: Recorder) -> None:
    outcome = Twice.run(fail_at="c2")
    assert outcome.failed
    assert recorder.sequence() == [
        "run a", "run c1", "run c2", "comp c2", "undo c1", "run c1", "run c2", "comp c2", "undo c1", "undo a"
    ]  # fmt: skip
    assert outcome.failure is not None
    assert (outcome.failure.reactor, outcome.failure.step) == ("Child", "c2")


def _kinds(outcome: Any) -> list[str]:
    from reactor_coord.models import TraceEvent

    return list(
        TraceEvent.objects.filter(root_id=outcome.execution.root_id).order_by("id").values_list("kind", flat=True)
    )
