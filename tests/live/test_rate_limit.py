"""Rate limits in a worker: parked until a slot of its own, charged once for all its parks."""

from __future__ import annotations

import math
from collections import Counter
from datetime import datetime
from typing import Any

import pytest

from reactor_coord import testing
from reactor_coord.coordination import inspect, rate_limits
from reactor_coord.coordination.process import primitives
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.testing.recorder import Recorder
from tests.live.limited import Admitted, AdmittedOuter, Calls, Few, Slow
from tests.live.support import purge_with_unacked
from tests.support.patience import PATIENCE, patience

pytestmark = [pytest.mark.live, pytest.mark.django_db(transaction=True)]


def charged(key: str) -> int:
    return sum(count for _, count in rate_limits().view(key).windows)


def _charged_at(key: str) -> list[int]:
    """When each start of the last minute was charged, in milliseconds of the server's clock."""
    found = primitives()
    name = f"{found.names.tag('rate_limit', key)}:starts"
    return [
        int(at) for member, at in found.connection.client.zrange(name, 0, -1, withscores=True) if member[:2] == b"s:"
    ]


def _is_free(key: str) -> bool:
    return inspect.look(key).hold is None


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
    outcome = handle.wait(PATIENCE)
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
        for level in ("outer", "middle", "inner"):
            testing.assert_locked(f"k:{level}", by=handle.execution)
    outcome = handle.wait(PATIENCE)
    assert outcome.succeeded
    assert [charged(f"admit:k:{level}") for level in ("outer", "middle", "inner")] == [1, 1, 1]
    assert recorder.sequence() == ["run before", "run prepare", "run charge"]
    acquired = TraceEvent.objects.filter(root_id=handle.id, kind="acquired", primitive="lock").values_list(
        "key", flat=True
    )
    assert sorted(acquired) == ["k", "k:inner", "k:middle", "k:outer"]
    for level in ("outer", "middle", "inner"):
        recorder.wait_until(lambda level=level: _is_free(f"k:{level}"), f"k:{level} given back, behind the end")  # type: ignore[misc]


def test_b041_an_execution_whose_only_message_is_lost_is_resumed_by_the_sweep(
    live_worker: Any, recorder: Recorder
) -> None:
    settings = {"REACTOR_COORD": {"SWEEP_INTERVAL": 0.5, "LEASE_TTL": 2}}
    worker = live_worker(settings=settings)
    handles = [Slow.enqueue(key="k") for _ in range(3)]  # two may be so far apart that each finds a window
    recorder.wait_until(lambda: {handle.status for handle in handles} == {"completed", "parked"}, "one to park")
    worker.kill()
    purge_with_unacked()
    live_worker(settings=settings)
    assert all(handle.wait(patience(15)).succeeded for handle in handles)
    assert recorder.count("call") == 3


def test_family_11_a_backlog_drains_at_the_limit_and_never_above_it(live_worker: Any, recorder: Recorder) -> None:
    live_worker(settings={"REACTOR_COORD": {"SNOOZE_MAX_ATTEMPTS": 5, "SWEEP_INTERVAL": 1}})
    began = recorder.now()
    handles = [Calls.enqueue(key="k") for _ in range(300)]
    most = 0

    def are_over() -> bool:
        nonlocal most
        most = max([most, *(count for _, count in rate_limits().view("api:k").windows)])
        return Execution.objects.filter(status="completed").count() == len(handles)

    recorder.wait_until(are_over, "all of them", patience(60))
    assert 0 < most <= 20, "of a window, as Redis counts it"
    per_second = Counter(at_ms // 1000 for at_ms in _charged_at("api:k"))
    assert max(per_second.values()) <= 20, per_second
    starts = sorted(entry.at for entry in recorder.entries())
    assert len(starts) == 300
    for number, at in enumerate(starts):  # windows are whole seconds: the first of them had begun already
        assert at >= math.floor(began) + number // 20
    parks = TraceEvent.objects.filter(kind="parked").count()
    assert parks <= 2 * len(handles), "about one each; who comes late for its slot on a busy machine parks again"


def test_family_03_who_finds_its_window_full_parks_until_it_turns(live_worker: Any, recorder: Recorder) -> None:
    live_worker(settings={"REACTOR_COORD": {"SWEEP_INTERVAL": 1}})
    handles = [Few.enqueue(name=str(number), key="k") for number in range(7)]
    assert all(handle.wait(patience(20)).succeeded for handle in handles)
    entered = {body.notes["execution"]: body.entered for body in recorder.intervals("run call")}
    assert len(entered) == recorder.count("run before") == len(handles)
    parks = TraceEvent.objects.filter(kind="parked")
    assert parks.exists(), "seven into windows of two"
    for park in parks:
        turn = datetime.fromisoformat(park.data["until"]).timestamp()
        assert (turn + 0.1) % 2 < 0.2, "until the turn of a window, not until some look"
        assert entered[str(park.root_id)] > turn - 0.1
