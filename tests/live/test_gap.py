"""The moment between a refusal and its park, in which a release may fall."""

from __future__ import annotations

import pytest

from reactor_coord import testing
from reactor_coord.testing.recorder import Recorder
from reactor_coord.testing.worker import LiveWorker
from tests.live import remote
from tests.live.reactors import Single
from tests.live.support import step_run, until
from tests.support.patience import LATE, PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

REMOTE_FAULTS = True
WORKER_SETTINGS = {"SNOOZE_BASE_DELAY": 60, "SNOOZE_MAX_DELAY": 60, "SNOOZE_JITTER": 0, "SWEEP_INTERVAL": 1}


@pytest.mark.parametrize("point", ["refused.after", "park.before_commit"])
def test_park_12_a_release_in_the_gap_is_not_lost(shared_worker: LiveWorker, recorder: Recorder, point: str) -> None:
    remote.arm(point, "gate")
    with testing.hold("k") as held:
        handle = Single.enqueue(key="k")
        remote.wait_at_gate(point)
        held.release()
        until(lambda: handle.execution.wake_requested, "the wake noted on the row")
        recorder.mark("goes on")
        remote.open_gate(point)
        outcome = handle.wait(PATIENCE)
    assert outcome.succeeded
    [body] = recorder.intervals("run charge")
    assert body.entered - recorder.wait_for("goes on")[0].entered < LATE
    assert step_run(outcome, "charge").contention_attempts == 1


@pytest.mark.parametrize("point", ["refused.after", "park.before_commit"])
def test_a_cancellation_in_the_gap_is_not_left_waiting(
    shared_worker: LiveWorker, recorder: Recorder, point: str
) -> None:
    """It is read at the park as at any other checkpoint, not when the key comes."""
    remote.arm(point, "gate")
    with testing.hold("k"):
        handle = Single.enqueue(key="k")
        remote.wait_at_gate(point)
        handle.cancel("changed my mind")
        remote.open_gate(point)
        assert handle.wait(PATIENCE).status == "cancelled"
    assert recorder.sequence() == []


def test_seq_16_cancelled_while_parked(shared_worker: LiveWorker, recorder: Recorder) -> None:
    from tests.live.reactors import Payment

    with testing.hold("k"):
        handle = Payment.enqueue(key="k")
        until(lambda: handle.status == "parked", "parked")
        handle.cancel()
        assert handle.wait(PATIENCE).status == "cancelled"
    assert recorder.sequence() == ["run audit", "undo audit"]
