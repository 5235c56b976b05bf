"""Redis and the broker that are slow, lose an answer, or start empty: in front of a worker, from outside."""

from __future__ import annotations

import time
from typing import Any

import pytest

from reactor_coord.engine.states import is_terminal
from reactor_coord.testing.plugin import StartWorker
from reactor_coord.testing.proxy import Proxy
from reactor_coord.testing.recorder import Recorder
from tests.live.models import Posting
from tests.live.reactors import Brief, Defaults, Guarded, Silent, Single
from tests.live.support import events, is_busy, until, wait_all, wait_free
from tests.support import bench as benches
from tests.support.patience import PATIENCE, patience

pytestmark = pytest.mark.django_db(transaction=True)

SETTINGS: dict[str, Any] = {
    "SNOOZE_BASE_DELAY": 0.5,
    "SNOOZE_MAX_DELAY": 0.5,
    "SNOOZE_JITTER": 0,
    "SNOOZE_MAX_ATTEMPTS": None,
    "SWEEP_INTERVAL": 0.5,
    "LEASE_TTL": 5,
}


@pytest.fixture
def proxy() -> Any:
    with Proxy(benches.bench().redis_url) as between:
        yield between


def behind(proxy: Proxy) -> dict[str, Any]:
    """A worker whose coordination goes through the proxy; its broker and its recorder do not."""
    cache = {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": proxy.url,
        "OPTIONS": {"CLIENT_CLASS": "django_redis.client.DefaultClient"},
    }
    return {
        "settings": {"REACTOR_COORD": SETTINGS, "CACHES": {"default": cache}},
        "env": {"REACTOR_COORD_RECORDER_URL": benches.bench().redis_url},
    }


def test_b006_an_answer_later_than_the_ttl_is_no_hold(
    live_worker: StartWorker, recorder: Recorder, proxy: Proxy
) -> None:
    live_worker(**behind(proxy))
    proxy.delay_down = 1.5  # of a ttl of 1
    handles = [Brief.enqueue(name=name, key="k", seconds=0.3) for name in "ab"]
    time.sleep(3)  # two answers come too late meanwhile, for each
    assert recorder.sequence() == []
    proxy.delay_down = 0.0
    outcomes = wait_all(handles, 20)
    assert all(outcome.succeeded for outcome in outcomes)
    assert recorder.max_concurrency("run charge") == 1
    wait_free("k")


@pytest.mark.parametrize("lost", [1, 2])
def test_b007_a_lost_answer_neither_runs_unprotected_nor_blocks(
    live_worker: StartWorker, recorder: Recorder, proxy: Proxy, lost: int
) -> None:
    """One lost answer is asked for again; with two the execution steps aside, and what it may have got is given back."""
    live_worker(**behind(proxy))
    proxy.swallow_replies(lost, match=b"the key")
    outcome = Defaults.enqueue(name="first", key="the key").wait(patience(15))
    assert proxy.swallowed == lost
    assert outcome.succeeded
    assert [event.data["park_kind"] for event in events(outcome, "parked")] == ["retry"] * (lost - 1)
    wait_free("the key")  # of a ttl of 60
    assert Defaults.enqueue(name="second", key="the key").wait(PATIENCE).succeeded


def test_u109_a_workflow_waits_out_a_redis_that_is_stopped_and_started(
    live_worker: StartWorker, recorder: Recorder, proxy: Proxy
) -> None:
    """The server is away for seconds, at a step and around a reactor, held and free: nothing is undone, nothing fails."""
    live_worker(**behind(proxy))
    holding = Single.enqueue(name="holding", key="held", seconds=1.0)
    recorder.wait_for("run charge")
    proxy.refuse()
    handles = [Single.enqueue(name=f"{number}", key="held") for number in range(3)]
    handles += [Guarded.enqueue(name="around", outer_key="around", key="inside")]
    until(lambda: all(_waits_for_redis(handle) for handle in handles), "all to wait for Redis")
    proxy.refuse(False)
    outcomes = wait_all([holding, *handles], 40)
    assert all(outcome.succeeded for outcome in outcomes)
    assert recorder.max_concurrency("run charge") == 1
    assert not any(label.startswith(("undo", "comp")) for label in recorder.sequence())
    wait_free("held")


def _waits_for_redis(handle: Any) -> bool:
    waits_on = handle.execution.waits_on
    return waits_on is not None and waits_on.outage_since is not None


def test_b092_a_broker_that_lost_everything_loses_no_work(live_worker: StartWorker, recorder: Recorder) -> None:
    """Redis starts empty, three times, under load: its messages, holds and lines are gone, the rows are not.

    A Celery worker whose broker goes may end by itself (kombu stumbles over the connection it had): then it is started again,
    as whoever keeps workers running does.
    """
    server = benches.valkey
    if server is None:
        pytest.skip("the Redis of REDIS_URL is not ours to restart")
    workers = [live_worker(settings={"REACTOR_COORD": SETTINGS})]
    plain = [Silent.enqueue(account=f"{number}") for number in range(60)]
    locked = [Single.enqueue(key=f"{number % 3}", seconds=0.01) for number in range(30)]
    for _ in range(3):
        until(lambda: Posting.objects.count() > 0, "some work done")
        server.restart()
        time.sleep(0.3)  # some of it goes on before the next

    def is_over() -> bool:
        if not workers[-1].is_running:
            workers.append(live_worker(settings={"REACTOR_COORD": SETTINGS}))
        return all(is_terminal(handle.status) for handle in [*plain, *locked])

    until(is_over, "all to be over", 90)
    outcomes = wait_all(plain, 60)
    assert all(outcome.succeeded for outcome in outcomes)
    assert Posting.objects.count() == 180
    # A step that met no Redis waited for it.
    assert all(outcome.succeeded for outcome in wait_all(locked, 60))
    for number in range(3):
        assert not is_busy(f"{number}")
