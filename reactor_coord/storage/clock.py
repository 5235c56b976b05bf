"""The clock by which leases and due times are decided: one clock for everybody who shares the rows.

On PostgreSQL that is the server's, so that hosts whose clocks differ agree on when a lease is over. Elsewhere it is the
process's: SQLite is one host by nature, and its own date arithmetic yields strings that do not compare with Django's.

What a process writes into a row for others to compare is `present()`: what the server said last, which every claim brings
along, carried on by a clock that nobody sets.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.db import Error, connections, router
from django.db.models import DateTimeField, ExpressionWrapper, Value
from django.db.models.functions import Now
from django.utils import timezone

from reactor_coord.models import Execution

FRESH_SECONDS, SET_SECONDS, DRIFT = 30.0, 1.0, 1e-4
"""The greatest of what was heard counts, for an answer is late by its way, never early; less what two clocks may drift apart.
After so long, one that is behind by this much was set."""

STALE_SECONDS = 300.0
"""After so long the server is asked: no two clocks run quite alike, and another server may have taken over."""

_carried: dict[str, tuple[datetime, float]] = {}
"""By database: what its clock said, and when by ours that nobody sets."""

# Counts a suspended machine's sleep, where the system has one that does. Processes of a host share it: it may cross a fork.
_elapsed = partial(time.clock_gettime, time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic


def alias() -> str:
    """The database that holds the rows, as the project's routers have it. Every query of this package goes there."""
    return router.db_for_write(Execution)


def is_postgresql(using: str) -> bool:
    """Whether the rows live in PostgreSQL, where a checkpoint is one statement."""
    return connections[using].vendor == "postgresql"


def now(using: str, *, plus: float = 0.0) -> Any:
    """The present of the deciding clock and `plus` seconds, as an expression for a filter or an update."""
    if not is_postgresql(using):
        return Value(timezone.now() + timedelta(seconds=plus), output_field=DateTimeField())
    if not plus:
        return Now()
    return ExpressionWrapper(Now() + Value(timedelta(seconds=plus)), output_field=DateTimeField())


def present() -> datetime:
    """The present of the deciding clock, as a value to write. Costs a query in a process that heard of it long ago, or never."""
    using = alias()
    if not settings.USE_TZ or not is_postgresql(using):
        return timezone.now()
    known = _carried.get(using)
    if (known is None or _elapsed() - known[1] > STALE_SECONDS) and not connections[using].needs_rollback:
        try:
            return read(using)
        except Error:  # whoever wants to write notices it by himself
            pass
    return timezone.now() if known is None else _carry(known)


def read(using: str) -> datetime:
    """The present of the deciding clock, as a value. Costs a query on PostgreSQL."""
    if not is_postgresql(using):
        return timezone.now()
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
        heard(using, moment)
        return moment


def heard(using: str, moment: datetime) -> None:
    """Note what the deciding clock has just said."""
    known = _carried.get(using)
    if known is not None:
        age, behind = _elapsed() - known[1], (_carry(known) - moment).total_seconds()
        if behind > DRIFT * age and not (age > FRESH_SECONDS and behind > SET_SECONDS):
            return
    _carried[using] = (moment, _elapsed())


def _carry(known: tuple[datetime, float]) -> datetime:
    return known[0] + timedelta(seconds=_elapsed() - known[1])
