"""Contention parks, it does not fail: the park table, against a real worker."""

from __future__ import annotations

import pytest

from reactor_coord.models import Execution, TraceEvent
from reactor_coord.testing.recorder import Recorder
from tests.live.reactors import Single

pytestmark = [pytest.mark.live, pytest.mark.django_db(transaction=True)]


def kinds(execution: Execution) -> list[str]:
    return list(TraceEvent.objects.filter(root_id=execution.root_id).order_by("id").values_list("kind", flat=True))


def test_park_01_and_02_the_loser_parks_and_both_complete_once(live_worker, recorder: Recorder) -> None:
    live_worker(concurrency=2)
    handles = [Single.enqueue(name=name, key="k", seconds=1.0) for name in "xy"]
    outcomes = [handle.wait(20) for handle in handles]
    assert all(outcome.succeeded for outcome in outcomes)
    told = [kinds(outcome.execution) for outcome in outcomes]
    assert sum("parked" in each for each in told) == 1
    assert recorder.sequence() == ["run charge", "run charge"]
    assert not recorder.overlaps("run charge")
    for row in TraceEvent.objects.order_by("id"):
        print(row.at.time(), row.execution_id, row.kind, row.step, row.key, row.data)
