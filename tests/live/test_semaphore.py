"""Semaphores and real workers: killed, stopped, restarted and cancelled, never more than the limit, and full again soon."""

from __future__ import annotations

import itertools
from statistics import median

import pytest

from reactor_coord import testing
from reactor_coord.coordination import inspect
from reactor_coord.models import TraceEvent
from reactor_coord.runtime.dispatch import send
from reactor_coord.runtime.outcome import ExecutionHandle
from reactor_coord.testing.plugin import StartWorker
from reactor_coord.testing.recorder import Recorder
from tests.live import remote
from tests.live.pooled import Admitted, Lone, Trio
from tests.live.support import events, kinds, until, wait_all, wait_parked
from tests.support.patience import LATE, PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

REMOTE_FAULTS = True
SETTINGS = {
    "REACTOR_COORD": {
        "SNOOZE_BASE_DELAY": 1,
        "SNOOZE_MAX_DELAY": 1,
        "SNOOZE_JITTER": 0,
        "SNOOZE_MAX_ATTEMPTS": None,
        "SWEEP_INTERVAL": 0.3,
        "LEASE_TTL": 1,
        "HANDOFF_GRACE": 1,
    }
}
SWEEP_INTERVAL = 30
"""So rare that on a busy machine, too, no start is sent again, and no gap is a sweep's."""

CALM = {
    "REACTOR_COORD": {
        "SNOOZE_BASE_DELAY": 60,
        "SNOOZE_MAX_DELAY": 60,
        "SNOOZE_JITTER": 0,
        "SWEEP_INTERVAL": SWEEP_INTERVAL,
        "HANDOFF_GRACE": 20,  # on a busy machine a message may be seconds under way
    }
}


def slots(key: str) -> list[tuple[str, str]]:
    return [(hold.owner, hold.state) for hold in inspect.look(key, primitive="semaphore").holds]


def line(key: str) -> list[str]:
    return [waiter.owner for waiter in inspect.line(key, primitive="semaphore")]


def is_free(key: str) -> bool:
    return not slots(key)


def test_family_10_a_killed_workers_slot_is_back(live_worker: StartWorker, recorder: Recorder) -> None:
    worker = live_worker(concurrency=4, settings=SETTINGS)
    handles = [Trio.enqueue(name=f"n{number}", key="k", seconds=1.5) for number in range(3)]
    bodies = recorder.wait_for("run charge", 3)
    waiting = Trio.enqueue(name="waiting", key="k", seconds=1.5)
    wait_parked(waiting)
    worker.kill_child(bodies[0].pid)
    killed = recorder.now()
    assert all(outcome.succeeded for outcome in wait_all([*handles, waiting]))
    [fourth] = [body for body in recorder.intervals("run charge") if body.notes["name"] == "waiting"]
    assert fourth.entered - killed < 1 + 0.3 + LATE
    assert recorder.max_concurrency("run charge") == 3
    until(lambda: is_free("k"), "every slot back")


@pytest.mark.parametrize("point", ["step.after_take", "park.after_commit"])
def test_b044_killed_between_slot_and_body_or_on_the_way_out(
    live_worker: StartWorker, recorder: Recorder, point: str
) -> None:
    live_worker(concurrency=2, settings=SETTINGS)
    remote.arm(point, "kill")
    handles = [Lone.enqueue(name=name, key="k", seconds=0.2) for name in "abc"]
    assert all(outcome.succeeded for outcome in wait_all(handles))
    assert not remote.is_pending(point)
    assert recorder.count("run charge") == 3
    assert recorder.max_concurrency("run charge") == 1
    until(lambda: is_free("k"), "the slot back")


def test_b046_a_worker_that_comes_back_does_not_push_capacity_up(live_worker: StartWorker, recorder: Recorder) -> None:
    stopped = live_worker(concurrency=1, settings=SETTINGS)
    first = Lone.enqueue(name="first", key="k", seconds=0.6)
    recorder.wait_for("run charge")
    stopped.pause()
    live_worker(concurrency=2, settings=SETTINGS)
    second = Lone.enqueue(name="second", key="k", seconds=1.5)
    until(lambda: any(b.notes["name"] == "second" for b in recorder.intervals("run charge")), "the second inside")
    others = [Lone.enqueue(name=f"n{number}", key="k", seconds=0.05) for number in range(20)]
    stopped.resume()
    assert second.wait(PATIENCE).succeeded
    assert all(outcome.succeeded for outcome in wait_all(others))
    outcome = first.wait(PATIENCE)  # its body returned under a lost slot; or another worker has repeated it
    assert outcome.succeeded or (outcome.failure is not None and outcome.failure.error_type == "LockLost")
    bodies = recorder.intervals("run charge")
    zombie = next(body for body in bodies if body.notes["name"] == "first")
    rest = sorted((body for body in bodies if body is not zombie), key=lambda body: body.entered)
    assert len(rest) == 21 + outcome.succeeded
    assert all(one.left <= next_one.entered for one, next_one in itertools.pairwise(rest))


