"""Many waiters at one key take nothing from anybody else: neither time nor memory nor workers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reactor_coord import testing
from reactor_coord.testing.plugin import StartWorker
from reactor_coord.testing.recorder import Recorder
from tests.live.reactors import Chain, Single
from tests.live.support import until, wait_all, wait_parked, waiters
from tests.support.patience import LATE, PATIENCE

pytestmark = pytest.mark.django_db(transaction=True)

SETTINGS = {"REACTOR_COORD": {"SNOOZE_BASE_DELAY": 60, "SNOOZE_MAX_DELAY": 60, "HANDOFF_GRACE": 5}}


def resident_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def test_b035_a_long_line_at_one_key_delays_no_other(live_worker: StartWorker, recorder: Recorder) -> None:
    live_worker(concurrency=2, settings=SETTINGS)
    with testing.hold("a", ttl=600):
        long_line = [Single.enqueue(name=f"a{number}", key="a", seconds=0.3) for number in range(60)]
        until(lambda: len(waiters("a")) == 60, "the line at a", 30)
    other, free = Single.enqueue(name="b", key="b"), Chain.enqueue()
    assert other.wait(PATIENCE).succeeded
    assert free.wait(PATIENCE).succeeded
    assert sum(handle.status == "completed" for handle in long_line) < 40, "they came when the line was over"
    assert all(outcome.succeeded for outcome in wait_all(long_line, 60))
    assert recorder.max_concurrency("run charge") <= 2
    assert [body.notes["name"] for body in recorder.intervals("run charge") if body.notes["key"] == "b"] == ["b"]


@pytest.mark.slow
def test_b035_nor_do_five_hundred_that_take_five_seconds_each(live_worker: StartWorker, recorder: Recorder) -> None:
    """The case as it stands. Nobody waits for the end of the line: that takes most of an hour."""
    for _ in range(2):
        live_worker(concurrency=2, settings=SETTINGS)
    with testing.hold("a", ttl=600):
        for number in range(500):
            Single.enqueue(name=f"a{number}", key="a", seconds=5)
        until(lambda: len(waiters("a")) == 500, "the line at a", 60)
    for number in range(5):
        begun = recorder.now()
        other, free = Single.enqueue(name=f"b{number}", key=f"b{number}"), Chain.enqueue()
        assert other.wait(PATIENCE).succeeded
        assert free.wait(PATIENCE).succeeded
        assert recorder.now() - begun < 5 + LATE  # a worker's two bodies under way, and not the line
    assert recorder.max_concurrency("run charge") <= 2


def test_b037_the_parked_fill_no_workers_memory_and_a_second_worker_shares_the_work(
    live_worker: StartWorker, recorder: Recorder
) -> None:
    first = live_worker(concurrency=1, settings=SETTINGS)
    with testing.hold("k") as held:
        handles = [Single.enqueue(name=f"{number}", key="k") for number in range(50)]
        wait_parked(handles[-1], 20)
        child = first.children()[-1]
        before = resident_mb(child)
        handles += [Single.enqueue(name=f"{number}", key="k") for number in range(50, 250)]
        until(lambda: len(waiters("k")) == 250, "all parked", 30)
        assert resident_mb(child) - before < 20
        fresh = Chain.enqueue()
        begun = recorder.now()
        assert fresh.wait(PATIENCE).succeeded
        assert recorder.now() - begun < LATE
        second = live_worker(concurrency=1, settings=SETTINGS)
        held.release()
        assert all(outcome.succeeded for outcome in wait_all(handles, 60))
    bodies = recorder.intervals("run charge")
    assert recorder.max_concurrency("run charge") == 1
    assert len({body.pid for body in bodies}) == 2
    assert len(bodies) == 250
    assert {body.pid for body in bodies} <= {*first.children(), *second.children()}
