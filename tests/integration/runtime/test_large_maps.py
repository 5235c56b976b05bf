"""A map whose values together are larger than a payload may be: they stay in the rows of its elements, and are read there."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import Input, Reactor, Step, compose, element, map_each, step, testing
from reactor_coord.errors import CodecError
from reactor_coord.models import Execution, StepRun
from reactor_coord.operations import verbs
from reactor_coord.runtime.outcome import Outcome
from reactor_coord.storage import codec
from reactor_coord.storage.element_values import ElementValues
from reactor_coord.testing import recorder as recorders
from reactor_coord.testing.recorder import Recorder
from tests.live.reactors import Named

pytestmark = pytest.mark.django_db(transaction=True)
WAYS = pytest.mark.parametrize("way", ["in process", "in a worker"])
MOST = 1_000
NUMBERS = list(range(30))


@pytest.fixture(autouse=True)
def _small_payloads(settings: Any) -> None:
    settings.REACTOR_COORD = {**settings.REACTOR_COORD, "MAX_PAYLOAD_BYTES": MOST}


class Wide(Step):
    """Its value is fifty characters."""

    number = Input(int)

    def run(self) -> str:
        return wide(self.number)

    def undo(self, result: str) -> None:
        recorders.current().mark(f"undo {self.number}")


def wide(number: int) -> str:
    return f"{number:050}"


class Reading(Step):
    """Takes the values as they are."""

    values: Any = Input(Any)

    def run(self) -> list[Any]:
        return [len(self.values), sum(int(value) for value in self.values), self.values[2], self.values[-1]]


class Listing(Step):
    """Asks for a list."""

    values = Input(list[str])

    def run(self) -> int:
        return len(self.values[:3] + self.values[-3:])


class Length(Step):
    """Of one value."""

    text = Input(str)

    def run(self) -> int:
        return len(self.text)


class Large(Named):
    """Nothing collects; others read."""

    each = map_each(Wide, over=NUMBERS, number=element())
    reading = step(Reading, values=each)
    listing = step(Listing, values=each)
    again = map_each(Length, over=each, text=element())
    returns = each


class Outer(Named):
    """The value of a reactor inside is as large."""

    inner = compose(Large)
    reading = step(Reading, values=inner)
    returns = inner


class Collected(Named):
    """What is collected is what counts."""

    each = map_each(Wide, over=NUMBERS, number=element(), collect=lambda values: [type(values).__name__, len(values)])


def ended(reactor: type[Reactor], way: str, **inputs: Any) -> Outcome:
    if way == "in process":
        return reactor.run(**inputs)
    handle = reactor.enqueue(**inputs)
    testing.drain()
    return handle.wait(1)


@WAYS
def test_u18_the_values_of_a_large_map_stay_in_their_rows_and_are_read_like_a_list(
    way: str, reactor_dispatches: Any
) -> None:
    outcome = ended(Large, way)
    assert outcome.status == "completed", outcome.failure
    values = outcome.value
    assert isinstance(values, ElementValues)
    assert values == [wide(number) for number in NUMBERS]
    assert (len(values), values[1:3], values[-1]) == (30, [wide(1), wide(2)], wide(29))
    with pytest.raises(IndexError):
        values[30]
    assert outcome.results["reading"] == [30, sum(NUMBERS), wide(2), wide(29)]
    assert outcome.results["listing"] == 6
    assert outcome.results["again"] == [50] * 30
    run = StepRun.objects.get(execution=outcome.execution, step="each")
    assert codec.size_of(run.result) < 200
    assert codec.display(run.result) == "the 30 values of each, each in the row of its element"


@WAYS
def test_u18_a_large_value_passes_through_a_reactor_inside_as_it_is(way: str, reactor_dispatches: Any) -> None:
    outcome = ended(Outer, way)
    assert outcome.status == "completed", outcome.failure
    assert outcome.value == [wide(number) for number in NUMBERS]
    assert outcome.results["reading"][0] == 30


@WAYS
def test_u18_a_collector_is_given_the_list(way: str, reactor_dispatches: Any) -> None:
    assert ended(Collected, way).value == ["list", 30]


def test_u18_undone_by_hand_each_element_is_undone(reactor_dispatches: Any, recorder: Recorder) -> None:
    outcome = Large.run()
    verbs.undo(outcome.execution)
    testing.drain()
    assert recorder.sequence() == [f"undo {number}" for number in reversed(NUMBERS)]


def test_a_value_whose_row_is_gone_is_told_when_it_is_read() -> None:
    values = Large.run().value
    Execution.objects.filter(parent_id=values.execution_id, parent_step="each", element_index=7).delete()
    assert values[:7] == [wide(number) for number in range(7)]
    with pytest.raises(CodecError, match="element 7 of each of execution"):
        list(values)


def test_a_small_map_is_a_list_as_ever() -> None:
    class Small(Named):
        each = map_each(Wide, over=[1, 2], number=element())

    assert type(Small.run().value) is list
