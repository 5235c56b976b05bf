"""Which open transaction decides whether a start happens: that of the rows' database, or else one on another.

A project may keep its own models in one database and the rows of executions in another, by a router. A start inside
`atomic()` on the first must leave nothing behind when that rolls back, though its row is none of that database's. So it is
inserted when that transaction commits; until then its id is known and its row is not there.
"""

from __future__ import annotations

from django.db import connections

from reactor_coord.storage import clock


def database() -> str:
    """The alias whose commit counts now: the rows' own unless only another has a transaction open."""
    rows = clock.alias()
    if connections[rows].in_atomic_block:
        return rows
    # Asked only of connections that exist in this thread: none is opened for it.
    others = (each.alias for each in connections.all(initialized_only=True) if _is_open(each))
    return next(others, rows)


def _is_open(connection: object) -> bool:
    blocks = getattr(connection, "atomic_blocks", ())
    return any(not getattr(block, "_from_testcase", False) for block in blocks)
