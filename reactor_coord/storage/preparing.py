"""Prepared statements for the one statement that is sent for every step: parsing and planning are half of its cost.

Django prepares none unless the project's OPTIONS say so, because a pooler that hands server connections out by transaction may
not know them. So they are prepared here only where nothing stands in between: the server process that answers is the
one that greeted the connection. A pooler greets with a number of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.backends.utils import CursorWrapper

PREPARE_AFTER = 2
"""Executions of a text on one connection, until it is prepared."""

_prepares: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def preparing_cursor(connection: BaseDatabaseWrapper) -> CursorWrapper:
    """A cursor that prepares what it executes often, where that is safe; else the usual one.

    Also while queries are logged (`DEBUG`), which should be readable with their values.
    """
    connection.ensure_connection()
    if connection.queries_logged or connection.needs_rollback or not _may_prepare(connection):
        return connection.cursor()
    from psycopg import Cursor

    connection.validate_thread_sharing()
    bound: Any = Cursor(connection.connection)
    return connection.make_cursor(bound)


def _may_prepare(connection: BaseDatabaseWrapper) -> bool:
    link: Any = connection.connection
    known = _prepares.get(link)
    if known is None:
        with connection.wrap_database_errors:
            known = _prepares[link] = _is_left_to_us(connection) and _is_direct(link)
        if known:
            link.prepare_threshold = PREPARE_AFTER
    return known


def _is_left_to_us(connection: BaseDatabaseWrapper) -> bool:
    """Whether the driver is psycopg 3, and the project has not decided itself."""
    options = connection.settings_dict.get("OPTIONS", {})
    has_decided = "prepare_threshold" in options or options.get("server_side_binding")
    return not has_decided and hasattr(connection.connection, "prepare_threshold")


def _is_direct(link: Any) -> bool:
    return bool(link.info.backend_pid == link.execute("SELECT pg_backend_pid()").fetchone()[0])
