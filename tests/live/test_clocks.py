"""B063: one worker's clock is 90 s ahead, the other's 90 s behind, one is set back in mid-run. Nothing shows of it.

On PostgreSQL only: who shares a SQLite file shares a machine and its clock.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from django.db import connection

from reactor_coord.models import Execution
from reactor_coord.testing.plugin import StartWorker
from reactor_coord.testing.recorder import Interval, Recorder
from tests.live.limited import Few
from tests.live.reactors import SlowRetry
from tests.live.support import wait_all
from tests.live.timed import BriefSlots, Minutely
from tests.support.clock import Clock
from tests.support.patience import LATE, PATIENCE

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.slow,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="the processes of one SQLite file have one clock"),
]

SETTINGS = {"REACTOR_COORD": {"LEASE_TTL": 1.5, "SWEEP_INTERVAL": 0.5}}
WINDOW_SECONDS = 2


@pytest.fixture
def ahead(live_worker: StartWorker, tmp_path: Path) -> Clock:
    """The clock of the worker that is ahead; the other one is behind."""
    ahead = Clock(tmp_path / "ahead", 90)
    for clock in (ahead, Clock(tmp_path / "behind", -90)):
        live_worker(concurrency=2, settings=SETTINGS, env=clock.env)
    return ahead


def test_b063_rate_limits_and_retries_come_in_their_time(ahead: Clock, recorder: Recorder) -> None:
    limited = [Few.enqueue(name=f"l{number}", key="k") for number in range(12)]
    retried = [SlowRetry.enqueue(name=f"r{number}", fail_at="charge", fails=1) for number in range(6)]
    recorder.wait_for("run call", 4)
    ahead.set(-30)
    assert all(outcome.succeeded for outcome in wait_all([*limited, *retried], 40))
    calls = recorder.intervals("run call")
    per_window = Counter(call.entered // WINDOW_SECONDS for call in calls)
    assert max(per_window.values()) == 2
    assert len(calls) == 12
    assert calls[-1].entered - calls[0].entered < 6 * WINDOW_SECONDS + LATE  # and not by what the clocks are off
    for number in range(6):
        first, second = (body for body in recorder.intervals("run charge") if body.notes["name"] == f"r{number}")
        assert 1.9 < second.entered - first.left < 2 + LATE
    assert _in_both_workers([*calls, *recorder.intervals("run before")])


def test_b063_leases_slots_and_periods_are_the_servers(ahead: Clock, recorder: Recorder) -> None:
    slots = [BriefSlots.enqueue(name=f"s{number}", key="k", seconds=1.8) for number in range(8)]
    recorder.wait_for("run charge", 3)
    for number in range(12):  # one after the other: a bucket is marked when its run has succeeded
        if number == 6:
            ahead.set(-30)
        assert Minutely.enqueue(name=f"p{number}", key="k").wait(PATIENCE).succeeded
    assert all(outcome.succeeded for outcome in wait_all(slots, 40))
    bodies = sorted(recorder.intervals("run charge"), key=lambda body: body.entered)
    assert len(bodies) == 8, "a lease was taken for over"
    assert recorder.max_concurrency("run charge") == 2
    gaps = [max(0.0, later.entered - earlier.left) for earlier, later in zip(bodies, bodies[2:], strict=False)]
    assert max(gaps) < LATE
    per_minute = Counter(body.entered // 60 for body in recorder.intervals("run report"))
    assert set(per_minute.values()) == {1}
    assert not Execution.objects.exclude(workers_lost=0).exists()
    assert all(
        row.started_at <= row.finished_at for row in Execution.objects.all() if row.started_at and row.finished_at
    )
    assert _in_both_workers(bodies)


def _in_both_workers(bodies: list[Interval]) -> bool:
    return len({body.pid for body in bodies}) > 2  # of two processes each
