"""Strict order at a step and at a reactor, by real workers."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from functools import partial
from typing import Any

import pytest

from reactor_coord import testing
from reactor_coord.coordination import ordered_lines
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.runtime.dispatch import send
from reactor_coord.testing.recorder import Recorder
from tests.live.ordered import (
    Brief,
    BrieflySequenced,
    Lenient,
    Ordered,
    PatientlyOrdered,
    PatientlySequenced,
    Sequenced,
)
from tests.live.support import wait_parked
from tests.support.patience import LATE, PATIENCE, patience

pytestmark = [pytest.mark.live, pytest.mark.django_db(transaction=True)]

SWEEP_INTERVAL = 30
"""So rare that on a busy machine, too, no start is sent again, and no gap is a sweep's."""

CALM = {
    "REACTOR_COORD": {
        "SWEEP_INTERVAL": SWEEP_INTERVAL,
        "SNOOZE_BASE_DELAY": 60,
        "SNOOZE_MAX_DELAY": 60,
        "SNOOZE_JITTER": 0,
    }
}


def names(recorder: Recorder, label: str) -> list[str]:
    return [interval.notes["name"] for interval in recorder.intervals(label)]


def enqueue_in_order(recorder: Recorder, reactor: Any, count: int, **inputs: Any) -> list[Any]:
    """Each arrives at its first step, which is the ordered one, before the next is enqueued."""
    handles = []
    for number in range(count):
        handles.append(reactor.enqueue(name=str(number), key="k", **inputs))
        recorder.wait_until(partial(_arrived, number + 1), f"arrival of {number}")
    return handles


def test_order_01_in_order_and_never_two_at_once(live_worker: Any, recorder: Recorder) -> None:
    live_worker(concurrency=3)
    handles = []
    for number in range(5):
        seconds = 0.5 if number == 0 else random.uniform(0, 0.3)
        handle = Ordered.enqueue(name=str(number), key="k", seconds=seconds)
        recorder.wait_until(partial(_is_there, handle, recorder), f"arrival of {number}")
        handles.append(handle)
    assert all(handle.wait(patience(20)).succeeded for handle in handles)
    assert names(recorder, "run post") == ["0", "1", "2", "3", "4"]
    assert recorder.max_concurrency("run post") == 1


@pytest.mark.parametrize("reactor", [PatientlyOrdered, PatientlySequenced])
def test_u13_killed_in_a_body_it_waits_out_its_own_turn_no_longer_than_the_lease(
    reactor: Any, live_worker: Any, recorder: Recorder
) -> None:
    """The turn of a worker is over with its lease, so the successor finds it free, or waits for the rest of it once."""
    short = {"REACTOR_COORD": {**CALM["REACTOR_COORD"], "LEASE_TTL": 3, "SWEEP_INTERVAL": 0.5}}
    worker = live_worker(settings=short)
    handle = reactor.enqueue(name="killed", key="k", seconds=1)
    recorder.wait_for("run post")
    begun = time.monotonic()
    worker.kill()
    live_worker(settings=short)
    assert handle.wait(patience(40)).succeeded
    took = time.monotonic() - begun
    assert recorder.count("run post") == 2
    parks = [row.data for row in TraceEvent.objects.filter(root_id=handle.id, kind="parked")]
    assert len(parks) <= 2
    assert {park["held_by"] for park in parks} <= {"its dead worker"}
    assert took < patience(20)  # of which the lease is 3; the constant that it was is 60


def _is_there(handle: Any, recorder: Recorder) -> bool:
    """Whether it has its position: it waits, or its body has begun."""
    begun = {body.notes["execution"] for body in recorder.intervals("run post")}
    return handle.status == "parked" or str(handle.id) in begun


def _arrived(count: int) -> bool:
    view = ordered_lines().view("k")
    return view.last_given >= count or view.is_drained


def test_order_02_a_later_step_of_one_overlaps_the_ordered_step_of_the_next(
    live_worker: Any, recorder: Recorder
) -> None:
    live_worker(concurrency=2)
    handles = enqueue_in_order(recorder, Ordered, 2, seconds=0.4, after_seconds=0.6)
    assert all(handle.wait(patience(20)).succeeded for handle in handles)
    assert recorder.overlaps("run behind", "run post")


