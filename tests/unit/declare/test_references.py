"""References: what they depend on and how they read."""

from __future__ import annotations

from typing import Any

import pytest

from reactor_coord import DefinitionError, Input, Reactor, ReactorCoordError, Step, element, map_each, step
from reactor_coord.declare.references import (
    SKIPPED_VALUE,
    UNSET,
    Reference,
    as_reference,
    resolve_arguments,
    skipped_arguments,
)


class FakeScope:
    """Inputs and results given by hand."""

    def __init__(self, inputs: dict[str, Any], results: dict[str, Any], element: Any = UNSET) -> None:
        self.inputs, self.results, self._element = inputs, results, element

    def input(self, name: str) -> Any:
        return self.inputs[name]

    def result(self, step: str) -> Any:
        return self.results.get(step, UNSET)

    def failure(self, step: str) -> None:
        return None

    @property
    def element(self) -> Any:
        return self._element


class Work(Step):
    """Takes anything."""

    value = Input(Any, required=False)

    def run(self) -> Any:
        return self.value


class Flow(Reactor):
    """Two steps to refer to."""

    amount = Input(int)
    first = step(Work, value=amount)
    second = step(Work, value=first["a"])


def read(ref: Any, results: dict[str, Any] | None = None, **more: Any) -> Any:
    return as_reference(ref).resolve(FakeScope({"amount": 3}, results or {}, **more))


def test_an_input_a_step_a_path_and_a_map_read_their_values() -> None:
    results = {"first": {"a": {"b": [1, 2]}}}
    assert read(Flow.amount) == 3
    assert read(Flow.first, results) == {"a": {"b": [1, 2]}}
    assert read(Flow.first["a"]["b"][1], results) == 2
    assert read(Flow.first["a"]["b"].map(sum), results) == 3
    assert read(Flow.amount.map(str).map(len)) == 1


def test_a_path_reads_attributes_of_objects_without_items() -> None:
    assert read(Flow.first["real"], {"first": 5}) == 5


def test_a_plain_value_is_itself_and_containers_are_not_shared() -> None:
    shared = {"a": [1]}
    constant = as_reference(shared)
    constant.resolve(FakeScope({}, {}))["a"].append(2)
    assert shared == {"a": [1]}
    assert read(0) == 0
    assert read(False) is False
    assert read(None) is None


def test_references_inside_a_container_are_resolved_in_place() -> None:
    shape = {"n": Flow.amount, "list": [Flow.first["a"], 2], "pair": (Flow.amount, "x"), "plain": [1]}
    results = {"first": {"a": 1}}
    assert read(shape, results) == {"n": 3, "list": [1, 2], "pair": (3, "x"), "plain": [1]}
    assert as_reference(shape).steps() == {"first"}
    assert as_reference(shape).inputs() == {"amount"}


def test_dependencies_are_told() -> None:
    ref = Flow.first["a"].map(str)
    assert ref.steps() == {"first"}
    assert ref.inputs() == frozenset()
    assert Flow.amount.inputs() == {"amount"}
    assert element()["sku"].has_element()
    assert not ref.has_element()


def test_a_skipped_source_reads_none_and_neither_path_nor_map_is_applied() -> None:
    def never(value: Any) -> Any:
        pytest.fail(f"called with {value!r}")

    results = {"first": SKIPPED_VALUE}
    assert read(Flow.first, results) is None
    assert read(Flow.first["a"]["b"].map(never), results) is None
    scope = FakeScope({"amount": 3}, results)
    arguments = {"a": Flow.first["x"], "b": Flow.amount, "c": as_reference(1)}
    assert skipped_arguments(arguments, scope) == {"a"}
    assert resolve_arguments(arguments, scope) == {"a": None, "b": 3, "c": 1}
    assert resolve_arguments(arguments, scope, names={"b"}) == {"b": 3}


def test_a_step_that_returned_none_is_not_a_skipped_one() -> None:
    with pytest.raises(LookupError, match=r"first\['a'\]: a NoneType has no item 'a'"):
        read(Flow.first["a"], {"first": None})


def test_a_missing_item_says_which_and_does_not_quote_the_value() -> None:
    with pytest.raises(LookupError) as caught:
        read(Flow.first["a"]["token"], {"first": {"a": {"secret": 1}}})
    assert "first['a']['token']" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_what_a_map_raises_comes_out() -> None:
    with pytest.raises(ZeroDivisionError):
        read(Flow.amount.map(lambda value: value / 0))


def test_a_step_without_a_value_is_told_apart() -> None:
    with pytest.raises(ReactorCoordError, match="'first' has no value yet"):
        read(Flow.first)


def test_the_element_is_the_item_at_hand() -> None:
    assert read(element()["sku"], element={"sku": "A"}) == "A"
    with pytest.raises(ReactorCoordError, match="outside a map"):
        read(element())


def test_a_reference_has_no_value_while_the_class_is_built() -> None:
    with pytest.raises(DefinitionError, match="amount has no value"):
        bool(Flow.amount)
    with pytest.raises(DefinitionError, match=r"\.map\("):
        format(Flow.amount)
    with pytest.raises(TypeError):
        list(Flow.first)  # type: ignore[call-overload]
    with pytest.raises(DefinitionError, match="takes a function"):
        Flow.amount.map("x")  # type: ignore[arg-type]


def test_element_outside_a_map_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"step 'work' of Bad: value=.*element\(\)"):
        type("Bad", (Reactor,), {"work": step(Work, value=element())})
    ok: type[Reactor] = type("Ok", (Reactor,), {"work": map_each(Work, over=[1], value=element())})
    assert ok.definition.steps["work"].arguments["value"].has_element()


def test_a_reference_shows_as_it_was_written() -> None:
    assert repr(Flow.first["a"][0]) == "first['a'][0]"
    assert repr(Flow.amount.map(str)) == "amount.map(str)"
    assert repr(element()["sku"]) == "element()['sku']"
    assert isinstance(Flow.first, Reference)
