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
from tests.live.reactors import Brief, Defaults, Silent, Single
from tests.live.support import is_busy, until, wait_all, wait_free
from tests.support import bench as benches

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
    """One lost answer is asked for again; with two the step gives up, and what it may have got is given back."""
    live_worker(**behind(proxy))
    proxy.swallow_replies(lost, match=b"the key")
    outcome = Defaults.enqueue(name="first", key="the key").wait(15)
    assert proxy.swallowed == lost
    if lost == 1:
        assert outcome.succeeded
    else:
        assert outcome.failed
        assert outcome.failure is not None
        assert outcome.failure.error_type == "CoordinationUnavailable"
        assert recorder.sequence() == []
    wait_free("the key")  # of a ttl of 60
    assert Defaults.enqueue(name="second", key="the key").wait(5).succeeded


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
    # A step that met no Redis failed before its body; whatever met one is done. Nothing waits for ever.
    ended = wait_all(locked, 60)
    for outcome in ended:
        assert outcome.succeeded or outcome.failure is not None
        if outcome.failure is not None:
            assert outcome.failure.error_type in {"CoordinationUnavailable", "ConnectionError"}
    for number in range(3):
        assert not is_busy(f"{number}")
