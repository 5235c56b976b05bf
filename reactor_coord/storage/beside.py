"""Trace rows that do not wait for a checkpoint: written beside the work, in no transaction of its.

They may be written by another thread, while the work has a transaction open that will not end before its body does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from django.db import DatabaseError, connections, transaction

from reactor_coord.models import TraceEvent
from reactor_coord.storage import clock
from reactor_coord.storage.checkpoint import insert_trace

logger = logging.getLogger("reactor_coord")

PATIENCE_MS = 500
"""For how long SQLite waits for another writer here: that one may wait for this thread."""


def record(events: Sequence[TraceEvent]) -> bool:
    """Append events in a transaction of their own; False when that cannot be done now.

    It cannot while this thread has a transaction open, nor before the execution is committed, nor while SQLite is locked by
    the very transaction of the body.
    """
    using = clock.alias()
    if connections[using].in_atomic_block:
        return False
    try:
        with _impatient(using), transaction.atomic(using=using):
            insert_trace(using, events)
    except DatabaseError as error:
        logger.debug("event=reactor_coord.trace_waits_for_checkpoint error=%s", error)
        return False
    return True


@contextmanager
def _impatient(using: str) -> Iterator[None]:
    """On SQLite, wait for another writer not as long as the project has it."""
    if connections[using].vendor != "sqlite":
        yield
        return
    with connections[using].cursor() as cursor:
        before = cursor.execute("PRAGMA busy_timeout").fetchone()[0]
        cursor.execute(f"PRAGMA busy_timeout = {PATIENCE_MS}")
        try:
            yield
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {int(before)}")
