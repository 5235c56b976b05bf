"""Executions in real workers that wait for each other: one fails in time and says why, the others go on."""

from __future__ import annotations

import time
from itertools import permutations

import pytest

from reactor_coord import testing
from reactor_coord.runtime.outcome import Outcome
from reactor_coord.testing.recorder import Recorder
from reactor_coord.testing.worker import LiveWorker
from tests.live.crossing import Crossing, Gathered, SlottedParent
from tests.live.reactors import TwoKeys
from tests.live.support import events, is_busy, wait_all, wait_parked
from tests.support.patience import LATE

pytestmark = pytest.mark.django_db(transaction=True)

WORKER_SETTINGS = {
    "SNOOZE_BASE_DELAY": 60,  # no look of its own helps anybody here in time
    "SNOOZE_MAX_DELAY": 60,
    "SNOOZE_JITTER": 0,
    "SNOOZE_MAX_ATTEMPTS": 20,
}


def split(outcomes: list[Outcome]) -> tuple[list[Outcome], list[Outcome]]:
    """Those that completed, and those that failed of a deadlock; there are no others."""
    gone_on = [outcome for outcome in outcomes if outcome.succeeded]
    given_up = [outcome for outcome in outcomes if not outcome.succeeded]
    for outcome in given_up:
        assert outcome.failure is not None and outcome.failure.error_type == "DeadlockDetected", outcome.failure
    return gone_on, given_up


def test_park_15_two_that_hold_what_the_other_wants(shared_worker: LiveWorker, recorder: Recorder) -> None:
    for number in range(5):
        recorder.clear()
        a, b = f"A{number}", f"B{number}"
        handles = [Crossing.enqueue(name="X", first=a, second=b), Crossing.enqueue(name="Y", first=b, second=a)]
        before = recorder.wait_for("run before", 2, left=True)
        outcomes = wait_all(handles, 10)
        assert recorder.now() - max(interval.left for interval in before) < LATE
        (gone_on,), (given_up,) = split(outcomes)
        ids = sorted(str(handle.id) for handle in handles)
        assert str(given_up.execution.id) == ids[1]
        message = str(given_up.failure.message) if given_up.failure else ""
        assert all(part in message for part in (repr(a), repr(b), *ids)), message
        assert recorder.count("undo before") == 1 and recorder.count("run charge") == 1
        for outcome in (gone_on, given_up):
            assert events(outcome, "deadlock")
        assert not is_busy(a) and not is_busy(b)


def test_d75_three_in_a_ring(shared_worker: LiveWorker, recorder: Recorder) -> None:
    with testing.hold("gate"):
        handles = [Gathered.enqueue(first=first, second=second, gate="gate") for first, second in ("AB", "BC", "CA")]
        for handle in handles:
            wait_parked(handle)
    gone_on, given_up = split(wait_all(handles, 10))
    assert len(gone_on) == 2 and len(given_up) == 1
    assert given_up[0].execution.id == max(handle.id for handle in handles)
    assert given_up[0].failure is not None
    assert all(str(handle.id) in given_up[0].failure.message for handle in handles)


def test_b030_a_hundred_of_each_in_opposite_orders_of_one_step(shared_worker: LiveWorker, recorder: Recorder) -> None:
    handles = [TwoKeys.enqueue(first=first, second=second) for _ in range(100) for first, second in permutations("ab")]
    outcomes = wait_all(handles, 60)
    assert all(outcome.succeeded for outcome in outcomes)
    assert not [event for outcome in outcomes for event in events(outcome, "deadlock")]


def test_b030_a_hundred_of_each_in_opposite_orders_over_two_levels(
    shared_worker: LiveWorker, recorder: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    begun = time.monotonic()
    handles = [
        Crossing.enqueue(first=first, second=second, seconds=0)
        for _ in range(100)
        for first, second in permutations("ab")
    ]
    gone_on, given_up = split(wait_all(handles, 60))
    assert len(gone_on) + len(given_up) == 200
    with capsys.disabled():
        took = time.monotonic() - begun
        print(f"\n{len(gone_on)} completed, {len(given_up)} gave up, {took:.1f} s")  # noqa: T201
    assert not is_busy("a") and not is_busy("b")


def test_b031_parents_with_the_last_slots_and_children_that_need_one(
    shared_worker: LiveWorker, recorder: Recorder
) -> None:
    gone_on, given_up = split(wait_all([SlottedParent.enqueue(name=name) for name in "xy"], 10))
    assert len(gone_on) == len(given_up) == 1
