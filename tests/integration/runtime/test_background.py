"""Leaving the rest to a worker: `background_after`, `background_before`, and a start that is put off."""

from __future__ import annotations

import pytest

from reactor_coord import Input, step, testing, with_lock
from reactor_coord.models import Execution
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.recorder import Recorder
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


@with_lock("{key}", ttl=5)
class Behind(Named):
    """All after b runs in a worker, under the reactor's lock."""

    key = Input(str)

    a = step(Work)
    b = step(Work, after=a)
    c = step(Work, after=b)

    background_after = b


class Before(Named):
    """From b on it runs in a worker."""

    a = step(Work)
    b = step(Work, after=a)
    c = step(Work, after=b)

    background_before = b


class BadReturn(Named):
    """Its value cannot be had."""

    a = step(Work)

    returns = a["nothing of that name"]


def test_what_is_past_the_point_runs_in_a_worker_and_keeps_its_lock(
    recorder: Recorder, reactor_dispatches: Dispatches
) -> None:
    outcome = Behind.run(key="k")
    assert outcome.status == "ready"
    assert recorder.sequence() == ["run a", "run b"]
    testing.assert_locked("k", by=outcome.execution)
    assert reactor_dispatches.ids == [str(outcome.execution.id)]
    testing.drain()
    assert recorder.sequence() == ["run a", "run b", "run c"]
    assert Execution.objects.get(pk=outcome.execution.id).status == "completed"
    testing.assert_free("k")


def test_background_before_stops_short_of_the_step(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    Before.run()
    assert recorder.sequence() == ["run a"]
    testing.drain()
    assert recorder.sequence() == ["run a", "run b", "run c"]


def test_enqueued_it_is_in_a_worker_already(recorder: Recorder, reactor_dispatches: Dispatches) -> None:
    handle = Before.enqueue()
    assert len(reactor_dispatches) == 1
    testing.drain()
    assert handle.status == "completed"
    assert recorder.sequence() == ["run a", "run b", "run c"]


def test_a_long_countdown_is_left_to_the_sweep_and_a_short_one_to_the_broker(reactor_dispatches: Dispatches) -> None:
    Before.options(countdown=1.5).enqueue()
    assert [dispatch.countdown for dispatch in reactor_dispatches] == [1.5]
    reactor_dispatches.clear()
    handle = Before.options(countdown=3600).enqueue()
    assert reactor_dispatches == []
    row = handle.execution
    assert row.resume_at is not None
    assert 3590 < (row.resume_at - row.created_at).total_seconds() < 3610


def test_b117_a_value_that_cannot_be_had_fails_the_reactor_and_undoes_its_steps(recorder: Recorder) -> None:
    outcome = BadReturn.run()
    assert outcome.failed
    assert outcome.failure is not None
    assert (outcome.failure.step, outcome.failure.error_type) == ("", "LookupError")
    assert recorder.sequence() == ["run a", "undo a"]
