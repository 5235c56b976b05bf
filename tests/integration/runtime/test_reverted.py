"""What had ended and was undone since is `reverted`, at every level; what was ended under way is `cancelled` or `failed`."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import async_step, compose, element, map_each, step, testing
from reactor_coord.errors import ExecutionConflict
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.operations import verbs, views
from reactor_coord.testing import drain
from reactor_coord.testing.recorder import Recorder
from tests.live.reactors import Named, Work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("reactor_dispatches", "recorder")]


class Inner(Named):
    """Two steps."""

    inside = step(Work)
    after_it = step(Work, after=inside)


class InProcess(Named):
    """A child and elements, which a process can run by itself."""

    child = compose(Inner)
    each = map_each(Work, over=["one", "two"], name=element(), after=child)
    last = step(Work, after=each)


class Outer(Named):
    """A child, a unit and elements, then one step more."""

    child = compose(Inner)
    unit = async_step(Work, after=child)
    each = map_each(Work, over=["one", "two"], name=element(), after=unit)
    last = step(Work, after=each)


def ends(of: Execution) -> dict[str, set[str]]:
    """The statuses of a tree's executions, by the step that they stand for."""
    found: dict[str, set[str]] = {}
    for row in _family(of):
        found.setdefault(row.parent_step, set()).add(row.status)
    return found


def _family(row: Execution) -> list[Execution]:
    return [row, *(each for child in Execution.objects.filter(parent=row.pk) for each in _family(child))]


@pytest.mark.parametrize(
    ("start", "made_of"),
    [(Outer.enqueue, ("", "child", "unit", "each")), (InProcess.run, ("", "child", "each"))],
    ids=["in a worker", "in process"],
)
def test_u119_an_execution_that_was_undone_by_hand_says_so_with_all_that_it_was_made_of(
    start: Any, made_of: tuple[str, ...]
) -> None:
    row = start().execution
    drain()
    verbs.undo(row, reason="wrong order", actor="ada")
    drain()
    row.refresh_from_db()
    assert (row.status, row.reason) == ("reverted", "wrong order")
    assert ends(row) == {step_name: {"reverted"} for step_name in made_of}
    for each in _family(row):
        told = TraceEvent.objects.filter(execution=each, kind__in=["reverted", "cancelled", "failed"])
        assert [event.kind for event in told] == ["reverted"]
    detail = views.detail(row)
    assert "Reverted" in detail.explain and "wrong order" in detail.explain
    assert detail.allowed == {"retry"}


def test_u119_it_can_be_retried_and_not_undone_again(recorder: Recorder) -> None:
    outcome = Inner.run()
    outcome.execution.undo()
    drain()
    outcome.execution.refresh_from_db()
    with pytest.raises(ExecutionConflict, match="reverted"):
        verbs.undo(outcome.execution)
    again = verbs.retry(outcome.execution)
    drain()
    assert again.status == "completed"
    assert recorder.count("run inside") == 2


def test_a_child_that_had_ended_is_reverted_and_one_under_way_fails_with_its_root() -> None:
    row = Outer.enqueue(fail_at="last").execution
    drain()
    row.refresh_from_db()
    assert row.status == "failed"
    assert ends(row) == {"": {"failed"}, "child": {"reverted"}, "unit": {"reverted"}, "each": {"reverted"}}
    row = InProcess.run(fail_at="after_it").execution
    assert ends(row) == {"": {"failed"}, "child": {"failed"}}


@pytest.mark.parametrize("as_it_stands", [False, True])
def test_a_cancellation_that_came_too_late_does_not_make_an_undo_a_cancellation(as_it_stands: bool) -> None:
    row: Any = Inner.run().execution
    Execution.objects.filter(pk=row.pk).update(cancel_requested=True, cancel_as_it_stands=as_it_stands)
    row.refresh_from_db()
    verbs.undo(row)
    drain()
    testing.assert_reverted(row)
    row.refresh_from_db()
    assert views.detail(row).allowed == {"retry"}


def test_a_cancelled_one_stays_cancelled_whoever_takes_its_rollback_up() -> None:
    handle = Outer.enqueue()
    handle.execution.cancel(reason="not now")
    drain()
    testing.assert_cancelled(handle, reason="not now")
    assert ends(handle.execution)[""] == {"cancelled"}
