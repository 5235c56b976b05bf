"""What rolls back when it is stopped rolls on when it is taken up again; what was decided about it holds for what it is."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import Retry, compose, step, testing
from reactor_coord.declare import registry
from reactor_coord.errors import ExecutionConflict, UnknownReactor
from reactor_coord.models import Execution
from reactor_coord.operations import verbs
from reactor_coord.runtime import deliver
from reactor_coord.storage import store
from reactor_coord.testing import drain
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import killed
from tests.live.reactors import Named, Payment, Work

pytestmark = pytest.mark.django_db(transaction=True)


class Three(Named):
    """Three steps; the last may fail."""

    a = step(Work)
    b = step(Work, after=a)
    c = step(Work, after=b)


class Again(Named):
    """A composed child that is undone alone and run afresh when it fails."""

    child = compose(Three, retry=Retry(max_attempts=2, backoff="fixed", base_delay=0.01))


def test_aborted_in_its_rollback_it_rolls_on_when_resumed(reactor_dispatches: Any, recorder: Recorder) -> None:
    row = killed(lambda: Three.run(fail_at="c"), "rollback.before_undo", 1)
    verbs.resume(row)
    drain()
    row.refresh_from_db()
    assert recorder.sequence() == ["run a", "run b", "run c", "comp c", "undo b", "undo a"]
    assert row.status == "failed"
    assert (row.failure or {})["message"] == "c was told to fail"


def test_aborted_while_a_child_is_undone_alone_it_rolls_that_child_on(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    row = killed(lambda: Again.run(fail_at="c"), "rollback.before_undo", 1)
    verbs.resume(row)
    drain(1)
    row.refresh_from_db()
    once = ["run a", "run b", "run c", "comp c", "undo b", "undo a"]
    assert recorder.sequence() == [*once, *once]
    assert row.status == "failed"


def test_without_its_definition_in_a_rollback_it_rolls_on_once_that_is_back(
    reactor_dispatches: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = Three.enqueue()
    drain()
    verbs.undo(handle.execution)
    with monkeypatch.context() as without:
        without.setattr(registry, "lookup", _unknown)
        drain()
    assert handle.status == "needs_definition"
    verbs.resume(handle.execution)
    drain()
    assert recorder.sequence() == ["run a", "run b", "run c", "undo c", "undo b", "undo a"]
    assert handle.status == "reverted"


def test_u48_a_cancel_that_this_code_cannot_carry_out_is_refused_and_another_ends_it(
    reactor_dispatches: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = Payment.enqueue(key="k")
    with testing.hold("k"):
        drain()
        assert handle.status == "parked"
    with monkeypatch.context() as without:
        without.setattr(registry, "lookup", _unknown)
        drain()
        assert handle.status == "needs_definition"
        with pytest.raises(
            ExecutionConflict, match=r"Deploy that and resume it, or end it .* cancel\(rollback=False\)"
        ):
            handle.cancel("no longer wanted")
        assert handle.status == "needs_definition" and not handle.execution.cancel_requested
        verbs.cancel(handle.execution, rollback=False)
        drain()
        assert handle.status == "cancelled"
    assert recorder.sequence() == ["run audit"]
    testing.assert_free("k")


def test_u48_what_has_not_begun_and_what_this_code_has_are_cancelled_as_ever(
    reactor_dispatches: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh, begun = Payment.enqueue(key="k"), Payment.enqueue(key="k")
    with testing.hold("k"), monkeypatch.context() as without:
        deliver(begun.id, "a worker")
        without.setattr(registry, "lookup", _unknown)
        for handle in (fresh, begun):
            deliver(handle.id, "a worker")
            assert handle.status == "needs_definition"
        fresh.cancel()
        assert fresh.status == "cancelled"
    begun.cancel()
    drain()
    assert begun.status == "cancelled"
    assert recorder.sequence() == ["run audit", "undo audit"]


def _unknown(name: str) -> Any:
    raise UnknownReactor(f"there is no {name} here", name=name)


def test_a_cancellation_does_not_miss_what_a_worker_does_while_it_is_decided(
    reactor_dispatches: Any, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looks whether anything has begun; a worker does a step and parks; then it writes."""
    handle = Payment.enqueue(key="k")
    look = store.step_runs

    def slowly(ids: Any) -> Any:
        found = look(ids)
        monkeypatch.setattr(store, "step_runs", look)
        deliver(handle.id, "a worker")
        return found

    with testing.hold("k"):
        monkeypatch.setattr(store, "step_runs", slowly)
        verbs.cancel(handle.execution)
    drain()
    assert handle.status == "cancelled"
    assert recorder.sequence() == ["run audit", "undo audit"]


@pytest.mark.parametrize("when", ["while it waits", "while it runs"])
def test_deaths_on_the_way_forward_are_not_laid_to_an_undo(
    reactor_dispatches: Any, recorder: Recorder, when: str
) -> None:
    """A step that may have cost as many workers as are allowed is cancelled: it is cleaned up, and what was done before it."""
    handle = Payment.enqueue(key="k")
    with testing.hold("k"):
        drain()
    Execution.objects.update(workers_lost=3, cancel_requested=when == "while it runs")
    if when == "while it waits":
        verbs.cancel(handle.execution)
    deliver(handle.id, "a worker")
    drain()
    assert handle.status == "cancelled", handle.execution.failure
    assert recorder.sequence() == ["run audit", "comp charge", "undo audit"]
