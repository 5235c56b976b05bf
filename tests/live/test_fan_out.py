"""Fan-outs and units by real workers: each its own owner, parked in its own job, undone with its parent."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import testing
from reactor_coord.models import Execution, StepRun
from reactor_coord.testing.recorder import Recorder
from tests.live.fanned import LockedMap, LockedUnit, WideMap
from tests.support.patience import patience

pytestmark = [pytest.mark.live, pytest.mark.django_db(transaction=True)]


def test_park_08_every_element_of_a_fan_out_locked_on_one_key_completes(live_worker: Any, recorder: Recorder) -> None:
    live_worker(concurrency=3)
    handle = LockedMap.enqueue(key="k", items=[str(number) for number in range(12)], seconds=0.02)
    assert handle.wait(patience(20)).succeeded
    assert recorder.count("run mapped") == 12
    assert recorder.max_concurrency("run mapped") == 1
    assert recorder.count("run behind") == 1


def test_reenter_07_a_unit_holds_its_key_under_its_own_name(live_worker: Any, recorder: Recorder) -> None:
    live_worker(concurrency=3)
    handles = [LockedUnit.enqueue(name=name, key="k", seconds=0.6) for name in "xy"]
    recorder.wait_for("run u")
    holder = _holder("k")
    assert holder is not None
    assert holder not in {str(handle.id) for handle in handles}
    assert all(handle.wait(patience(20)).succeeded for handle in handles)
    assert recorder.max_concurrency("run u") == 1
    assert recorder.overlaps("run meanwhile", "run u") or recorder.count("run meanwhile") == 2


def _holder(key: str) -> str | None:
    from reactor_coord.coordination import inspect

    return next((view.owner for view in inspect.holds() if view.key == key), None)


def test_reenter_12_a_contended_unit_parks_in_its_own_job(live_worker: Any, recorder: Recorder) -> None:
    live_worker(concurrency=2)
    with testing.hold("k"):
        handle = LockedUnit.enqueue(key="k")
        unit = recorder.wait_until(
            lambda: Execution.objects.filter(parent_id=handle.id, status="parked").first(), "the unit's park"
        )
        assert unit is not None
        assert (unit.waiting_on or {})["key"] == "k"
        recorder.wait_until(lambda: recorder.count("run meanwhile") == 1, "the rest to go on")
        recorder.wait_until(lambda: handle.status == "parked", "the parent to wait for the value")
        parent = handle.execution
        assert parent.park_kind == "result"
        assert (parent.waiting_key, (parent.waiting_on or {}).get("key", "")) == ("", ""), "that is the unit's wait"
    outcome = handle.wait(patience(20))
    assert outcome.succeeded
    assert recorder.sequence()[-1] == "run last"
    assert set(StepRun.objects.filter(execution_id=handle.id).values_list("status", flat=True)) == {"succeeded"}


def test_seq_06_a_fanned_out_failure_undoes_the_same_set(live_worker: Any, recorder: Recorder) -> None:
    live_worker(concurrency=3)
    items = [str(number) for number in range(9)]
    handle = WideMap.enqueue(items=items, seconds=0.01, fail_at="behind")
    assert handle.wait(patience(20)).failed
    assert sorted(body.notes["name"] for body in recorder.intervals("undo mapped")) == items
    assert recorder.sequence()[-10] == "comp behind"


def test_u21_the_elements_of_a_map_are_undone_in_workers_as_many_at_once_as_it_declares(
    live_worker: Any, recorder: Recorder
) -> None:
    live_worker(concurrency=6)
    items = [str(number) for number in range(16)]
    handle = WideMap.enqueue(items=items, fail_at="behind", undo_seconds=0.3)
    recorder.wait_for("undo mapped", 4)
    row = recorder.wait_until(lambda: _without_a_lease(handle.id), "the rollback to have given its lease up")
    assert row is not None and row.status == "rolling_back"
    assert handle.wait(patience(30)).failed
    assert sorted(body.notes["name"] for body in recorder.intervals("undo mapped")) == sorted(items)
    assert 2 <= recorder.max_concurrency("undo mapped") <= 4
    assert set(Execution.objects.filter(parent_id=handle.id).values_list("status", flat=True)) == {"reverted"}


def test_u21_an_undo_whose_worker_dies_is_done_again_and_the_rollback_ends(
    live_worker: Any, recorder: Recorder
) -> None:
    worker = live_worker(concurrency=3, settings={"REACTOR_COORD": {"LEASE_TTL": 1.5, "SWEEP_INTERVAL": 0.5}})
    items = [str(number) for number in range(6)]
    handle = WideMap.enqueue(items=items, fail_at="behind", undo_seconds=0.4)
    body = recorder.wait_for("undo mapped", 2)[0]
    worker.kill_child(body.pid)
    outcome = handle.wait(patience(40))
    assert outcome.failed
    assert outcome.failure is not None and outcome.failure.rollback_failures == ()
    assert {each.notes["name"] for each in recorder.intervals("undo mapped")} == set(items)


def _without_a_lease(execution_id: Any) -> Execution | None:
    return Execution.objects.filter(pk=execution_id, lease_token="").first()


def test_a_fan_out_survives_its_workers(live_worker: Any, recorder: Recorder) -> None:
    worker = live_worker(concurrency=2, settings={"REACTOR_COORD": {"LEASE_TTL": 1.5, "SWEEP_INTERVAL": 0.5}})
    items = [str(number) for number in range(8)]
    handle = WideMap.enqueue(items=items, seconds=0.4)
    body = recorder.wait_for("run mapped", 2)[0]
    worker.kill_child(body.pid)
    assert handle.wait(patience(30)).succeeded
    assert {each.notes["name"] for each in recorder.intervals("run mapped")} == set(items)
    assert recorder.count("run mapped") <= len(items) + 1
