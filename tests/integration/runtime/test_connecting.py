"""Database connections between messages: kept as `CONN_MAX_AGE` has it, hidden from Celery, tried before they are used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from reactor_coord.models import Execution
from reactor_coord.workers.connecting import kept_connections

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def max_age(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Connections that are made now are kept for ever."""
    connection.close()
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", None)
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", None)
    yield
    with kept_connections():
        connection.close()


def used() -> tuple[BaseDatabaseWrapper, Any]:
    """Use the database as a message does; what was used."""
    with kept_connections():
        assert not Execution.objects.exists()
        return connections["default"], connections["default"].connection


def close_as_celery_does() -> None:
    """Before and after each task."""
    for each in connections.all(initialized_only=True):
        each.close()


def test_the_next_message_has_the_same_connection(max_age: None) -> None:
    _, first = used()
    close_as_celery_does()
    assert used()[1] is first


@pytest.mark.skipif(connection.vendor == "sqlite", reason="a file has no server that could go away")
def test_a_connection_that_died_meanwhile_is_replaced(max_age: None) -> None:
    _, first = used()
    first.close()
    assert used()[1] is not first


def test_without_conn_max_age_nothing_is_kept() -> None:
    connection.close()
    wrapper, first = used()
    assert first is not None
    assert wrapper.connection is None
