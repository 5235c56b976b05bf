"""What was parked, woken and taken up runs exactly once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from reactor_coord import testing
from reactor_coord.testing.recorder import Recorder
from tests.live.reactors import Payment
from tests.live.support import events, purge_with_unacked, wait_parked
from tests.support.patience import patience

pytestmark = [pytest.mark.live, pytest.mark.django_db(transaction=True)]


def test_park_02_each_body_runs_exactly_once(live_worker: Any, recorder: Recorder) -> None:
    live_worker(concurrency=2)
    names = [str(number) for number in range(6)]
    handles = [Payment.enqueue(name=name, key="k", seconds=0.05) for name in names]
    assert all(handle.wait(patience(20)).succeeded for handle in handles)
    for step in ("audit", "charge", "notify"):
        ran = Counter(body.notes["name"] for body in recorder.intervals(f"run {step}"))
        assert ran == Counter(names)


def test_park_16_parked_by_a_lock_with_the_broker_purged_it_still_completes(
    live_worker: Any, recorder: Recorder
) -> None:
    """Its wake is in the queue when that is purged, and no worker runs meanwhile."""
    settings = {"REACTOR_COORD": {"SNOOZE_BASE_DELAY": 1, "SNOOZE_JITTER": 0, "SWEEP_INTERVAL": 0.5}}
    worker = live_worker(settings=settings)
    with testing.hold("k") as held:
        handle = Payment.enqueue(key="k")
        wait_parked(handle)
        worker.kill()
        held.release()
        purge_with_unacked()
    assert handle.status == "parked"
    live_worker(settings=settings)
    assert handle.wait(patience(20)).succeeded
    assert recorder.sequence() == ["run audit", "run charge", "run notify"]
    assert not events(handle, "worker_lost")
