"""Whole workers that end: by a limit, a signal, a kill, or because their time is up; and what the next one finds."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import pytest
from django.db import connection, connections

from reactor_coord import conf, testing
from reactor_coord.coordination import inspect
from reactor_coord.declare.coordination import LockDeclaration
from reactor_coord.models import Execution
from reactor_coord.testing import processes
from reactor_coord.testing.plugin import StartWorker
from reactor_coord.testing.recorder import Recorder
from reactor_coord.workers.sweep import sweep_once
from tests.live import master
from tests.live.reactors import Brief, Chain, Defaults, Guarded, Single, SlowRetry
from tests.live.support import events, is_busy, kinds, purge, step_run, until, wait_all, wait_parked
from tests.support.patience import LATE, PATIENCE, patience

pytestmark = pytest.mark.django_db(transaction=True)

SETTINGS: dict[str, Any] = {
    "SNOOZE_BASE_DELAY": 0.5,
    "SNOOZE_MAX_DELAY": 0.5,
    "SNOOZE_JITTER": 0,
    "SNOOZE_MAX_ATTEMPTS": None,
    "SWEEP_INTERVAL": 0.3,
    "LEASE_TTL": 1,
    "HANDOFF_GRACE": 1,
}


PATIENT = {**SETTINGS, "SNOOZE_BASE_DELAY": 60, "SNOOZE_MAX_DELAY": 60}
"""What a parked tree keeps outlives its next look: with a far look it outlives the slow start of a worker."""


def test_b003_children_renew_their_own_holds_in_every_generation(live_worker: StartWorker, recorder: Recorder) -> None:
    """The main process has a lock of its own, and every child is replaced after one message."""
    worker = live_worker(
        settings={"REACTOR_COORD": SETTINGS},
        env={master.ENVIRONMENT: "1"},
        options=["--max-tasks-per-child", "1"],
    )
    handles = [Brief.enqueue(name=f"{number}", key="k", seconds=2) for number in range(3)]
    until(lambda: len(recorder.intervals("run charge")) == 3, "three bodies", 30)
    assert is_busy(master.KEY)  # renewed all the while
    outcomes = wait_all(handles)
    assert all(outcome.succeeded for outcome in outcomes)
    bodies = recorder.intervals("run charge")
    assert len(bodies) == len({body.pid for body in bodies}) == 3
    assert recorder.max_concurrency("run charge") == 1
    assert not worker.log_lines("hold.lost|lease_lost")


def test_b008_a_hard_time_limit_frees_the_key_within_its_ttl(live_worker: StartWorker, recorder: Recorder) -> None:
    worker = live_worker(
        settings={"REACTOR_COORD": {**SETTINGS, "MAX_WORKER_LOSSES": 1}}, options=["--time-limit", "1"]
    )
    hung = Brief.enqueue(name="hung", key="k", seconds=30)
    [body] = recorder.wait_for("run charge")
    until(lambda: not processes.is_alive(body.pid), "killed by the limit", 5)
    recorder.gone(body.pid)
    second = Brief.enqueue(name="second", key="k")
    assert second.wait(PATIENCE).succeeded
    first_body, second_body = recorder.intervals("run charge")
    assert second_body.entered - first_body.left < 1 + 1 + 0.3 + LATE  # ttl, grace, sweep
    outcome = hung.wait(PATIENCE)
    assert outcome.failed
    assert outcome.failure is not None
    assert (outcome.failure.step, outcome.failure.error_type) == ("charge", "WorkerLost")
    assert worker.is_running


def test_b009_and_b096_killed_with_everything_it_goes_on_with_the_next_worker(
    live_worker: StartWorker, recorder: Recorder
) -> None:
    """The defaults are finite; here they are scaled down."""
    assert LockDeclaration(keys=("k",)).ttl == 60  # type: ignore[arg-type]
    assert conf.DEFAULTS["LEASE_TTL"] == 60
    first = live_worker(settings={"REACTOR_COORD": SETTINGS})
    handles = [Brief.enqueue(name=f"{number}", key=f"{number}", seconds=1) for number in range(4)]
    recorder.wait_for("run charge", 2)
    first.kill()
    assert not [handle for handle in handles if handle.status == "completed"]
    live_worker(settings={"REACTOR_COORD": SETTINGS})
    outcomes = wait_all(handles, 15)
    assert all(outcome.succeeded for outcome in outcomes)
    assert not Execution.objects.filter(status="running").exists()
    lost = [outcome for outcome in outcomes if "worker_lost" in kinds(outcome)]
    assert len(lost) == 2
    assert Defaults.enqueue(key="0").wait(PATIENCE).succeeded


def test_b027_a_reactors_key_is_given_back_by_another_worker(live_worker: StartWorker, recorder: Recorder) -> None:
    first = live_worker(concurrency=1, settings={"REACTOR_COORD": PATIENT})
    with testing.hold("inner") as held:
        handle = Guarded.enqueue(outer_key="outer", key="inner")
        wait_parked(handle)
        first.kill()
        second = live_worker(concurrency=1, settings={"REACTOR_COORD": PATIENT})
        testing.assert_locked("outer", by=handle)
        held.release()
        outcome = handle.wait(PATIENCE)
    assert outcome.succeeded
    assert {body.pid for body in recorder.intervals("run charge")} <= set(second.children())
    assert len(events(outcome, "acquired", key="outer")) == 1
    testing.assert_free("outer")


def test_b088_a_death_costs_one_attempt_however_many_sweep(live_worker: StartWorker, recorder: Recorder) -> None:
    worker = live_worker(concurrency=1, settings={"REACTOR_COORD": SETTINGS})
    handle = Chain.enqueue(seconds=1)  # long enough for the kill to find it in the body on a busy machine too
    recorder.wait_for("run c2")
    worker.kill()
    lease_ends = handle.execution.lease_expires_at
    assert lease_ends is not None
    until(lambda: lease_ends.timestamp() < time.time() - 0.05, "its lease over")

    def sweep() -> None:
        try:
            sweep_once()
        finally:
            connections.close_all()

    sweepers = [threading.Thread(target=sweep) for _ in range(3)]
    for each in sweepers:
        each.start()
    for each in sweepers:
        each.join()
    live_worker(concurrency=2, settings={"REACTOR_COORD": SETTINGS})
    outcome = handle.wait(patience(20))
    assert outcome.succeeded
    run = step_run(outcome, "c2")
    assert (run.attempts, run.workers_lost) == (2, 1)
    assert recorder.sequence() == ["run c1", "run c2", *(f"run c{number}" for number in range(2, 7))]


def test_b091_what_waits_survives_every_way_to_end_a_worker(live_worker: StartWorker, recorder: Recorder) -> None:
    settings = {"REACTOR_COORD": {**SETTINGS, "SNOOZE_BASE_DELAY": 2, "SNOOZE_MAX_DELAY": 2}}
    worker = live_worker(settings=settings)
    with testing.hold("k") as held:
        handles = [Single.enqueue(name=f"{number}", key="k") for number in range(12)]
        handles += [SlowRetry.enqueue(fail_at="charge", fails=1) for _ in range(12)]
        for handle in handles:
            until(lambda handle=handle: handle.status in {"parked", "completed"}, "parked", 20)  # type: ignore[misc]
        worker.term()
        worker.wait()
        worker = live_worker(settings=settings)
        worker.kill()
        purge()  # and what stood in the broker is gone as well
        held.release()
    live_worker(settings=settings)
    outcomes = wait_all(handles, 40)
    assert all(outcome.succeeded for outcome in outcomes)
    assert recorder.count("run charge") == 12 + 2 * 12


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGQUIT])
def test_b091_a_worker_that_is_told_to_end_in_mid_body(
    live_worker: StartWorker, recorder: Recorder, number: signal.Signals
) -> None:
    """TERM lets the step, and what follows it, end; QUIT does not, and the step is repeated. Either way it completes."""
    worker = live_worker(concurrency=1, settings={"REACTOR_COORD": SETTINGS})
    handle = Chain.enqueue(seconds=0.4)
    recorder.wait_for("run c2")
    os.kill(worker.pid, number)
    worker.wait()
    if handle.status != "completed":
        live_worker(settings={"REACTOR_COORD": SETTINGS})
    outcome = handle.wait(patience(15))
    assert outcome.succeeded
    repeated = recorder.count("run c2") - 1
    assert repeated == (number == signal.SIGQUIT)
    assert [recorder.count(f"run c{each}") for each in (1, 3, 4, 5, 6)] == [1] * 5


@pytest.mark.parametrize("age", [0, 60, None])
def test_b171_what_the_main_process_opened_is_nobody_elses(
    live_worker: StartWorker, recorder: Recorder, age: int | None
) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("SQLite's connections do not survive a fork; see test_b173")
    databases = {"default": {**_plain(connection.settings_dict), "CONN_MAX_AGE": age}}
    worker = live_worker(
        concurrency=4,
        settings={"REACTOR_COORD": SETTINGS, "DATABASES": databases},
        env={master.ENVIRONMENT: "1"},
    )
    handles = [Single.enqueue(key=f"{number % 10}", seconds=0.002) for number in range(100)]
    assert all(outcome.succeeded for outcome in wait_all(handles, 60))
    assert not worker.log_lines("Traceback|ERROR")


def test_b173_sqlite_under_four_processes(live_worker: StartWorker, recorder: Recorder) -> None:
    """Set up as the documentation says (WAL, immediate transactions, a timeout), with another process writing."""
    if connection.vendor != "sqlite":
        pytest.skip("about SQLite")
    from django.contrib.auth.models import User

    worker = live_worker(concurrency=4, settings={"REACTOR_COORD": SETTINGS})
    handles = []
    for number in range(150):
        handles.append(Chain.enqueue() if number % 5 == 0 else Single.enqueue(name=f"{number}", key=f"{number}"))
        User.objects.create(username=f"web {number}")
    outcomes = wait_all(handles, 60)
    assert all(outcome.succeeded for outcome in outcomes)
    assert recorder.count("run charge") == 120
    assert [recorder.count(f"run c{number}") for number in range(1, 7)] == [30] * 6
    assert not worker.log_lines("locked|Traceback|ERROR")


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """What of a connection's settings can travel as JSON."""
    return {name: value for name, value in settings.items() if name not in {"TEST"}}


def test_the_next_worker_keeps_what_a_parked_tree_holds(live_worker: StartWorker, recorder: Recorder) -> None:
    """A restart with a park in between: adopted, not acquired anew, and nobody got in meanwhile."""
    worker = live_worker(concurrency=1, settings={"REACTOR_COORD": PATIENT})
    with testing.hold("inner") as held:
        handle = Guarded.enqueue(outer_key="outer", key="inner")
        wait_parked(handle)
        rival = Single.enqueue(key="outer")
        wait_parked(rival)
        worker.kill()
        live_worker(concurrency=1, settings={"REACTOR_COORD": PATIENT})
        kept = inspect.look("outer").hold
        assert kept is not None
        assert kept.owner == str(handle.id)
        held.release()
        assert handle.wait(PATIENCE).succeeded
        assert rival.wait(PATIENCE).succeeded
    assert recorder.sequence() == ["run before", "run charge", "run behind", "run charge"]
