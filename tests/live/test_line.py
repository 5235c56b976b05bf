"""Many at one key, or at many: order, no overlap, no wake lost, and what it costs."""

from __future__ import annotations

import random
import threading
import time

import pytest

from reactor_coord import testing
from reactor_coord.testing import recorder as recorders
from reactor_coord.testing.recorder import Recorder
from reactor_coord.testing.worker import LiveWorker
from tests.live.reactors import Brief, Single
from tests.live.support import events, is_busy, median, stamp, until, wait_all, waiters
from tests.support.patience import LATE, PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

WORKER_SETTINGS = {
    "SNOOZE_BASE_DELAY": 60,
    "SNOOZE_MAX_DELAY": 60,
    "SNOOZE_JITTER": 0,
    "SNOOZE_MAX_ATTEMPTS": 5,
    "HANDOFF_GRACE": 30,  # a wake may stand behind many first messages in the worker's queue
    "SWEEP_INTERVAL": 30,  # so rare that no start is sent again, and no wait is a sweep's
}


def test_park_13_a_long_line_is_served_in_order_of_arrival(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with testing.hold("k", ttl=600):
        handles = [Single.enqueue(name=f"{number}", key="k", seconds=0.01) for number in range(200)]
        until(lambda: len(waiters("k")) == 200, "all of them in line", 60)
        arrived = waiters("k")
    outcomes = wait_all(handles, 60)
    assert all(outcome.succeeded for outcome in outcomes)
    assert [body.notes["execution"] for body in recorder.intervals("run charge")] == arrived
    assert recorder.max_concurrency("run charge") == 1
    assert not [event for outcome in outcomes for event in events(outcome, "failed")]


def test_the_next_body_begins_within_milliseconds_of_a_release(
    shared_worker: LiveWorker, recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the release of a key to the entering of the next body, over the broker: 10 ms is the aim, on an idle machine."""
    outcomes = wait_all([Single.enqueue(name=f"{number}", key="k", seconds=0.05) for number in range(30)], 60)
    granted = {str(event.execution_id): stamp(event.at) for outcome in outcomes for event in events(outcome, "granted")}
    bodies = [body for body in recorder.intervals("run charge") if body.notes["execution"] in granted]
    waits = [body.entered - granted[body.notes["execution"]] for body in bodies]
    assert len(waits) > 20
    with capsys.disabled():
        print(f"\nrelease to next body: median {median(waits) * 1000:.1f} ms, worst {max(waits) * 1000:.1f} ms")  # noqa: T201
    assert median(waits) < LATE / 2, "half of them were not woken, but found by a sweep"


def test_b040_parking_at_the_instant_of_a_release(shared_worker: LiveWorker, recorder: Recorder) -> None:
    dice = random.Random(40)
    handles = [
        Single.enqueue(key=f"round {number}", seconds=dice.uniform(0.001, 0.005))
        for number in range(300)
        for _ in range(2)
    ]
    outcomes = wait_all(handles, 60)  # a look comes after a minute: a wake that is lost shows here
    assert all(outcome.succeeded for outcome in outcomes)
    assert len(recorder.intervals("run charge")) == 600
    assert not _overlapping_on_a_key(recorder)


def test_b179_script_flush_under_load_is_invisible(shared_worker: LiveWorker, recorder: Recorder) -> None:
    client = recorders.client(recorder.url)
    is_over = threading.Event()

    def flush() -> None:
        while not is_over.wait(0.003):
            client.script_flush()

    flushing = threading.Thread(target=flush)
    flushing.start()
    try:
        outcomes = wait_all([Brief.enqueue(key=f"k{number % 5}", seconds=0.005) for number in range(100)], 60)
        long_one = Brief.enqueue(key="long", seconds=1.5)  # renewed meanwhile
        assert long_one.wait(PATIENCE).succeeded
    finally:
        is_over.set()
        flushing.join()
    assert all(outcome.succeeded for outcome in outcomes)
    assert not _overlapping_on_a_key(recorder)
    for number in range(5):
        assert not is_busy(f"k{number}")
    assert not shared_worker.log_lines("NOSCRIPT|CoordinationUnavailable|lock_lost")


def test_b013_a_renewal_that_races_with_the_end_changes_nothing(shared_worker: LiveWorker, recorder: Recorder) -> None:
    """The hold's renewal is due after a third of its second: bodies end within 20 ms of it."""
    dice = random.Random(13)
    handles = [Brief.enqueue(key=f"k{number}", seconds=1 / 3 + dice.uniform(-0.02, 0.02)) for number in range(40)]
    outcomes = wait_all(handles, 60)
    assert all(outcome.succeeded for outcome in outcomes)
    time.sleep(0.5)  # whatever still comes late
    for handle, outcome in zip(handles, outcomes, strict=True):
        row = handle.execution
        assert (row.status, row.updated_at) == ("completed", outcome.execution.updated_at)
        assert not events(handle, "lock_lost")
        assert not is_busy(f"k{outcomes.index(outcome)}")


def _overlapping_on_a_key(recorder: Recorder) -> list[str]:
    by_key: dict[str, float] = {}
    found = []
    for body in recorder.intervals("run charge"):
        key = body.notes["key"]
        if body.entered < by_key.get(key, 0.0):
            found.append(key)
        by_key[key] = body.left
    return found
