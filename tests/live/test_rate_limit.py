"""Rate limits in a worker: parked until a slot of its own, charged once for all its parks."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from reactor_coord import testing
from reactor_coord.coordination import rate_limits
from reactor_coord.models import TraceEvent
from reactor_coord.testing.recorder import Recorder
from tests.live.limited import Admitted, AdmittedOuter, Calls, Few, Slow

pytestmark = [pytest.mark.live, pytest.mark.django_db(transaction=True)]


def charged(key: str) -> int:
    return sum(count for _, count in rate_limits().view(key).windows)


def _purge_the_broker() -> None:
    from celery import current_app

    with current_app.connection_for_write() as connection:
        channel: Any = connection.default_channel
        channel.queue_purge(current_app.conf.task_default_queue)
        channel.client.delete("unacked", "unacked_index")


def kinds(outcome: Any) -> list[str]:
    rows = TraceEvent.objects.filter(root_id=outcome.execution.root_id).order_by("id")
    return list(rows.values_list("kind", flat=True))


def test_park_07_a_reactors_rate_limit_is_charged_once_whatever_its_first_step_waits(
    live_worker: Any, recorder: Recorder
) -> None:
    live_worker()
    with testing.hold("k"):
        handle = Admitted.enqueue(key="k")
        recorder.wait_until(lambda: handle.status == "parked", "the park")
        assert charged("admit:k") == 1
    outcome = handle.wait(10)
    assert outcome.succeeded
    assert charged("admit:k") == 1
    assert "parked" in kinds(outcome)


def test_park_09_every_level_keeps_its_hold_and_is_charged_once_over_a_park_two_levels_down(
    live_worker: Any, recorder: Recorder
) -> None:
    live_worker()
    with testing.hold("k"):
        handle = AdmittedOuter.enqueue(key="k")
        recorder.wait_until(lambda: handle.status == "parked", "the park")
        testing.assert_locked("k:outer", by=handle.execution)
        testing.assert_locked("k:inner", by=handle.execution)
    outcome = handle.wait(10)
    assert outcome.succeeded
    assert charged("admit:k:outer") == 1
    assert charged("admit:k:inner") == 1
    assert recorder.sequence() == ["run before", "run charge"]
    acquired = TraceEvent.objects.filter(root_id=handle.id, kind="acquired", primitive="lock").values_list(
        "key", flat=True
    )
    assert sorted(acquired) == ["k", "k:inner", "k:outer"]
    testing.assert_free("k:outer")
    testing.assert_free("k:inner")


def test_b041_an_execution_whose_only_message_is_lost_is_resumed_by_the_sweep(
    live_worker: Any, recorder: Recorder
) -> None:
    settings = {"REACTOR_COORD": {"SWEEP_INTERVAL": 0.5, "LEASE_TTL": 2}}
    worker = live_worker(settings=settings)
    handles = [Slow.enqueue(key="k") for _ in range(2)]
    recorder.wait_until(lambda: sorted(handle.status for handle in handles) == ["completed", "parked"], "one to park")
    worker.kill()
    _purge_the_broker()
    live_worker(settings=settings)
    assert all(handle.wait(15).succeeded for handle in handles)
    assert recorder.count("call") == 2


def test_family_11_a_backlog_drains_at_the_limit_and_never_above_it(live_worker: Any, recorder: Recorder) -> None:
    live_worker(settings={"REACTOR_COORD": {"SNOOZE_MAX_ATTEMPTS": 5, "SWEEP_INTERVAL": 1}})
    began = recorder.now()
    handles = [Calls.enqueue(key="k") for _ in range(300)]
    for handle in handles:
        assert handle.wait(40).succeeded
    starts = sorted(entry.at for entry in recorder.entries())
    assert len(starts) == 300
    charges = Counter(
        int(at.timestamp())
        for at in TraceEvent.objects.filter(kind="acquired", primitive="rate_limit").values_list("at", flat=True)
        if at.microsecond >= 10_000  # told a moment after it was charged: at a boundary it may be the window before
    )
    taken = starts[-1] - math.floor(began)  # windows are whole seconds: the first of them had begun already
    assert 14 <= taken <= 20, taken
    parks = TraceEvent.objects.filter(kind="parked").count()
    assert parks <= 1.25 * len(handles), (
        parks
    )  # about one each; who comes late for its slot on a busy machine parks again
    assert max(charges.values()) <= 20, charges


def test_family_03_the_third_parks_until_the_window_turns(live_worker: Any, recorder: Recorder) -> None:
    live_worker(settings={"REACTOR_COORD": {"SWEEP_INTERVAL": 1}})
    recorder.wait_until(lambda: recorder.now() % 2 < 0.3, "the beginning of a window")
    handles = [Few.enqueue(name=str(number), key="k") for number in range(3)]
    outcomes = [handle.wait(10) for handle in handles]
    assert all(outcome.succeeded for outcome in outcomes)
    windows = Counter(int(body.entered // 2) for body in recorder.intervals("run call"))
    assert sorted(windows.values()) == [1, 2]
    (parked,) = [outcome for outcome in outcomes if "parked" in kinds(outcome)]
    last = recorder.intervals("run call")[-1]
    assert last.notes["execution"] == str(parked.execution.id)
    assert last.entered % 2 < 0.5, "at the turn of the window, not at some look after it"
    assert recorder.count("run before") == 3