def test_order_03_after_a_failed_position_the_later_ones_skip_the_step(live_worker: Any, recorder: Recorder) -> None:
    live_worker(concurrency=2)
    first = Ordered.enqueue(name="0", key="k", seconds=1.0)
    recorder.wait_for("run post")
    second = Ordered.enqueue(name="1", key="k", fail_at="post")
    recorder.wait_until(lambda: _arrived(2), "the second")
    later = [Ordered.enqueue(name=str(number), key="k") for number in (2, 3)]
    recorder.wait_until(lambda: _arrived(4), "all")
    assert first.wait(patience(20)).succeeded
    assert second.wait(patience(20)).failed
    assert all(handle.wait(patience(20)).succeeded for handle in later)
    assert names(recorder, "run post") == ["0", "1"]
    assert sorted(names(recorder, "run behind")) == ["0", "2", "3"]
    reasons = StepRun.objects.filter(step="post", status="skipped").values_list("reason", flat=True)
    assert list(reasons) == ["ordered_lock_chain_failed"] * 2


def test_order_04_not_strict_every_position_runs(live_worker: Any, recorder: Recorder) -> None:
    live_worker(concurrency=2)
    first = Lenient.enqueue(name="0", key="k", seconds=1.0)
    recorder.wait_for("run post")
    second = Lenient.enqueue(name="1", key="k", fail_at="post")
    recorder.wait_until(lambda: _arrived(2), "the second")
    third = Lenient.enqueue(name="2", key="k")
    assert first.wait(patience(20)).succeeded
    assert second.wait(patience(20)).failed
    assert third.wait(patience(20)).succeeded
    assert names(recorder, "run post") == ["0", "1", "2"]


def test_order_06_a_dead_position_is_passed_over_and_a_slow_living_one_is_not(
    live_worker: Any, recorder: Recorder
) -> None:
    live_worker(concurrency=2, settings={"REACTOR_COORD": {"SWEEP_INTERVAL": 0.5, "LEASE_TTL": 30}})
    slow = Brief.enqueue(name="slow", key="k", seconds=5.0)
    recorder.wait_for("run post")
    quick = Brief.enqueue(name="quick", key="k")
    assert slow.wait(patience(20)).succeeded
    assert quick.wait(patience(20)).succeeded
    assert names(recorder, "run post") == ["slow", "quick"]
    assert recorder.max_concurrency("run post") == 1
    worker = live_worker(concurrency=2)
    dead = Brief.enqueue(name="dead", key="k", seconds=60)
    body = recorder.wait_for("run post", 3)[-1]
    after = Brief.enqueue(name="after", key="k")
    recorder.wait_until(lambda: _arrived(2), "the one after")
    os.kill(body.pid, signal.SIGKILL)
    recorder.gone(body.pid)
    assert after.wait(patience(15)).succeeded
    assert str(dead.status) in {"running", "ready", "parked"}
    dead.cancel()
    del worker


def test_order_06_a_position_that_never_comes_is_passed_over(live_worker: Any, recorder: Recorder) -> None:
    """Enqueued first, and so first in the line, but into a queue that no worker consumes."""
    absent = BrieflySequenced.options(queue="nobody-consumes-this").enqueue(name="absent", key="k")
    later = BrieflySequenced.enqueue(name="later", key="k")
    began = recorder.now()
    live_worker(concurrency=2, settings={"REACTOR_COORD": {"SWEEP_INTERVAL": 0.5}})
    assert later.wait(patience(20)).succeeded
    assert recorder.intervals("run first")[0].entered - began > 1, "it was passed over before its timeout"
    assert names(recorder, "run first") == ["later"]
    assert absent.status == "ready"
    absent.cancel()


