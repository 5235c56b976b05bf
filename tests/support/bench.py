"""The servers a test session stands on: started once, before Django reads its settings, and gone with the session.

`tests/settings.py` asks here, because settings are read before any conftest. A Valkey belongs to one pytest process
(each xdist worker has its own, so brokers do not mix); a PostgreSQL is shared by the session, whose workers have a
database each. `REDIS_URL` and `DATABASE_URL`, when given, are used as they are. Outside pytest nothing is started:
a type checker and `manage.py` read the same settings.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from reactor_coord.testing.guard import Guard
from reactor_coord.testing.servers import PostgresServer, ValkeyServer

NOWHERE = "redis://127.0.0.1:1/0"  # refuses connections: a mistake shows at once


@dataclass(frozen=True, slots=True)
class Bench:
    """Where this process finds what it tests against."""

    redis_url: str
    database_url: str  # empty: SQLite
    directory: Path
    run: str  # names queues and prefixes of this process


_started: Bench | None = None
valkey: ValkeyServer | None = None  # ours, or None when REDIS_URL was given


def bench() -> Bench:
    """This process's bench. A subprocess of a test gets its parent's, through the environment."""
    global _started
    if _started is None:
        _started = _start() if _is_pytest() else _inherited()
    return _started


def _is_pytest() -> bool:
    """Asked of this process, not of the environment, which the processes that tests start inherit."""
    return "_pytest.config" in sys.modules


def _inherited() -> Bench:
    return Bench(
        redis_url=os.environ.get("RC_TEST_REDIS_URL") or os.environ.get("REDIS_URL") or NOWHERE,
        database_url=_database_url(),
        directory=Path(os.environ.get("RC_TEST_DIR") or tempfile.gettempdir()),
        run=os.environ.get("RC_TEST_RUN") or str(os.getpid()),
    )


def _start() -> Bench:
    global valkey
    redis_url = os.environ.get("REDIS_URL", "")
    if not redis_url:
        valkey = ValkeyServer().start()
        redis_url = valkey.url
    if _wants_postgres() and not _database_url():
        os.environ["RC_TEST_DATABASE_URL"] = PostgresServer().start().url  # xdist's workers inherit it
    directory = _private_directory()
    run = f"{os.getpid()}"
    os.environ.update(RC_TEST_REDIS_URL=redis_url, RC_TEST_DIR=str(directory), RC_TEST_RUN=run)
    return Bench(redis_url, _database_url(), directory, run)


def _wants_postgres() -> bool:
    return os.environ.get("RC_TEST_DB", "sqlite") == "postgres"


def _database_url() -> str:
    if not _wants_postgres():
        return ""
    return os.environ.get("RC_TEST_DATABASE_URL") or os.environ.get("DATABASE_URL") or ""


def _private_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="rc-tests-"))
    guard = Guard(0, directory)  # removes it when we are killed

    def remove(owner: int = os.getpid()) -> None:
        if os.getpid() == owner:
            guard.release()
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)
    return directory
