"""Where the demo keeps its things: `.demo/` beside manage.py, or the folder `DEMO_DIR` names.

In it: the SQLite file, the worker's log, the journal the bodies write, the courier's book, the letters that were sent, and,
while `demo` or `serve` runs with the embedded Valkey, the address of it, so that a command in another terminal finds it too.
Settings read this module: it imports nothing of Django.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent
ADDRESS = "redis-url"
PARENT = "DEMO_PARENT"


class PlaceTaken(Exception):
    """Another `demo` or `serve` uses the folder right now."""


def folder() -> Path:
    """The demo's folder; made when it is not there."""
    path = BASE_DIR / os.environ.get("DEMO_DIR", ".demo")
    path.mkdir(parents=True, exist_ok=True)
    return path


def database_file() -> Path:
    """The SQLite file used where `DATABASE_URL` is not set."""
    return folder() / "demo.sqlite3"


def worker_log() -> Path:
    """What the worker of the last `demo` or `serve` wrote."""
    return folder() / "worker.log"


def journal() -> Path:
    """What the bodies say about when they ran."""
    return folder() / "journal.jsonl"


def courier_book() -> Path:
    """What the courier of the demo says about who came when."""
    return folder() / "courier.jsonl"


def embedded_redis_url() -> str | None:
    """The address of the embedded Valkey of a `demo` or `serve` that runs now, else None."""
    try:
        return (folder() / ADDRESS).read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


@contextmanager
def address_published(url: str) -> Iterator[None]:
    """Tell other processes of this checkout where the embedded Valkey listens, for as long as the block runs."""
    path = folder() / ADDRESS
    path.write_text(url, encoding="utf-8")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def place_held() -> Iterator[None]:
    """Be the only `demo` or `serve` in this folder. The kernel lets go of the file when the process ends, however it ends.

    A child that such a process started for itself (`PARENT` is set) is let in.
    """
    if PARENT in os.environ:
        yield
        return
    with (folder() / "in-use").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PlaceTaken(
                f"another `manage.py demo` or `manage.py serve` uses {folder()} right now: "
                "end it first, or set DEMO_DIR to another folder"
            ) from error
        yield


def forget_everything() -> None:
    """Start afresh: the SQLite file, the journals and the letters of the last demo go."""
    for pattern in ("demo.sqlite3*", "*.jsonl", "worker.log", "mail/*"):
        for path in folder().glob(pattern):
            path.unlink(missing_ok=True)
