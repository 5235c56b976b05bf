"""Workers that hang and come back, bodies that let nobody else run: whoever was given up on changes nothing any more."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord.testing.plugin import StartWorker
from reactor_coord.testing.proxy import Proxy
from reactor_coord.testing.recorder import Recorder
from tests.live.reactors import Brief, Chain, Hard, Unkept, Watchful
from tests.live.support import events, kinds, step_run, until, wait_all, wait_parked
from tests.support.bench import bench
from tests.support.patience import PATIENCE, patience

pytestmark = pytest.mark.django_db(transaction=True)

SETTINGS = {
    "SNOOZE_BASE_DELAY": 0.5,
    "SNOOZE_MAX_DELAY": 0.5,
    "SNOOZE_JITTER": 0,
    "SNOOZE_MAX_ATTEMPTS": None,
    "SWEEP_INTERVAL": 0.3,
    "LEASE_TTL": 1,
    "HANDOFF_GRACE": 1,
}


def test_b086_a_late_result_of_a_superseded_attempt_is_refused(live_worker: StartWorker, recorder: Recorder) -> None:
    first = live_worker(concurrency=1, settings={"REACTOR_COORD": SETTINGS})
    handle = Chain.enqueue(seconds=0.3)
    recorder.wait_for("run c1")
    first.pause()
    second = live_worker(concurrency=1, settings={"REACTOR_COORD": SETTINGS})
    outcome = handle.wait(patience(20))
    assert outcome.succeeded
    first.resume()
    first.wait_for_log("event=reactor_coord.lease_lost")
    assert recorder.sequence().count("run c1") == 2
    assert [recorder.count(f"run c{number}") for number in range(2, 7)] == [1] * 5
    assert outcome.results["c1"]["pid"] in second.children()
    again = handle.execution
    assert (again.status, again.updated_at) == ("completed", outcome.execution.updated_at)
    assert len(events(handle, "completed")) == 1


def test_b012_who_lost_its_hold_cannot_report_success(live_worker: StartWorker, recorder: Recorder) -> None:
    """The network between one worker and Redis is gone for three ttls; the database is not."""
    with Proxy(bench().redis_url) as proxy:
        cut_off = live_worker(
            concurrency=1,
            settings={"REACTOR_COORD": SETTINGS, "CACHES": _through(proxy)},
            env={"REACTOR_COORD_RECORDER_URL": bench().redis_url},
        )
        handle = Watchful.enqueue(name="cut off", key="k", seconds=3.5)
        recorder.wait_for("run charge")
        proxy.pause()
        recorder.wait_for("saw the loss")  # the body is told while it runs
        live_worker(concurrency=1, settings={"REACTOR_COORD": SETTINGS})
        other = Watchful.enqueue(name="other", key="k", seconds=0.2)
        assert other.wait(PATIENCE).succeeded
        proxy.resume()
        outcome = handle.wait(patience(15))
        assert cut_off.is_running
    assert outcome.failed
    assert outcome.failure is not None
    assert outcome.failure.error_type == "LockLost"
    assert events(handle, "lock_lost", key="k")


def _through(proxy: Proxy) -> dict[str, Any]:
    return {
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": proxy.url,
            "OPTIONS": {"CLIENT_CLASS": "django_redis.client.DefaultClient"},
        }
    }


def test_b099_long_bodies_are_not_taken_for_dead(live_worker: StartWorker, recorder: Recorder) -> None:
    """Ten leases asleep and ten leases computing. A body that holds the interpreter's lock in C is the documented limit."""
    live_worker(concurrency=3, settings={"REACTOR_COORD": {**SETTINGS, "LEASE_TTL": 0.6}})
    asleep, busy = Hard.enqueue(how="asleep", seconds=6), Hard.enqueue(how="busy", seconds=6)
    deaf = Hard.enqueue(how="deaf", seconds=1.5)
    for handle in (asleep, busy):
        outcome = handle.wait(patience(30))
        assert outcome.succeeded
        assert "worker_lost" not in kinds(outcome)
        assert step_run(outcome, "hard").attempts == 1
    # Nothing of its process runs, so its lease cannot be renewed: others take it up, and of all results one counts.
    outcome = deaf.wait(patience(30))
    assert outcome.status in {"completed", "failed"}
    assert recorder.count("run behind") == 2 + outcome.succeeded
    assert len(events(deaf, "completed", "failed")) == 1


def test_b022_a_late_release_frees_nobody_elses_hold(live_worker: StartWorker, recorder: Recorder) -> None:
    live_worker(concurrency=3, settings={"REACTOR_COORD": SETTINGS})
    late = Unkept.enqueue(name="A", key="k", seconds=2.5)
    recorder.wait_for("run charge")
    others = [Brief.enqueue(name=name, key="k", seconds=0.8) for name in "BC"]
    outcomes = wait_all([late, *others])
    bodies = {body.notes["name"]: body for body in recorder.intervals("run charge")}
    assert not bodies["B"].overlaps(bodies["C"])
    assert bodies["A"].left > min(bodies["B"].entered, bodies["C"].entered)  # it lapsed, and another was let in
    assert [outcome.status for outcome in outcomes] == ["failed", "completed", "completed"]
    assert outcomes[0].failure is not None
    assert outcomes[0].failure.error_type == "LockLost"


def test_b002_a_body_of_many_ttls_never_loses_its_lock(live_worker: StartWorker, recorder: Recorder) -> None:
    from tests.live.support import is_busy

    live_worker(concurrency=2, settings={"REACTOR_COORD": SETTINGS})
    holder = Brief.enqueue(name="holder", key="k", seconds=5)
    recorder.wait_for("run charge")
    parked = Brief.enqueue(name="parked", key="k")
    wait_parked(parked)
    [body] = recorder.intervals("run charge")
    until(lambda: not is_busy("k") or recorder.intervals("run charge")[0].left < float("inf"), "free or over", 10)
    assert recorder.intervals("run charge")[0].left - body.entered > 4.9
    outcomes = wait_all([holder, parked])
    assert all(outcome.succeeded for outcome in outcomes)
    assert recorder.max_concurrency("run charge") == 1
    assert not events(holder, "lock_lost")
