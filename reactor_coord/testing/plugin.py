"""The pytest plugin: a prefix per test, captured dispatches, live workers whose logs show when a test fails, the recorder.

Importing it is cheap and touches no model: pytest loads it in every project that has the package installed, before
Django's settings are read. A test that uses none of its fixtures is not changed by it.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from reactor_coord.testing.dispatches import Dispatches
    from reactor_coord.testing.recorder import Recorder
    from reactor_coord.testing.worker import LiveWorker

LOG_TAIL = 20_000

StartWorker = Callable[..., "LiveWorker"]


@pytest.fixture(scope="session")
def live_worker_app() -> str:
    """The Celery app of live workers, as for `celery -A`; override it in your conftest."""
    if name := os.environ.get("CELERY_APP"):
        return name
    raise pytest.UsageError("live workers need to know the Celery app: define a fixture live_worker_app in conftest.py")


@pytest.fixture
def reactor_settings(settings: Any) -> Callable[..., None]:
    """Lay values over `REACTOR_COORD` for this test: `reactor_settings(SNOOZE_BASE_DELAY=60)`."""

    def lay_over(**values: Any) -> None:
        settings.REACTOR_COORD = {**getattr(settings, "REACTOR_COORD", {}), **values}

    return lay_over


@pytest.fixture
def reactor_prefix(request: pytest.FixtureRequest, reactor_settings: Callable[..., None]) -> Iterator[str]:
    """A `KEY_PREFIX` of this test's own; what is left under it is deleted afterwards.

    A test that shares its module's worker has that worker's prefix and queue.
    """
    if "shared_worker" in request.fixturenames:
        prefix = str(request.getfixturevalue("shared_worker").prefix)
        reactor_settings(KEY_PREFIX=prefix, QUEUE=prefix)
        yield prefix
        return
    prefix = f"rct-{uuid.uuid4().hex[:12]}"
    reactor_settings(KEY_PREFIX=prefix)
    yield prefix
    _delete_keys(prefix)


@pytest.fixture(autouse=True)
def _prefix_of_its_own(request: pytest.FixtureRequest) -> None:
    """A test with a database shares no key with another, nor with what runs in development."""
    if request.node.get_closest_marker("django_db") or {"db", "transactional_db"} & set(request.fixturenames):
        request.getfixturevalue("reactor_prefix")


@pytest.fixture
def reactor_dispatches(reactor_settings: Callable[..., None]) -> Iterator[Dispatches]:
    """What would have gone to the broker: `[dispatch.execution_id for dispatch in reactor_dispatches]`. Nothing goes."""
    from reactor_coord.testing import dispatches

    reactor_settings(DISPATCHER=dispatches.PATH)
    dispatches.captured.clear()
    yield dispatches.captured
    dispatches.captured.clear()


@pytest.fixture
def recorder(reactor_prefix: str) -> Recorder:
    """The overlap recorder of this test, empty. Bodies reach it by `recorder.current()`."""
    from reactor_coord.testing import recorder as recorders

    current = recorders.current()
    current.clear()
    return current


@pytest.fixture
def fault_points(reactor_prefix: str) -> Iterator[Callable[[Mapping[str, Mapping[str, Any]]], None]]:
    """Install fault points in *this* process for the test; a live worker takes its own as `faults=`."""
    from reactor_coord import probes
    from reactor_coord.testing import faults

    before = probes.listener
    yield faults.install
    probes.listener = before


@pytest.fixture
def live_worker(
    live_worker_app: str, recorder: Recorder, transactional_db: None, reactor_settings: Callable[..., None]
) -> Iterator[StartWorker]:
    """Start workers on this test's prefix and database: `live_worker(concurrency=2, faults=...)`. Stopped afterwards.

    What is given in `settings={"REACTOR_COORD": ...}` holds in the test's own process as well.
    """
    from django.conf import settings as project

    from reactor_coord.testing.worker import LiveWorker

    workers: list[LiveWorker] = []

    def start(app: str = "", **options: Any) -> LiveWorker:
        given = dict(options.pop("settings", {}))
        reactor_settings(**given.get("REACTOR_COORD", {}))
        given["REACTOR_COORD"] = project.REACTOR_COORD
        worker = LiveWorker(app or live_worker_app, settings=given, recorder=recorder, **options)
        workers.append(worker)
        return worker.start()

    _purge()
    yield start
    for worker in workers:
        worker.stop(timeout=0)  # a test that cares for a warm shutdown has waited for it


@pytest.fixture(scope="module")
def shared_worker(request: pytest.FixtureRequest, live_worker_app: str, django_db_setup: None) -> Iterator[LiveWorker]:
    """One worker for all tests of a module that ask for it: quicker where nothing is killed. They share its prefix.

    It consumes a queue of its own, named as its prefix, so that a test beside it can have workers by `live_worker`. The
    module may lay over `REACTOR_COORD` by a dict `WORKER_SETTINGS`.
    """
    from django.conf import settings as project

    from reactor_coord.testing.worker import LiveWorker

    prefix = f"rct-{uuid.uuid4().hex[:12]}"
    module_settings = getattr(request.module, "WORKER_SETTINGS", {})
    merged = {**project.REACTOR_COORD, **module_settings, "KEY_PREFIX": prefix, "QUEUE": prefix}
    with LiveWorker(live_worker_app, settings={"REACTOR_COORD": merged}, queues=[prefix]) as worker:
        yield worker
    _delete_keys(prefix)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows what its workers wrote."""
    report = yield
    if report.failed:
        from reactor_coord.testing import worker

        for live in worker.started:
            report.sections.append((f"log of live worker {live.name}", live.log()[-LOG_TAIL:]))
    return report


def _purge() -> None:
    """Messages that an earlier test left in the queue are not this test's."""
    from celery import current_app

    with current_app.connection_for_write() as connection:
        channel: Any = connection.default_channel
        channel.queue_purge(current_app.conf.task_default_queue)


def _delete_keys(prefix: str, patience: float = 1.0) -> None:
    """What a test left under its prefix; nobody else's keys are touched. A server that a test broke keeps them."""
    import redis

    from reactor_coord.testing import recorder as recorders

    client = recorders.client(recorders.current().url)
    deadline = time.monotonic() + patience
    try:
        keys = list(client.scan_iter(match=f"{prefix}:*", count=1000))
        while keys and time.monotonic() < deadline:
            client.delete(*keys[:500])
            keys = keys[500:]
    except redis.RedisError:
        return
