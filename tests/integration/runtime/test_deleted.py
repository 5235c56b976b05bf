"""Rows that are deleted through the ORM while they wait, or keep keys: what they have in Redis is given up at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import transaction

from reactor_coord import Input, Retry, element, map_each, step, testing, with_lock, with_ordered_lock
from reactor_coord.coordination import inspect, ordered_lines
from reactor_coord.models import Execution
from tests.integration.testing.shapes import LockedWork, Order, Told, Work

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("reactor_dispatches", "recorder")]


@with_lock("{key}", ttl=30)
class Keeps(Told):
    """It keeps its lock while it waits to try again."""

    key = Input(str, default="k")
    again = step(Work, fail_at="again", retry=Retry(max_attempts=3, base_delay=600))


@with_lock("{key}", ttl=5)
class Wants(Told):
    """It waits for that lock."""

    key = Input(str, default="k")
    a = step(Work)


class Mapped(Told):
    """Elements that wait for a lock."""

    key = Input(str, default="k")
    elements = map_each(LockedWork, over=[1, 2], number=element())


@with_ordered_lock("line")
class Ordered(Told):
    """It has had its position since it was enqueued."""

    a = step(Work)


def _by_row(rows: Any) -> None:
    for row in rows:
        row.delete()


def _by_query(rows: Any) -> None:
    rows.only("id").delete()


def _in_a_transaction(rows: Any) -> None:
    with transaction.atomic():
        rows.delete()


every_way = pytest.mark.parametrize("delete", [_by_row, _by_query, _in_a_transaction])


@every_way
def test_u50_a_deleted_execution_gives_up_the_lock_that_it_kept_and_the_next_runs(
    delete: Callable[[Any], None],
) -> None:
    keeping, wanting = Keeps.enqueue(), Wants.enqueue()
    testing.drain()
    assert (keeping.status, wanting.status) == ("parked", "parked")
    delete(Execution.objects.filter(pk=keeping.id))
    testing.drain(timeout=5)
    assert wanting.status == "completed"
    testing.assert_free("k")


@every_way
@pytest.mark.parametrize("reactor", [Wants, Mapped, Order])
def test_u50_a_deleted_execution_or_element_leaves_the_line_in_which_it_stood(
    reactor: Any, delete: Callable[[Any], None]
) -> None:
    with ExitStack() as held:
        key = "acct:1" if reactor is Order else "k"
        held.enter_context(testing.hold(key))
        reactor.enqueue()
        testing.drain()
        assert inspect.line(key) != []
        waiting = Execution.objects.filter(park_kind="contention")
        assert waiting.exists()
        delete(waiting)
        assert inspect.line(key) == []


def test_u50_with_its_parent_an_element_leaves_its_line_too() -> None:
    with testing.hold("k"):
        handle = Mapped.enqueue()
        testing.drain()
        assert len(inspect.line("k")) == 2
        handle.execution.delete()
        assert inspect.line("k") == []
    assert not Execution.objects.exists()


def test_u50_a_deleted_start_gives_back_the_position_that_it_had_reserved() -> None:
    first, second = Ordered.enqueue(), Ordered.enqueue()
    first.execution.delete()
    testing.drain(timeout=5)
    assert second.status == "completed"
    assert ordered_lines().view("line").in_flight == ()


def test_a_deletion_that_is_rolled_back_leaves_all_as_it_was() -> None:
    keeping = Keeps.enqueue()
    testing.drain()
    with transaction.atomic():
        keeping.execution.delete()
        transaction.set_rollback(True)
    assert keeping.status == "parked"
    testing.assert_locked("k", by=keeping.execution)
    keeping.cancel()
    testing.drain()
    testing.assert_free("k")


def test_deleting_what_is_over_touches_no_hold_of_another() -> None:
    handle = Wants.enqueue()
    testing.drain()
    with testing.hold("k"):
        handle.execution.delete()
        assert inspect.look("k").hold is not None
