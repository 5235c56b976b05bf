"""Counting queries: what a process asks once, whoever comes first, is asked before the count begins.

A test that counts by itself passes or fails by what ran before it in its process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection
from django.test.utils import CaptureQueriesContext

from reactor_coord.storage import clock


@contextmanager
def counted_queries() -> Iterator[CaptureQueriesContext]:
    """The queries of the block on the default database, in a process that knows its server's time."""
    clock.present()
    with CaptureQueriesContext(connection) as queries:
        yield queries