def test_b047_restarted_after_a_kill_no_more_than_the_limit_run(live_worker: StartWorker, recorder: Recorder) -> None:
    before = live_worker(concurrency=2, settings=SETTINGS)
    handles = [Lone.enqueue(name=name, key="k", seconds=0.8) for name in "abc"]
    recorder.wait_for("run charge")
    before.kill()
    for _ in range(2):
        live_worker(concurrency=1, settings=SETTINGS)
    assert all(outcome.succeeded for outcome in wait_all(handles))
    assert recorder.max_concurrency("run charge") == 1
    assert recorder.count("run charge") == 4
    until(lambda: is_free("k"), "the slot back")


def test_b048_a_second_message_frees_nothing(live_worker: StartWorker, recorder: Recorder) -> None:
    live_worker(concurrency=3, settings=SETTINGS)
    first = Lone.enqueue(name="first", key="k", seconds=1.2)
    recorder.wait_for("run charge")
    third = Lone.enqueue(name="third", key="k")
    wait_parked(third)
    for _ in range(5):
        send(str(first.id), None)
    assert all(outcome.succeeded for outcome in wait_all([first, third]))
    one, other = recorder.intervals("run charge")
    assert one.left <= other.entered
    assert [one.notes["name"], other.notes["name"]] == ["first", "third"]


def test_b052_cancelled_with_a_slot_in_its_hand_the_next_starts_at_once(
    live_worker: StartWorker, recorder: Recorder
) -> None:
    worker = live_worker(concurrency=2, settings=CALM)
    with testing.hold("k", "semaphore") as held:
        first, second = (Lone.enqueue(name=name, key="k") for name in ("first", "second"))
        for handle in (first, second):
            wait_parked(handle)
        granted, next_one = (first, second) if line("k")[0] == str(first.id) else (second, first)
        worker.pause()
        held.release()  # granted, and its message taken by nobody
        assert slots("k") == [(str(granted.id), "granted")]
        granted.cancel("no longer wanted")
        assert slots("k") == [(str(next_one.id), "granted")]
        recorder.mark("goes on")
        worker.resume()
        assert next_one.wait(PATIENCE).succeeded
    assert granted.wait(PATIENCE).status == "cancelled"
    [body] = recorder.intervals("run charge")
    assert body.entered - recorder.wait_for("goes on")[0].entered < LATE
    until(lambda: is_free("k"), "the slot back")


def test_b043_capacity_is_full_after_cancels_and_failures(live_worker: StartWorker, recorder: Recorder) -> None:
    live_worker(concurrency=4, settings=CALM)
    failing = Trio.enqueue(name="failing", key="k", fail_at="charge")
    assert failing.wait(PATIENCE).failed
    with (
        testing.hold("k", "semaphore", limit=3),
        testing.hold("k", "semaphore", limit=3),
        testing.hold("k", "semaphore", limit=3),
    ):
        parked = Trio.enqueue(name="parked", key="k")
        wait_parked(parked)
        parked.cancel()
        assert parked.wait(PATIENCE).status == "cancelled"
        assert line("k") == []
    running = Trio.enqueue(name="running", key="k", seconds=0.6)
    recorder.wait_until(lambda: [b for b in recorder.intervals("run charge") if b.notes["name"] == "running"], "it")
    running.cancel()
    assert running.wait(PATIENCE).status in {"cancelled", "completed"}  # its last step was under way
    recorder.clear()
    assert all(outcome.succeeded for outcome in wait_all([Trio.enqueue(key="k", seconds=0.4) for _ in range(9)]))
    assert recorder.max_concurrency("run charge") == 3


def test_a_reactors_slot_is_kept_over_a_park_and_counted_once(live_worker: StartWorker, recorder: Recorder) -> None:
    live_worker(concurrency=2, settings=CALM)
    with testing.hold("other", "semaphore") as held:
        handle = Admitted.enqueue(key="k", other="other")
        wait_parked(handle)
        assert slots("k") == [(str(handle.id), "parked")]
        held.release()
        assert handle.wait(PATIENCE).succeeded
    assert len([event for event in events(handle, "acquired", key="k") if event.step == ""]) == 1
    assert "adopted" in kinds(handle)
    until(lambda: is_free("k") and is_free("other"), "every slot back")


def test_b156_a_backlog_is_served_in_order_by_few_messages(live_worker: StartWorker, recorder: Recorder) -> None:
    """Scaled: 60 executions under 3 slots, 4 processes."""
    live_worker(concurrency=4, settings=CALM)
    handles: list[ExecutionHandle] = [Trio.enqueue(name=f"n{number}", key="k", seconds=0.05) for number in range(60)]
    assert all(outcome.succeeded for outcome in wait_all(handles, 60))
    assert recorder.max_concurrency("run charge") == 3
    parks = TraceEvent.objects.filter(kind="parked").count()
    assert parks <= 66
    granted = TraceEvent.objects.filter(kind="granted").count()
    assert granted <= parks
    bodies = sorted(recorder.intervals("run charge"), key=lambda body: body.entered)
    gaps = [max(0.0, later.entered - earlier.left) for earlier, later in zip(bodies, bodies[3:], strict=False)]
    assert median(gaps) < LATE / 2, "half of them were not woken, but found by a sweep"
