"""Every test here is `live`: real worker processes, real kills. Workers are not asked to leave at the end, which takes seconds.

A module has either one shared worker or workers of its tests' own: they consume one queue.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reactor_coord.testing.plugin import StartWorker
from reactor_coord.testing.recorder import Recorder
from reactor_coord.testing.worker import LiveWorker
from tests.live import remote
from tests.support.patience import PATIENCE, SLOWNESS

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Called with the whole session's items: mark those of this directory."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.live)
            item.add_marker(pytest.mark.timeout(180 * SLOWNESS))


@pytest.fixture
def live_worker(live_worker: StartWorker) -> Iterator[StartWorker]:
    """As in the plugin; what still runs at the end is killed."""
    workers: list[LiveWorker] = []

    def start(*args: Any, **options: Any) -> LiveWorker:
        worker = live_worker(*args, **options)
        workers.append(worker)
        return worker

    yield start
    for worker in workers:
        worker.kill()


@pytest.fixture
def recorder(recorder: Recorder) -> Recorder:
    """As in the plugin; it waits as long as this machine may need."""
    recorder.patience = PATIENCE
    return recorder


@pytest.fixture(scope="module", autouse=True)
def _remote_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    """A module that says `REMOTE_FAULTS = True` arms fault points while its worker runs; see `remote`."""
    if getattr(request.module, "REMOTE_FAULTS", False):
        os.environ[remote.ENVIRONMENT] = "1"
        yield
        del os.environ[remote.ENVIRONMENT]
    else:
        yield


@pytest.fixture(scope="module")
def shared_worker(_remote_faults: None, shared_worker: LiveWorker) -> Iterator[LiveWorker]:
    """As in the plugin; killed at the end."""
    yield shared_worker
    shared_worker.kill()
