"""What stands in a class body twice, or under no name, would vanish: it is refused at its line."""

# ruff: noqa: F811, PIE794
# mypy: disable-error-code="no-redef, assignment, method-assign"
# What is refused here is what linters and type checkers find as well, where they are asked.

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

import pytest

from reactor_coord import DefinitionError, Input, Reactor, Step, compose, interrupt, step, with_lock

T = TypeVar("T")


class Charge(Step):
    """One input."""

    amount = Input(int, default=1)

    def run(self) -> None: ...


class Inner(Reactor):
    """One step."""

    charge = step(Charge)


def test_u52_a_step_declared_twice_is_refused() -> None:
    with pytest.raises(
        DefinitionError, match=r"^Twice: 'charge' is declared twice: the step of that name in line \d+ would"
    ):

        class Twice(Reactor):
            charge = step(Charge)
            charge = step(Charge, amount=2)


def test_u52_so_is_an_inline_step_of_one_name() -> None:
    with pytest.raises(DefinitionError, match="Twice: 'notify' is declared twice"):

        class Twice(Reactor):
            @step()
            def notify() -> int:
                return 1

            @step()
            def notify() -> int:
                return 2


def test_u52_so_is_a_function_over_a_step() -> None:
    with pytest.raises(DefinitionError, match="Over: 'charge' is declared twice"):

        class Over(Reactor):
            charge = step(Charge)

            def charge(self) -> None: ...


@pytest.mark.parametrize("value", [None, 3, Charge, interrupt(), compose(Inner)])
def test_u52_so_is_anything_else_over_a_step(value: Any) -> None:
    with pytest.raises(DefinitionError, match="Over: 'charge' is declared twice"):

        class Over(Reactor):
            charge = step(Charge)
            charge = value


def test_u52_so_is_the_undo_of_one_under_the_name_of_another() -> None:
    with pytest.raises(DefinitionError, match="Over: 'charge' is declared twice"):

        class Over(Reactor):
            charge = step(Charge)

            @step()
            def notify() -> int:
                return 1

            @notify.undo
            def charge(result: int) -> None: ...


def test_u52_so_is_a_step_in_a_loop() -> None:
    with pytest.raises(DefinitionError, match="Looped: 'charge' is declared twice"):

        class Looped(Reactor):
            for number in range(2):
                charge = step(Charge, amount=number)


def test_an_input_declared_twice_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"Twice: 'amount' is declared twice: the input of that name in line \d+"):

        class Twice(Step):
            amount = Input(int)
            amount = Input(str)

    with pytest.raises(DefinitionError, match="Shadowed: 'amount' is declared twice"):

        class Shadowed(Reactor):
            amount = Input(int)

            @step()
            def amount(amount: int) -> int:
                return amount


@pytest.mark.parametrize("hook", ["run", "guard", "where", "compensate", "undo"])
def test_a_hook_defined_twice_is_refused(hook: str) -> None:
    source = f"class Twice(Step):\n    def {hook}(self, *given): return 1\n    def {hook}(self, *given): return 2\n"
    with pytest.raises(DefinitionError, match=f"Twice: {hook} is defined twice; only the second would ever be called"):
        exec(source, {"Step": Step, "__name__": __name__})


def timed(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed_one(*args: Any) -> Any:
        return function(*args)

    return timed_one


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any) -> Any:
        return function(*args)

    return run


def test_what_is_no_second_declaration_stays_allowed() -> None:
    class Decorated(Step):
        def run(self) -> int:
            return 1

        run = timed(run)
        run = logged(run)

        @overload
        def undo(self, result: int) -> None: ...
        @overload
        def undo(self, result: str) -> None: ...
        def undo(self, result: Any) -> None: ...

    class Flow(Reactor):
        rate = 3
        rate = rate + 1
        amount = Input(int)
        double = amount.map(lambda amount: amount * 2)
        double = double.map(str)
        charge = step(Charge, amount=double)
        charge = with_lock("a")(charge)
        charge = charge
        if rate > 3:
            audit = step(Charge)
        else:
            audit = step(Charge, amount=3)
        temporary = 3
        del temporary
        temporary = step(Charge)

        @step()
        def notify() -> int:
            return 1

        @notify.undo
        def _(result: int) -> None: ...

        @notify.compensate
        def _(error: BaseException) -> None: ...

    assert list(Flow.definition.steps) == ["charge", "audit", "temporary", "notify"]
    assert list(Flow.definition.step("charge").coordination) == ["lock"]


# ---- under no name


def test_a_step_under_no_name_is_refused() -> None:
    with pytest.raises(
        DefinitionError, match=r"Lost: the step\(Charge\) in line \d+ stands under no name, so it would never"
    ):

        class Lost(Reactor):
            charge = step(Charge)
            step(Charge, after=charge)


def test_so_is_one_in_a_list_or_out_of_a_function() -> None:
    def both() -> list[Any]:
        return [step(Charge), interrupt()]

    with pytest.raises(DefinitionError, match=r"Lost: the step\(Charge\) in line"):

        class Lost(Reactor):
            charge = step(Charge)
            steps = both()

    with pytest.raises(DefinitionError, match=r"Nested: the compose\(Inner\) in line"):

        class Nested(Reactor):
            charge = step(Charge, amount=compose(Inner)["x"])


def test_the_failed_class_is_not_kept_as_a_reactor() -> None:
    from reactor_coord.declare.registry import all_definitions

    with pytest.raises(DefinitionError):

        class LostForGood(Reactor):
            charge = step(Charge)
            step(Charge)

    assert "LostForGood" not in {definition.label for definition in all_definitions()}


def test_a_step_out_of_a_function_or_a_nested_body_is_its_classes_own() -> None:
    def audit(amount: int) -> Any:
        return step(Charge, amount=amount)

    class Outer(Reactor):
        class Part(Reactor):
            charge = step(Charge)

        first = audit(1)
        part = compose(Part)
        locals()["second"] = audit(2)

    assert list(Outer.definition.steps) == ["first", "part", "second"]
    assert list(Outer.Part.definition.steps) == ["charge"]


# ---- bodies and other mix-ins


def test_abstract_and_generic_steps_are_steps() -> None:
    class Base(Step, abc.ABC):
        @abc.abstractmethod
        def amount_of(self) -> int: ...

        def run(self) -> int:
            return self.amount_of()

    class Of(Step, Generic[T]):
        def run(self) -> None: ...

    class Concrete(Base):
        def amount_of(self) -> int:
            return 3

    class OfInt(Of[int]): ...

    class Flow(Reactor, abc.ABC):
        concrete = step(Concrete)
        of = step(OfInt)

    assert Concrete.bind({}, None).run() == 3
    assert list(Flow.definition.steps) == ["concrete", "of"]
