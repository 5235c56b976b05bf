"""One process of a crowd, and the locks it may stand before. Imports no models, so that a fork server can import it first."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event, Semaphore

import django_redis  # noqa: F401 - imported before the fork, like all below
import redis
import redis_lock
from django.conf import settings

from bench.result import check
from reactor_coord.coordination import Locks, Taken
from reactor_coord.coordination.connection import Connection
from reactor_coord.coordination.keys import Names
from reactor_coord.coordination.types import Requester

BODY = 0.005
OURS = "this package"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one process saw: when its bodies began and ended, by the clock that all share."""

    bodies: tuple[tuple[float, float], ...]


def stand(name: str, url: str, seconds: float, ready: Semaphore, go: Event, results: SimpleQueue[Seen]) -> None:
    """The life of one process of the crowd."""
    hold = MAKERS[name](url)
    bodies: list[tuple[float, float]] = []
    with hold("bench:warm-up:" + multiprocessing.current_process().name):
        pass
    ready.release()
    go.wait()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with hold("bench:crowd"):
            began = time.monotonic()
            if began >= end:
                break
            time.sleep(BODY)
            bodies.append((began, time.monotonic()))
    results.put(Seen(tuple(bodies)))


Hold = Callable[[str], AbstractContextManager[object]]


def _ours(url: str) -> Hold:
    if not settings.configured:
        settings.configure(CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": url}})
    locks = Locks(Connection("default"), Names("bench-crowd"))
    who = Requester(owner=f"process-{os.getpid()}", claim="bench")

    @contextlib.contextmanager
    def hold(key: str) -> Iterator[None]:
        taken = locks.wait([key], who, ttl=30, timeout=60)
        check(isinstance(taken, Taken), f"refused after a minute: {taken}")
        assert isinstance(taken, Taken)
        try:
            yield
        finally:
            locks.give(taken)

    return hold


def _redis_py(url: str, *, sleep: float) -> Hold:
    client = redis.Redis.from_url(url)
    return lambda key: client.lock(f"redis-py:{key}", timeout=30, sleep=sleep)


def _python_redis_lock(url: str) -> Hold:
    client = redis.Redis.from_url(url)
    return lambda key: redis_lock.Lock(client, key, expire=30)


MAKERS: dict[str, Callable[[str], Hold]] = {
    OURS: _ours,
    "python-redis-lock": _python_redis_lock,
    "redis-py Lock, polling every 10 ms": functools.partial(_redis_py, sleep=0.01),
    "redis-py Lock, as it comes (100 ms)": functools.partial(_redis_py, sleep=0.1),
}
