"""Looks, the net under the wakes: their ceiling, and what they must not cost. The net is fine here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from reactor_coord import testing
from reactor_coord.testing import dispatches
from reactor_coord.testing.recorder import Recorder
from reactor_coord.testing.worker import LiveWorker
from tests.live.reactors import Outer, Retried, Single
from tests.live.support import events, step_run, until, wait_parked
from tests.support.patience import LATE, PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

WORKER_SETTINGS = {
    "SNOOZE_BASE_DELAY": 0.1,
    "SNOOZE_MAX_DELAY": 0.1,
    "SNOOZE_JITTER": 0,
    "SNOOZE_MAX_ATTEMPTS": 30,
    "SWEEP_INTERVAL": 0.2,
    "LEASE_TTL": 2,
    "HANDOFF_GRACE": 0.5,
}


def test_park_04_contention_spends_no_retry(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with testing.hold("k") as held:
        handle = Retried.enqueue(key="k", fail_at="charge")
        until(lambda: _parks(handle) >= 3, "three parks")
        assert step_run(handle, "charge").attempts == 0
        held.release()
        outcome = handle.wait(PATIENCE)
    assert outcome.failed
    assert recorder.sequence() == ["run before", "run charge", "run charge", "comp charge", "undo before"]
    assert step_run(outcome, "charge").attempts == 2


def test_b113_parks_at_any_depth_are_no_attempts(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with testing.hold("k") as held:
        handle = Outer.enqueue(outer_key="o", middle_key="m", key="k")
        until(lambda: _parks(handle) >= 20, "twenty parks", 20)
        held.release()
        outcome = handle.wait(PATIENCE)
    assert outcome.succeeded
    for step in ("middle", "payment", "charge"):
        assert step_run(outcome, step).attempts == 1
    assert step_run(outcome, "charge").contention_attempts >= 20
    for key in ("o", "m"):
        assert len(events(outcome, "acquired", key=key)) == 1


def test_park_16_and_b038_a_lost_wake_is_made_good_by_a_look(
    shared_worker: LiveWorker, reactor_settings: Callable[..., None], recorder: Recorder
) -> None:
    with testing.hold("k") as held:
        handle = Single.enqueue(key="k")
        wait_parked(handle)
        reactor_settings(DISPATCHER=dispatches.PATH)  # what this process sends is lost
        recorder.mark("released")
        held.release()
        assert handle.wait(PATIENCE).succeeded
    [released] = recorder.wait_for("released")
    [body] = recorder.intervals("run charge")
    assert body.entered - released.entered < 0.1 + 0.2 + LATE  # one look and one sweep


def _parks(handle: object) -> int:
    return len(events(handle, "parked"))  # type: ignore[arg-type]
