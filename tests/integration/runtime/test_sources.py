"""What a map goes over: a queryset or a function is asked when the map begins, and never while the class is built."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from reactor_coord import DefinitionError, Input, Reactor, Step, element, map_each, step, testing
from reactor_coord.testing.dispatches import Dispatches
from tests.integration.runtime.support import failure
from tests.live.models import Posting

pytestmark = pytest.mark.django_db(transaction=True)


class Amount(Step):
    """Its value is the amount of the row it is given."""

    posting = Input(Posting)

    def run(self) -> int:
        return int(self.posting.amount)


def posting(amount: int) -> Posting:
    return Posting.objects.create(account="a", amount=amount, execution="x")


class OverQueryset(Reactor):
    """The rows of the moment."""

    each = map_each(Amount, over=Posting.objects.filter(amount__gt=1), posting=element())


class OverManager(Reactor):
    """All rows."""

    each = map_each(Amount, over=Posting.objects, posting=element())


class OverFunction(Reactor):
    """What the function finds."""

    each = map_each(Amount, over=lambda: Posting.objects.filter(amount__gt=1), posting=element())


class OverMapped(Reactor):
    """What a function of an input finds."""

    least = Input(int)
    each = map_each(Amount, over=least.map(lambda least: Posting.objects.filter(amount__gte=least)), posting=element())


def value(reactor: type[Reactor], way: str, **inputs: Any) -> Any:
    if way == "in process":
        return reactor.run(**inputs).unwrap()
    handle = reactor.enqueue(**inputs)
    testing.drain()
    return handle.wait(1).unwrap()


@pytest.mark.parametrize("way", ["in process", "in a worker"])
@pytest.mark.parametrize(
    ("reactor", "inputs", "first", "second"),
    [
        (OverQueryset, {}, [2, 3], [2, 3, 4]),
        (OverManager, {}, [1, 2, 3], [1, 2, 3, 4]),
        (OverFunction, {}, [2, 3], [2, 3, 4]),
        (OverMapped, {"least": 3}, [3], [3, 4]),
    ],
)
def test_u135_a_map_goes_over_the_rows_of_the_moment(
    way: str,
    reactor: type[Reactor],
    inputs: dict[str, Any],
    first: list[int],
    second: list[int],
    reactor_dispatches: Dispatches,
) -> None:
    for amount in (1, 2, 3):
        posting(amount)
    assert value(reactor, way, **inputs) == first
    posting(4)
    assert value(reactor, way, **inputs) == second


def test_u135_building_the_class_asks_no_database_and_shows_no_row() -> None:
    posting(7)
    with CaptureQueriesContext(connection) as queries:
        rows = Posting.objects.all()
        good: type[Reactor] = type("Good", (Reactor,), {"each": map_each(Amount, over=rows, posting=element())})
        repr(good.definition)
        with pytest.raises(
            DefinitionError, match=r"map_each\(over=<ValuesIterable>\): over must be a reference to a list"
        ):
            map_each(Amount, over=rows.values()._iterable_class(rows))
        with pytest.raises(DefinitionError, match=r"element\(\) means something only inside map_each"):
            type("Bad", (Reactor,), {"a": step(Amount, posting=[rows, element()])})
    assert not queries.captured_queries


def test_a_queryset_as_an_argument_is_asked_by_each_execution() -> None:
    """It kept the rows of the first, and gave them to every later one of the process."""

    class Report(Reactor):
        @step(rows=Posting.objects.order_by("pk"))
        def total(rows: Any) -> int:
            return sum(row.amount for row in rows)

    posting(1)
    assert Report.run().value == 1
    posting(2)
    assert Report.run().value == 3


def test_what_a_function_raises_fails_the_step() -> None:
    class Broken(Reactor):
        each = map_each(Amount, over=lambda: 1 / 0, posting=element())

    assert failure(Broken.run()).error_type == "ZeroDivisionError"
