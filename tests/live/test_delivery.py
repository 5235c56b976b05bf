"""Messages delivered again: every one three times here, and copies in the middle of a body. Each body runs once all the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from reactor_coord import testing
from reactor_coord.runtime.dispatch import send
from reactor_coord.testing.recorder import Recorder
from reactor_coord.testing.worker import LiveWorker
from tests.live.dispatchers import COPIES, messages
from tests.live.reactors import Chain, Guarded, Single, SlowRetry
from tests.live.support import events, step_run, until, wait_all, wait_parked
from tests.support.patience import LATE, PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

THRICE = "tests.live.dispatchers.Thrice"
WORKER_SETTINGS = {
    "DISPATCHER": THRICE,
    "SNOOZE_BASE_DELAY": 60,
    "SNOOZE_MAX_DELAY": 60,
    "SNOOZE_JITTER": 0,
    "SNOOZE_MAX_ATTEMPTS": 3,
    "SWEEP_INTERVAL": 0.5,
    "LEASE_TTL": 1,
}


def test_park_17_every_message_three_times(
    shared_worker: LiveWorker, reactor_settings: Callable[..., None], recorder: Recorder
) -> None:
    reactor_settings(DISPATCHER=THRICE)
    with testing.hold("k") as held:
        handles = [Single.enqueue(name=f"{number}", key="k", seconds=0.02) for number in range(10)]
        handles += [Guarded.enqueue(name=f"{number}", outer_key="o", key="k") for number in range(10, 13)]
        for handle in handles:
            wait_parked(handle)
        held.release()
        outcomes = wait_all(handles)
    assert all(outcome.succeeded for outcome in outcomes)
    bodies = Counter(str(body.notes["name"]) for body in recorder.intervals("run charge"))
    assert bodies == {f"{number}": 1 for number in range(13)}
    assert recorder.count("run before") == recorder.count("run behind") == 3
    assert recorder.max_concurrency("run charge") == 1


def test_u85_under_a_broker_that_delivers_thrice_no_message_breeds_another(
    shared_worker: LiveWorker, reactor_settings: Callable[..., None]
) -> None:
    """A start, a wake, and what the sweep sends when the machine is busy: a few each, and no look without a delivery."""
    reactor_settings(DISPATCHER=THRICE)
    messages().clear()
    with testing.hold("k") as held:
        handles = [Single.enqueue(name=f"{number}", key="k", seconds=0.02) for number in range(20)]
        for handle in handles:
            wait_parked(handle)
        held.release()
        assert all(outcome.succeeded for outcome in wait_all(handles))
    sent = Counter(messages().sequence())
    assert set(sent) == {str(handle.id) for handle in handles}
    assert sent.total() <= 5 * len(handles)
    for handle in handles:
        assert len(events(handle, "parked")) <= COPIES * sent[str(handle.id)]


def test_b020_a_second_delivery_cannot_enter_its_own_lock(shared_worker: LiveWorker, recorder: Recorder) -> None:
    handle = Single.enqueue(key="k", seconds=1.0)
    recorder.wait_for("run charge")
    for _ in range(4):
        send(str(handle.id))
    until(lambda: handle.execution.wake_requested, "a copy arrived and went")
    assert handle.wait(PATIENCE).succeeded
    assert recorder.sequence() == ["run charge"]


def test_b084_a_body_longer_than_the_visibility_timeout_runs_once(
    shared_worker: LiveWorker, recorder: Recorder
) -> None:
    """The broker hands the message out again while the first worker lives: a copy in each of the steps, no lock declared."""
    handle = Chain.enqueue(seconds=0.3)
    for number in range(1, 7):
        recorder.wait_for(f"run c{number}")
        send(str(handle.id))
    assert handle.wait(PATIENCE).succeeded
    assert recorder.sequence() == [f"run c{number}" for number in range(1, 7)]
    assert all(step_run(handle, f"c{number}").attempts == 1 for number in range(1, 7))


def test_b083_copies_of_a_message_for_later_run_nothing_early(shared_worker: LiveWorker, recorder: Recorder) -> None:
    handle = SlowRetry.enqueue(fail_at="charge", fails=1)
    wait_parked(handle)
    for _ in range(5):
        send(str(handle.id))
    send(str(handle.id), None, 0.5)
    assert handle.wait(PATIENCE).succeeded
    first, second = recorder.intervals("run charge")
    assert 1.9 < second.entered - first.left < 2 + LATE
    assert step_run(handle, "charge").attempts == 2
