"""`fail_fast=False`: all elements run, in process as in a worker; one that fails is undone alone, and `collect` judges."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import Failure, Input, Reactor, Step, element, map_each, step, testing
from reactor_coord.errors import ReactorFailed
from reactor_coord.models import Execution
from reactor_coord.operations import verbs
from reactor_coord.runtime.outcome import Outcome
from reactor_coord.testing import drain
from reactor_coord.testing import recorder as recorders
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import killed
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)
WAYS = pytest.mark.parametrize("way", ["in process", "in a worker"])


class Parcel(Step):
    """Fails for the names that are bad."""

    name = Input(str)
    undo_fails = Input(bool, default=False)

    def run(self) -> str:
        recorders.current().mark(f"run {self.name}")
        if self.name.startswith("bad"):
            raise ValueError(f"{self.name} is told to fail")
        return self.name.upper()

    def compensate(self, error: BaseException) -> None:
        recorders.current().mark(f"comp {self.name}")
        if self.undo_fails:
            raise RuntimeError("cannot be cleaned up")

    def undo(self, result: str) -> None:
        recorders.current().mark(f"undo {self.name}")


class Shipment(Reactor):
    """An element of two steps."""

    name = Input(str)
    packed = step(Work)
    sent = step(Parcel, after=packed)


def judged(values: list[Any]) -> list[Any]:
    return [said(value) if isinstance(value, Failure) else value for value in values]


def said(failure: Failure) -> str:
    assert isinstance(failure.error, ReactorFailed)
    assert failure.error.failure is not None
    return f"{failure.error.failure.error_type}: {failure.error}"


NAMES = ["a", "bad b", "c", "bad d", "e"]


class Collected(Named):
    """Its collector takes failures for what they are."""

    undo_fails = Input(bool, default=False)
    each = map_each(Parcel, over=NAMES, name=element(), fail_fast=False, collect=judged)
    behind = step(Work, after=each)
    returns = each


class OfReactors(Named):
    """The same, of reactors."""

    each = map_each(Shipment, over=["a", "bad b", "c"], name=element(), fail_fast=False, collect=judged)


class Uncollected(Named):
    """Nobody looks at its failures."""

    each = map_each(Parcel, over=NAMES, name=element(), fail_fast=False)


class Fast(Named):
    """The first failure ends it."""

    each = map_each(Parcel, over=NAMES, name=element(), batch_size=1, collect=judged)


def ended(reactor: type[Reactor], way: str, **inputs: Any) -> Outcome:
    if way == "in process":
        return reactor.run(**inputs)
    handle = reactor.enqueue(**inputs)
    testing.drain()
    return handle.wait(1)


JUDGED = ["A", "ValueError: bad b is told to fail", "C", "ValueError: bad d is told to fail", "E"]


@WAYS
def test_u19_all_elements_run_and_collect_is_given_the_failures_of_those_that_failed(
    way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    outcome = ended(Collected, way)
    assert outcome.status == "completed", outcome.failure
    assert outcome.value == JUDGED
    marks = recorder.sequence()
    assert [mark for mark in marks if mark.startswith("run")] == [*(f"run {name}" for name in NAMES), "run behind"]
    assert [mark for mark in marks if not mark.startswith("run")] == ["comp bad b", "comp bad d"]
    rows = Execution.objects.filter(parent=outcome.execution).order_by("element_index")
    assert [row.status for row in rows] == ["completed", "failed", "completed", "failed", "completed"]


@WAYS
def test_u19_a_failed_element_is_undone_alone_and_the_others_with_the_map(
    way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    outcome = ended(Collected, way, fail_at="behind")
    assert outcome.failed
    cleanups = [mark for mark in recorder.sequence() if not mark.startswith("run")]
    undone = ["undo e", "undo c", "undo a"]
    assert cleanups[:3] == ["comp bad b", "comp bad d", "comp behind"]
    assert cleanups[3:] == undone if way == "in process" else sorted(cleanups[3:]) == sorted(undone)
    assert outcome.failure is not None
    assert not outcome.failure.rollback_failures


@WAYS
def test_u19_an_element_of_several_steps_is_undone_whole(way: str, reactor_dispatches: Any, recorder: Recorder) -> None:
    outcome = ended(OfReactors, way)
    assert outcome.value == ["A", "ValueError: bad b is told to fail", "C"]
    assert recorder.count("undo packed") == 1
    child = Execution.objects.get(parent=outcome.execution, element_index=1)
    assert child.why_failed is not None
    assert (child.status, child.why_failed.step) == ("failed", "sent")


@WAYS
def test_u19_without_a_collector_the_map_fails_when_all_have_run(
    way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    outcome = ended(Uncollected, way)
    assert outcome.failed
    assert outcome.failure is not None
    assert (outcome.failure.error_type, outcome.failure.message) == ("ValueError", "bad b is told to fail")
    assert [mark for mark in recorder.sequence() if mark.startswith("run")] == [f"run {name}" for name in NAMES]
    assert {mark for mark in recorder.sequence() if mark.startswith("undo")} == {"undo a", "undo c", "undo e"}


@WAYS
def test_u19_the_first_failure_ends_a_map_that_says_nothing(
    way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    outcome = ended(Fast, way)
    assert outcome.failed
    assert [mark for mark in recorder.sequence() if mark.startswith("run")] == ["run a", "run bad b"]


@WAYS
def test_what_of_a_failed_element_stays_undone_is_in_its_row(
    way: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    outcome = ended(Collected, way, undo_fails=True)
    assert outcome.value == JUDGED
    child = Execution.objects.get(parent=outcome.execution, element_index=1)
    assert child.why_failed is not None
    assert [each.step for each in child.why_failed.rollback_failures] == ["each"]


@pytest.mark.parametrize("point", ["rollback.before_undo", "rollback.after_undo", "body.after"])
def test_a_failed_element_that_a_kill_cut_off_is_undone_alone_by_the_worker_that_resumes(
    point: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    row = killed(lambda: Collected.run(), point, 1)
    verbs.resume(row)
    drain()
    row.refresh_from_db()
    assert (row.status, row.result) == ("completed", JUDGED)


def test_u19_what_collect_is_given_carries_the_failure_of_the_element() -> None:
    seen: list[Any] = []

    class Looked(Named):
        each = map_each(Parcel, over=["bad b"], name=element(), fail_fast=False, collect=seen.extend)

    Looked.run().unwrap()
    [failure] = seen
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, ReactorFailed)
    assert failure.error.failure is not None
    assert failure.error.failure.step == "each"
