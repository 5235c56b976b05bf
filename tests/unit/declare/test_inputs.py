"""Inputs: what is accepted, what it becomes, and how a refusal reads."""

from __future__ import annotations

import dataclasses
import datetime as dt
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel

from reactor_coord import DefinitionError, Input, InputValidationError, Step


class Address(BaseModel):
    """A model as an input."""

    city: str


@dataclasses.dataclass
class Point:
    """A dataclass as an input."""

    x: int


class Opaque:
    """A class pydantic knows nothing of."""


class Order(Step):
    """One input of each sort."""

    number = Input(int, gt=0)
    amount = Input(Decimal, gt=0, decimal_places=2)
    lines = Input(list[dict[str, Any]], min_length=1)
    card = Input(str, redact=True, max_length=4)
    note = Input(str, required=False)
    express = Input(bool, default=False)
    retries = Input(int, default=0)
    labels = Input(list[str], default_factory=list)

    def run(self) -> None: ...


GOOD: dict[str, Any] = {"number": "3", "amount": "9.50", "lines": [{"sku": "A"}], "card": "4111"}


def problems(**changes: Any) -> dict[str, list[str]]:
    with pytest.raises(InputValidationError) as caught:
        Order.inputs_schema.validate({**GOOD, **changes})
    return dict(caught.value.fields)


def test_values_are_coerced_as_pydantic_does_and_defaults_applied() -> None:
    assert Order.inputs_schema.validate(GOOD) == {
        "number": 3,
        "amount": Decimal("9.50"),
        "lines": [{"sku": "A"}],
        "card": "4111",
        "note": None,
        "express": False,
        "retries": 0,
        "labels": [],
    }


@pytest.mark.parametrize("value", [False, 0, "", [], None])
def test_falsy_values_stay_themselves(value: Any) -> None:
    class Falsy(Step):
        anything = Input(Any)
        other = Input(Any, default=5)

    assert Falsy.inputs_schema.validate({"anything": value, "other": value}) == {"anything": value, "other": value}


def test_every_problem_is_told_at_once() -> None:
    found = problems(number=0, amount="9.555", lines=[])
    assert set(found) == {"number", "amount", "lines"}
    assert found["number"] == ["Input should be greater than 0"]


def test_a_missing_input_is_named() -> None:
    with pytest.raises(InputValidationError, match=r"Order: .*amount: Field required"):
        Order.inputs_schema.validate({"number": 1})


def test_an_unknown_input_is_refused_with_a_suggestion() -> None:
    assert problems(amuont=1) == {"amuont": ["unknown input. Did you mean 'amount'?"]}


def test_a_problem_inside_a_value_says_where() -> None:
    assert problems(lines=[{"sku": "A"}, 3]) == {"lines": ["1: Input should be a valid dictionary"]}


def test_a_redacted_value_is_not_quoted() -> None:
    assert problems(card="41111") == {"card": ["is not valid"]}
    assert Order.inputs_schema.redacted == {"card"}


def test_an_optional_input_takes_none() -> None:
    assert Order.inputs_schema.validate({**GOOD, "note": None})["note"] is None


def test_an_input_read_from_a_skipped_step_reads_none_whatever_its_type() -> None:
    found = Order.inputs_schema.validate({**GOOD, "amount": None}, absent={"amount"})
    assert found["amount"] is None


def test_a_mutable_default_is_not_shared() -> None:
    class Bag(Step):
        items = Input(list[int], default=[1])

    Bag.inputs_schema.validate({})["items"].append(2)
    assert Bag.inputs_schema.validate({}) == {"items": [1]}


@pytest.mark.parametrize(
    ("type_", "given", "value"),
    [
        (dt.date, "2026-02-03", dt.date(2026, 2, 3)),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        (Literal["a", "b"], "a", "a"),
        (int | None, None, None),
        (Address, {"city": "Bonn"}, Address(city="Bonn")),
        (Point, {"x": 1}, Point(1)),
        (dict[str, int], {"a": "1"}, {"a": 1}),
    ],
)
def test_any_type_that_pydantic_validates(type_: Any, given: Any, value: Any) -> None:
    owner: type[Step] = type("Owner", (Step,), {"value": Input(type_)})
    assert owner.inputs_schema.validate({"value": given}) == {"value": value}


def test_a_class_of_ones_own_is_checked_by_isinstance() -> None:
    owner: type[Step] = type("Owner", (Step,), {"value": Input(Opaque)})
    thing = Opaque()
    assert owner.inputs_schema.validate({"value": thing})["value"] is thing
    with pytest.raises(InputValidationError, match="Opaque"):
        owner.inputs_schema.validate({"value": 3})


def test_on_the_class_it_is_the_input_on_an_instance_the_value() -> None:
    assert isinstance(Order.number, Input)
    bound = Order.bind({"number": 3}, context=None)
    assert bound.number == 3
    with pytest.raises(AttributeError, match=r"Order\.amount has no value"):
        _ = bound.amount


def test_inputs_are_inherited_replaced_and_taken_away() -> None:
    class Small(Order):
        number = Input(str)  # type: ignore[assignment]
        lines = None  # type: ignore[assignment]

    fields = Small.inputs_schema.fields
    assert "lines" not in fields
    assert fields["number"].type is str
    assert list(fields)[:2] == ["number", "amount"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Input("int"), ["'int'", "give the type itself"]),
        (lambda: Input(int, gtt=1), ["Input(int)", "'gtt'", "Did you mean 'gt'?"]),
        (lambda: Input(str, gt=1), ["Input(str, gt=1)", "do not go together"]),
        (lambda: Input(list[int], gt=1), ["do not go together"]),
        (lambda: Input(int, min_length=1), ["do not go together"]),
        (lambda: Input(int, default="many"), ["Input(int)", "'many'", "default"]),
        (lambda: Input(int, default=0, gt=0), ["default 0", "greater than 0"]),
        (lambda: Input(str, pattern="("), ["pydantic cannot validate"]),
        (lambda: Input(int, default=1, default_factory=int), ["default_factory"]),
        (lambda: Input(Input(int)), ["takes a type"]),
    ],
)
def test_a_declaration_that_cannot_be_right_is_refused(make: Any, words: list[str]) -> None:
    with pytest.raises(DefinitionError) as caught:
        make()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("name", ["run", "undo", "context", "retry", "coordination", "call", "_private", "after"])
def test_an_input_cannot_take_a_name_of_the_class(name: str) -> None:
    with pytest.raises(DefinitionError, match=rf"Bad: .*'{name}'"):
        type("Bad", (Step,), {name: Input(int)})


def test_one_input_under_two_names_is_refused() -> None:
    shared = Input(int)
    with pytest.raises(DefinitionError, match="'a', 'b'"):
        type("Bad", (Step,), {"a": shared, "b": shared})


def test_a_schema_can_be_described() -> None:
    fields = Order.inputs_schema.fields
    assert fields["amount"].type_label == "Decimal"
    assert fields["lines"].type_label == "list[dict[str, typing.Any]]"
    assert fields["number"].json_schema() == {"exclusiveMinimum": 0, "type": "integer"}
