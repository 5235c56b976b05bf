"""The clock by which leases and due times are decided: one clock for everybody who shares the rows.

On PostgreSQL that is the server's, so that hosts whose clocks differ agree on when a lease is over. Elsewhere it is the
process's: SQLite is one host by nature, and its own date arithmetic yields strings that do not compare with Django's.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import connections, router
from django.db.models import DateTimeField, ExpressionWrapper, Value
from django.db.models.functions import Now
from django.utils import timezone

from reactor_coord.models import Execution


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


def read(using: str) -> datetime:
    """The present of the deciding clock, as a value. Costs a query on PostgreSQL."""
    if not is_postgresql(using):
        return timezone.now()
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        present: datetime = cursor.fetchone()[0]
        return present
