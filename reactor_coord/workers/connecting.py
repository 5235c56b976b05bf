"""Database connections kept from one message to the next, for as long as the project's `CONN_MAX_AGE` allows.

Celery closes every connection before and after each task, so that a wake would pay for a new one each time, on PostgreSQL
several times what everything else of it costs. Here they are put out of its sight between messages. One that is taken up
again is tried first, whatever `CONN_HEALTH_CHECKS` says: a message that meets a dead one would be spent for nothing, and
its execution would wait for the sweep. Without `CONN_MAX_AGE` nothing is kept.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper


class _Kept(threading.local):
    """A thread's own, and a process's: a child of a fork must not speak on its parent's sockets."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.wrappers: dict[str, BaseDatabaseWrapper] = {}


_kept = _Kept()


@contextlib.contextmanager
def kept_connections() -> Iterator[None]:
    """Have the block use the connections of the block before it on this thread."""
    _take_up()
    try:
        yield
    finally:
        _put_aside()


def _take_up() -> None:
    if _kept.pid != os.getpid():
        _kept.__init__()  # type: ignore[misc]
    while _kept.wrappers:
        alias, kept = _kept.wrappers.popitem()
        if connections[alias].connection is None:
            connections[alias] = kept
            kept.close_if_unusable_or_obsolete()
            if kept.connection is not None and not kept.is_usable():
                kept.close()
        else:
            kept.close()


def _put_aside() -> None:
    for connection in connections.all(initialized_only=True):
        connection.close_if_unusable_or_obsolete()
        if connection.connection is not None and not connection.in_atomic_block:
            _kept.wrappers[connection.alias] = connection
            del connections[connection.alias]
