"""The ceiling: a line that does not move is given up on, by name."""

from __future__ import annotations

import pytest

from reactor_coord import testing
from reactor_coord.testing.recorder import Recorder
from reactor_coord.testing.worker import LiveWorker
from tests.live.reactors import Payment
from tests.live.support import events, waiters
from tests.support.patience import PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

WORKER_SETTINGS = {
    "SNOOZE_BASE_DELAY": 0.1,
    "SNOOZE_MAX_DELAY": 0.1,
    "SNOOZE_JITTER": 0,
    "SNOOZE_MAX_ATTEMPTS": 2,
    "SWEEP_INTERVAL": 0.2,
}


def test_park_03_a_key_held_all_along_fails_at_the_ceiling(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with testing.hold("k") as held:
        outcome = Payment.enqueue(key="k").wait(PATIENCE)
        assert waiters("k") == []
    assert outcome.failed
    assert outcome.failure is not None
    assert outcome.failure.error_type == "ContentionCeilingReached"
    for word in ("contention", "'k'", held.owner, " 2 parks"):
        assert word in outcome.failure.message
    assert len(events(outcome, "parked")) == 2
    assert recorder.sequence() == ["run audit", "undo audit"]
