"""Locks on a real server: the test session's own, one behind a proxy, or one that the test may break."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from reactor_coord.coordination import Locks, set_waker
from reactor_coord.coordination.connection import Connection
from reactor_coord.coordination.keys import Names
from reactor_coord.testing.proxy import Proxy
from reactor_coord.testing.servers import ValkeyServer

if TYPE_CHECKING:
    from pytest_django import Settings

MakeLocks = Callable[..., Locks]

_numbers = itertools.count()


@pytest.fixture(scope="session")
def redis_url() -> str:
    """The session's server."""
    from django.conf import settings

    return str(settings.CACHES["default"]["LOCATION"])


@pytest.fixture
def make_locks(settings: Settings, redis_url: str, reactor_prefix: str) -> Iterator[MakeLocks]:
    """`make_locks(url, grace=2.0, **options of the cache)`: locks over a cache alias, and so a pool, of their own."""
    made: list[Locks] = []

    def make(url: str = redis_url, *, grace: float = 2.0, prefix: str = reactor_prefix, **options: Any) -> Locks:
        alias = f"own{next(_numbers)}"
        pooled = f"{url}{'&' if '?' in url else '?'}client_name={alias}"  # django-redis keeps one pool for each address
        backend = {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": pooled, "OPTIONS": options}
        settings.CACHES = {**settings.CACHES, alias: backend}
        made.append(Locks(Connection(alias), Names(prefix), handoff_grace=grace))
        return made[-1]

    yield make
    for locks in made:
        locks.connection.close()


@pytest.fixture
def locks(make_locks: MakeLocks) -> Locks:
    """Locks on the session's server, under this test's prefix."""
    return make_locks()


@pytest.fixture
def proxy(redis_url: str) -> Iterator[Proxy]:
    """A proxy before the session's server."""
    with Proxy(redis_url) as standing:
        yield standing


@pytest.fixture
def own_server() -> Iterator[ValkeyServer]:
    """A server that the test may flush, freeze and kill."""
    with ValkeyServer() as server:
        yield server


@pytest.fixture
def woken() -> Iterator[list[str]]:
    """Who was woken through `set_waker`."""
    names: list[str] = []
    set_waker(names.extend)
    yield names
    set_waker(None)
