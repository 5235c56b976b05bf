"""`where`: over the step's arguments as the step itself would have them, before they are validated, per element in a map."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from reactor_coord import (
    Halt,
    Input,
    Reactor,
    Skipped,
    Step,
    async_step,
    compose,
    element,
    map_each,
    step,
    testing,
)
from reactor_coord.models import Execution
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import failure, row, runs, told
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


def _seen(*values: Any) -> bool:
    """Mark what a condition sees, with its types; false."""
    current().mark("where " + " ".join(f"{type(value).__name__}:{value}" for value in values))
    return False


class Priced(Step):
    """Typed inputs, one of them with a default and one that nobody needs to wire."""

    amount = Input(Decimal, gt=0)
    limit = Input(int, default=5)
    labels = Input(list[str], default_factory=list)

    def run(self) -> str:
        current().mark("run")
        return f"{self.amount}"


class PricedByMethod(Priced):
    def where(self) -> bool:
        return _seen(self.amount, self.limit, self.labels)


@step
def raw() -> str:
    return "9.50"


class ByCallable(Reactor):
    text = raw
    charge = step(Priced, amount=text, where=lambda amount, limit, labels: _seen(amount, limit, labels))


class ByMethod(Reactor):
    @step
    def text() -> str:
        return "9.50"

    charge = step(PricedByMethod, amount=text)


@pytest.mark.parametrize("reactor", [ByCallable, ByMethod])
def test_u102_where_sees_defaults_and_coerced_values_in_both_forms(reactor: type[Reactor], recorder: Recorder) -> None:
    outcome = reactor.run()
    assert outcome.succeeded
    assert runs(outcome)["charge"].status == "skipped"
    assert recorder.sequence() == ["where Decimal:9.50 int:5 list:[]"]


class Wanted(Step):
    """Its method decides by one input; the others need not even be there to be had."""

    amount = Input(Decimal, gt=0)
    receipt = Input(str)
    wanted = Input(bool)

    def where(self) -> bool:
        return self.wanted

    def run(self) -> None:
        current().mark("run")


class InvalidByMethod(Reactor):
    wanted = Input(bool)
    charge = step(Wanted, amount=-1, receipt="r")


class InvalidByCallable(Reactor):
    wanted = Input(bool)
    charge = step(Priced, amount=-1, where=lambda wanted: wanted)


class UnresolvedByMethod(Reactor):
    wanted = Input(bool)

    @step
    def paid() -> dict[str, str]:
        return {}

    charge = step(Wanted, amount=1, receipt=paid["receipt"])


@pytest.mark.parametrize(
    ("reactor", "error"),
    [
        (InvalidByMethod, "InputValidationError"),
        (InvalidByCallable, "InputValidationError"),
        (UnresolvedByMethod, "LookupError"),
    ],
)
def test_u102_where_is_asked_before_the_arguments_are_validated(
    reactor: type[Reactor], error: str, recorder: Recorder
) -> None:
    outcome = reactor.run(wanted=False)
    assert outcome.succeeded
    assert runs(outcome)["charge"].status == "skipped"
    assert failure(reactor.run(wanted=True)).error_type == error
    assert recorder.sequence() == []


class Receipted(Step):
    receipt = Input(str)

    def where(self) -> bool:
        return bool(self.receipt)

    def run(self) -> None:
        current().mark("run")


class ReadsUnresolved(Reactor):
    @step
    def paid() -> dict[str, str]:
        return {}

    charge = step(Receipted, receipt=paid["receipt"])


def test_u102_an_argument_that_cannot_be_had_fails_the_step_when_where_reads_it(recorder: Recorder) -> None:
    outcome = ReadsUnresolved.run()
    assert failure(outcome).error_type == "LookupError"
    assert "receipt" in failure(outcome).message


def test_u102_an_invalid_value_is_seen_as_it_came(recorder: Recorder) -> None:
    class Odd(Reactor):
        charge = step(Priced, amount="much", where=lambda amount: _seen(amount))

    assert Odd.run().succeeded
    assert recorder.sequence() == ["where str:much"]


def test_u102_where_of_a_compose_sees_the_defaults_of_its_reactor(recorder: Recorder) -> None:
    class Inner(Reactor):
        amount = Input(Decimal)
        limit = Input(int, default=7)
        work = step(Work)

    class Outer(Reactor):
        inner = compose(Inner, amount="3", where=lambda amount, limit: _seen(amount, limit))

    assert Outer.run().succeeded
    assert recorder.sequence() == ["where Decimal:3 int:7"]


class Order(Step):
    quantity = Input(int, ge=1)
    price = Input(int, default=2)

    def run(self) -> int:
        current().mark(f"run {self.quantity}")
        return self.quantity * self.price

    def undo(self, result: int) -> None:
        current().mark(f"undo {self.quantity}")


class ByElement(Named):
    quantities = Input(list[Any])
    each = map_each(Order, over=quantities, quantity=element(), where=lambda quantity, price: quantity > price)
    behind = step(Work, after=each)
    returns = each


class ElementWanted(Order):
    def where(self) -> bool:
        return self.quantity > self.price


class ByElementMethod(Named):
    quantities = Input(list[Any])
    each = map_each(ElementWanted, over=quantities, quantity=element())
    behind = step(Work, after=each)
    returns = each


class ByExtra(Named):
    """The condition reads what the step itself does not take."""

    quantities = Input(list[Any])
    each = map_each(
        Order,
        over=quantities,
        quantity=element(),
        wanted=element().map(lambda each: int(each) > 2),
        where=lambda wanted: wanted,
    )
    behind = step(Work, after=each)
    returns = each


@pytest.mark.parametrize("mode", ["run", "enqueue"])
@pytest.mark.parametrize("reactor", [ByElement, ByElementMethod, ByExtra])
def test_u102_in_a_map_where_is_asked_for_each_element(
    reactor: type[Reactor], mode: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    started: Any = (
        reactor.run(quantities=["1", 3, 2, "4"]) if mode == "run" else reactor.enqueue(quantities=["1", 3, 2, "4"])
    )
    testing.drain(timeout=10)
    assert (row(started).status, row(started).result) == ("completed", [None, 6, None, 8])
    assert [mark for mark in recorder.sequence() if not mark.endswith("behind")] == ["run 3", "run 4"]


@pytest.mark.parametrize("mode", ["run", "enqueue"])
@pytest.mark.parametrize("reactor", [ByElement, ByElementMethod, ByExtra])
def test_u102_an_element_that_was_skipped_is_not_undone(
    reactor: type[Reactor], mode: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    inputs: dict[str, Any] = {"quantities": [3, 1, 4], "fail_at": "behind"}
    started: Any = reactor.run(**inputs) if mode == "run" else reactor.enqueue(**inputs)
    testing.drain(timeout=10)
    assert row(started).status == "failed"
    marks = [mark for mark in recorder.sequence() if not mark.endswith("behind")]
    assert marks[:2] == ["run 3", "run 4"]
    assert marks[2:] == ["undo 4", "undo 3"] if mode == "run" else sorted(marks[2:]) == ["undo 3", "undo 4"]


@pytest.mark.parametrize("mode", ["run", "enqueue"])
def test_u102_a_map_of_which_no_element_is_wanted_completes_and_tells_of_each(
    mode: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    started: Any = ByElement.run(quantities=[1, 2]) if mode == "run" else ByElement.enqueue(quantities=[1, 2])
    testing.drain(timeout=10)
    assert (row(started).status, row(started).result) == ("completed", [None, None])
    assert told(started, "step_skipped") == [("step_skipped", "each", "")] * 2
    assert [each.data["index"] for each in row(started).trace.filter(kind="step_skipped").order_by("id")] == [0, 1]


@pytest.mark.parametrize("mode", ["run", "enqueue"])
def test_u102_a_where_that_reads_no_element_skips_the_map(
    mode: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    class Whole(Named):
        enabled = Input(bool)
        each = map_each(ElementWanted, over=[3], quantity=element(), where=lambda enabled: enabled)
        returns = each

    started: Any = Whole.run(enabled=False) if mode == "run" else Whole.enqueue(enabled=False)
    testing.drain(timeout=10)
    assert runs(started)["each"].status == "skipped"
    assert recorder.sequence() == []


VERDICTS: dict[str, tuple[Any, str, Any]] = {
    "skipped": (lambda: Skipped(7, "enough"), "completed", [6, 7]),
    "halt": (lambda: Halt(7, "enough"), "halted", 7),
    "raise": (lambda: 1 / 0, "failed", None),
}


@pytest.mark.parametrize("mode", ["run", "enqueue"])
@pytest.mark.parametrize("verdict", VERDICTS)
def test_u102_a_verdict_for_an_element_counts(
    verdict: str, mode: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    says, ends, value = VERDICTS[verdict]

    class Judging(Named):
        quantities = Input(list[int])
        each = map_each(
            Order, over=quantities, quantity=element(), where=lambda quantity: True if quantity == 3 else says()
        )

    started: Any = Judging.run(quantities=[3, 4]) if mode == "run" else Judging.enqueue(quantities=[3, 4])
    testing.drain(timeout=10)
    assert (row(started).status, row(started).result) == (ends, value)
    assert "run 4" not in recorder.sequence()
    if verdict == "skipped":
        rows = Execution.objects.filter(parent=row(started), parent_step="each").order_by("element_index")
        assert [(each.status, each.result, each.reason) for each in rows] == [
            ("completed", 6, ""),
            ("completed", 7, "enough"),
        ]
    if verdict == "raise" and mode == "run":
        assert recorder.sequence() == ["run 3", "undo 3"]


class WinsOverMethod(Reactor):
    """`where=` at the step wins over the class's method, also where the work is handed off."""

    one = step(PricedByMethod, amount=1, where=lambda: True)
    unit = async_step(PricedByMethod, amount=2, where=lambda: True, after=one)
    each = map_each(PricedByMethod, over=[3], amount=element(), where=lambda amount: True, after=unit)


def test_u102_a_where_at_the_step_wins_over_the_method(reactor_dispatches: Any, recorder: Recorder) -> None:
    handle = WinsOverMethod.enqueue()
    testing.drain(timeout=10)
    assert row(handle).status == "completed"
    assert recorder.sequence() == ["run"] * 3


def test_the_method_of_an_async_step_is_asked_once_where_it_is_dispatched(
    reactor_dispatches: Any, recorder: Recorder
) -> None:
    class Async(Reactor):
        unit = async_step(PricedByMethod, amount=2)
        returns = unit

    handle = Async.enqueue()
    testing.drain(timeout=10)
    assert (row(handle).status, row(handle).result) == ("completed", None)
    assert recorder.sequence() == ["where Decimal:2 int:5 list:[]"]
