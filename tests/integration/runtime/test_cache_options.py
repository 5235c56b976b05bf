"""B025: whatever the project's cache alias is configured for, all primitives behave the same."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from reactor_coord import (
    step,
    testing,
    with_lock,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)
from reactor_coord.coordination import inspect
from tests.integration.runtime.support import Background, failure, runs, told
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)

_numbers = itertools.count()

POOL = {"decoded": {"decode_responses": True}, "raw": {"decode_responses": False}}
CACHE: dict[str, dict[str, Any]] = {
    "plain": {},
    "prefixed": {"KEY_PREFIX": "myproject", "VERSION": 7},
    "compressed": {"OPTIONS": {"COMPRESSOR": "django_redis.compressors.zlib.ZlibCompressor"}},
    "json": {"OPTIONS": {"SERIALIZER": "django_redis.serializers.json.JSONSerializer"}},
}


@pytest.fixture(params=[(pool, cache) for pool in POOL for cache in CACHE], ids="-".join)
def configured(request: pytest.FixtureRequest, settings: Any) -> None:
    """The project's alias with these options; a pool of its own, for django-redis keeps one for each address."""
    pool, cache = request.param
    default = settings.CACHES["default"]
    given = CACHE[cache]
    options = {**default["OPTIONS"], **given.get("OPTIONS", {}), "CONNECTION_POOL_KWARGS": POOL[pool]}
    location = f"{default['LOCATION']}?client_name=options{next(_numbers)}"
    settings.CACHES = {**settings.CACHES, "default": {**default, **given, "LOCATION": location, "OPTIONS": options}}


class Locked(Named):
    charge = step(Work, coordination=[with_lock("l:{name}", ttl=5)])


class Slotted(Named):
    charge = step(Work, coordination=[with_semaphore("s:{name}", limit=1, ttl=5)])


class Counted(Named):
    charge = step(Work, coordination=[with_rate_limit("r:{name}", limit=2, period=3600)])


class Daily(Named):
    charge = step(Work, coordination=[with_period("p:{name}", every="year")])


class InOrder(Named):
    charge = step(Work, coordination=[with_ordered_lock("o:{name}")])


@pytest.mark.usefixtures("configured")
def test_b025_lock() -> None:
    with testing.hold("l:\u00e9"):
        outcome = Locked.run(name="\u00e9")
        assert failure(outcome).error.key == "l:\u00e9"
        assert "testing.hold" in failure(outcome).error.holder
    assert Locked.run(name="\u00e9").succeeded
    testing.assert_free("l:\u00e9")


@pytest.mark.usefixtures("configured")
def test_b025_lock_handed_over_and_seen(reactor_dispatches: Any) -> None:
    with testing.hold("l:a"):
        handle = Locked.enqueue(name="a")
        testing.drain()
        assert handle.status == "parked"
        (waiter,) = inspect.line("l:a")
        assert waiter.execution == str(handle.id)
    assert reactor_dispatches.ids == [str(handle.id)]
    testing.drain()
    assert handle.status == "completed"
    assert [row[0] for row in told(handle, "granted", "acquired", "released")] == ["granted", "acquired", "released"]


@pytest.mark.usefixtures("configured")
def test_b025_semaphore() -> None:
    with testing.hold("s:a", "semaphore"):
        assert failure(Slotted.run(name="a")).error_type == "SemaphoreContended"
    assert Slotted.run(name="a").succeeded


@pytest.mark.usefixtures("configured")
def test_b025_rate_limit() -> None:
    outcomes = [Counted.run(name="a") for _ in range(3)]
    assert [outcome.succeeded for outcome in outcomes] == [True, True, False]
    assert failure(outcomes[2]).error_type == "RateLimitExceeded"


@pytest.mark.usefixtures("configured")
def test_b025_period() -> None:
    assert Daily.run(name="a").succeeded
    again = Daily.run(name="a")
    assert again.succeeded
    assert runs(again)["charge"].reason == "period"


@pytest.mark.usefixtures("configured")
def test_b025_ordered_lock(reactor_dispatches: Any) -> None:
    handles = [InOrder.enqueue(name="a") for _ in range(3)]
    testing.drain(timeout=5)
    assert [handle.status for handle in handles] == ["completed"] * 3


@pytest.mark.usefixtures("configured")
def test_b025_a_blocking_wait() -> None:
    class Patient(Named):
        charge = step(Work, coordination=[with_lock("w:{name}", ttl=5, wait=5)])

    with testing.hold("w:a") as held:
        running = Background(lambda: Patient.run(name="a"))
        while not inspect.line("w:a"):
            assert not running.is_done
        held.release()
        assert running.result().succeeded
