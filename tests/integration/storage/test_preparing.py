"""Prepared checkpoints: where nothing stands between, unless the project has decided, and never while queries are logged."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from reactor_coord.storage.preparing import PREPARE_AFTER, preparing_cursor

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(connection.vendor != "postgresql", reason="only PostgreSQL has a statement to prepare"),
]


def prepared_after(times: int) -> list[str]:
    """The texts that the server has prepared on this connection after so many executions of one."""
    for _ in range(times):
        with preparing_cursor(connection) as cursor:
            cursor.execute("SELECT %s::text AS looked_for", ["x"])
            assert cursor.fetchone() == ("x",)
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement FROM pg_prepared_statements")
        return [row[0] for row in cursor.fetchall() if "looked_for" in row[0]]


@pytest.fixture(autouse=True)
def fresh_connection() -> None:
    connection.close()


def test_what_is_sent_often_is_prepared_and_nothing_else_of_the_project() -> None:
    assert len(prepared_after(PREPARE_AFTER + 1)) == 1
    for _ in range(PREPARE_AFTER + 5):
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 + %s AS of_the_project", [1])
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%of_the_project%'")
        assert cursor.fetchone() == (0,)


def test_a_pooler_in_between_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It greets with a process number of its own: here the query is answered as if by another process."""
    connection.ensure_connection()
    link: Any = connection.connection
    usual = link.execute
    monkeypatch.setattr(link, "execute", lambda sql: usual(sql.replace("pg_backend_pid()", "pg_backend_pid() + 1")))
    assert prepared_after(PREPARE_AFTER + 5) == []


def test_the_project_has_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"prepare_threshold": None})
    assert prepared_after(PREPARE_AFTER + 5) == []


def test_logged_queries_are_readable() -> None:
    with CaptureQueriesContext(connection) as captured:
        for _ in range(PREPARE_AFTER + 5):
            with preparing_cursor(connection) as cursor:
                cursor.execute("SELECT %s AS looked_for", ["x"])
    assert {query["sql"] for query in captured.captured_queries} == {"SELECT 'x' AS looked_for"}
