"""What the rows stand on: a Valkey and a durable PostgreSQL of our own, a SQLite file, Django, and workers on request."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reactor_coord.testing.servers import PostgresServer, ValkeyServer
from reactor_coord.testing.worker import LiveWorker


@dataclass(frozen=True, slots=True)
class Stage:
    """The servers, and whether little time is given."""

    valkey: ValkeyServer
    postgres: PostgresServer
    is_quick: bool

    def either(self, usual: int, quick: int) -> int:
        """How often, or how many."""
        return quick if self.is_quick else usual

    @contextlib.contextmanager
    def workers(self, concurrency: int, *, options: Sequence[str] = (), **settings: Any) -> Iterator[LiveWorker]:
        """A Celery worker with that many processes, which is killed at the end: it has nothing left to finish."""
        worker = LiveWorker("bench.celery_app", concurrency=concurrency, options=options, settings=settings).start()
        try:
            yield worker
        finally:
            worker.kill()
            worker.stop(timeout=0)


@contextlib.contextmanager
def stage(*, is_quick: bool) -> Iterator[Stage]:
    """Start the servers, set Django up on them and create the tables."""
    directory = Path(tempfile.mkdtemp(prefix="rc-bench-"))
    try:
        with ValkeyServer() as valkey, PostgresServer(durable=True) as postgres:
            os.environ |= {
                "DJANGO_SETTINGS_MODULE": "bench.settings",
                "BENCH_REDIS_URL": valkey.url,
                "BENCH_DATABASE_URL": postgres.url,
                "BENCH_SQLITE": str(directory / "bench.sqlite3"),
            }
            _set_up_django()
            yield Stage(valkey, postgres, is_quick)
            _disconnect()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _set_up_django() -> None:
    import django
    from django.core.management import call_command

    django.setup()
    import bench.celery_app  # noqa: F401 - the app that this process sends with

    for alias in ("default", "sqlite"):
        call_command("migrate", database=alias, verbosity=0)


def _disconnect() -> None:
    from django.db import connections

    connections.close_all()
