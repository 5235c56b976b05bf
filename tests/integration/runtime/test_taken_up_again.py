"""What rolls back when it is stopped rolls on when it is taken up again; what was decided about it holds for what it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from reactor_coord import Retry, compose, step, testing
from reactor_coord.declare import registry
from reactor_coord.errors import UnknownReactor
from reactor_coord.models import Execution
from reactor_coord.operations import verbs
from reactor_coord.runtime import deliver
from reactor_coord.storage import store
from reactor_coord.testing import drain, faults
from reactor_coord.testing.recorder import Recorder
from reactor_coord.workers.sweep import sweep_once
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


def _killed(run: Callable[[], object], point: str, skip: int) -> Execution:
    """Run it in a process that is killed at that point, and let the sweep find it; its row."""
    connections.close_all()
    pid = os.fork()
    if not pid:
        faults.install({point: {"action": "kill", "skip": skip}})
        run()
        os._exit(0)
    os.waitpid(pid, 0)
    Execution.objects.exclude(lease_token="").update(lease_expires_at=timezone.now() - timedelta(seconds=5))
    sweep_once()
    row: Execution = Execution.objects.get(parent=None)
    assert row.status == "aborted"
    return row


def test_aborted_in_its_rollback_it_rolls_on_when_resumed(reactor_dispatches: Any, recorder: Recorder) -> None:
    row = _killed(lambda: Three.run(fail_at="c"), "rollback.before_undo", 1)
    verbs.resume(row)
    drain()
    row.refresh_from_db()
    assert recorder.sequence() == ["run a", "run b", "run c", "comp c", "undo b", "undo a"]
    assert row.status == "failed"
    assert (row.failure or {})["message"] == "c was told to fail"


def test_aborted_while_a_child_is_undone_alone_it_rolls_that_child_on(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    row = _killed(lambda: Again.run(fail_at="c"), "rollback.before_undo", 1)
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
    assert handle.status == "cancelled"


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
    """A step that has cost as many workers as are allowed is cancelled: what was done before it is undone at the first try."""
    handle = Payment.enqueue(key="k")
    with testing.hold("k"):
        drain()
        Execution.objects.update(workers_lost=3, cancel_requested=when == "while it runs")
        if when == "while it waits":
            verbs.cancel(handle.execution)
        deliver(handle.id, "a worker")
    drain()
    assert handle.status == "cancelled", handle.execution.failure
    assert recorder.sequence() == ["run audit", "undo audit"]