def test_order_11_the_next_starts_when_the_one_before_ends(live_worker: Any, recorder: Recorder) -> None:
    """A hundred in line. A look of its own would come after a minute: who begins was woken."""
    live_worker(concurrency=2, settings=CALM)
    with testing.hold("k", "ordered_lock", ttl=120):
        handles = [Ordered.enqueue(name=str(number), key="k", seconds=0.005) for number in range(100)]
        parked = Execution.objects.filter(status="parked")
        recorder.wait_until(lambda: parked.count() == 100, "all of them in line", timeout=patience(60))
    assert all(handle.wait(patience(30)).succeeded for handle in handles)
    bodies = sorted(recorder.intervals("run post"), key=lambda body: body.entered)
    gaps = sorted(after.entered - before.left for before, after in itertools.pairwise(bodies))
    assert len(gaps) == 99
    assert gaps[0] >= 0
    assert gaps[50] < LATE / 2, "half of them were not woken, but found by a sweep"
    assert gaps[10] < 0.1, "of those that other work on the machine delays least, none began at once"
    assert TraceEvent.objects.filter(kind="parked").count() == 100


def test_a_reactor_is_ordered_by_its_enqueueing(live_worker: Any, recorder: Recorder) -> None:
    handles = [Sequenced.enqueue(name=str(number), key="k", seconds=0.05) for number in range(8)]
    live_worker(concurrency=3)
    assert all(handle.wait(patience(20)).succeeded for handle in handles)
    assert names(recorder, "run first") == [str(number) for number in range(8)]
    assert recorder.max_concurrency("run first") == 1


def test_order_05_parked_and_redelivered_it_has_the_same_position(live_worker: Any, recorder: Recorder) -> None:
    live_worker(concurrency=2)
    first = Ordered.enqueue(name="0", key="k", seconds=1.5)
    recorder.wait_for("run post")
    handles = enqueue_behind(3)
    before = [row["position"] for row in map(waiting_on, handles)]
    for handle in reversed(handles):
        for _ in range(3):
            send(str(handle.id))
    assert first.wait(patience(20)).succeeded
    assert all(handle.wait(patience(20)).succeeded for handle in handles)
    assert before == [2, 3, 4]
    assert names(recorder, "run post") == ["0", "1", "2", "3"]
    positions = [
        event.data["position"]
        for handle in handles
        for event in TraceEvent.objects.filter(root_id=handle.id, primitive="ordered_lock", kind="acquired")
    ]
    assert positions == before


def enqueue_behind(count: int) -> list[Any]:
    handles = []
    for number in range(1, count + 1):
        handle = Ordered.enqueue(name=str(number), key="k")
        wait_parked(handle)
        handles.append(handle)
    return handles


def waiting_on(handle: Any) -> dict[str, Any]:
    return dict(handle.execution.waiting_on)


def test_order_10_a_straggler_of_a_drained_line_runs_once_and_moves_nothing(
    live_worker: Any, recorder: Recorder
) -> None:
    """Its process stands still past the poison timeout; the line is drained, a new one begins; then it goes on."""
    live_worker(concurrency=3, settings={"REACTOR_COORD": {"SWEEP_INTERVAL": 0.5, "LEASE_TTL": 30}})
    straggler = Brief.enqueue(name="straggler", key="k", seconds=0.3)
    body = recorder.wait_for("run post")[0]
    os.kill(body.pid, signal.SIGSTOP)
    try:
        recorder.wait_until(
            lambda: ordered_lines().tend() or ordered_lines().view("k").is_drained, "drained", timeout=10
        )
        running = Brief.enqueue(name="running", key="k", seconds=2.0)
        recorder.wait_for("run post", 2)
        waiting = Brief.enqueue(name="waiting", key="k")
        wait_parked(waiting)
    finally:
        os.kill(body.pid, signal.SIGCONT)
    assert straggler.wait(PATIENCE).failed  # its turn was lost before its body returned
    assert str(running.status) == "running"
    assert waiting.status == "parked"
    assert running.wait(PATIENCE).succeeded
    assert waiting.wait(PATIENCE).succeeded
    assert names(recorder, "run post") == ["straggler", "running", "waiting"]
    new = [each for each in recorder.intervals("run post") if each.notes["name"] != "straggler"]
    assert not new[0].overlaps(new[1])
