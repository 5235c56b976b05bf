"""Replace what one step does, for the length of a block: its body, or its guard, `compensate` or `undo`.

The class is patched in this process, and the replacement acts only where the step stands that was named. A live worker is
another process: nothing of it is seen there (see `faults` for those).
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from reactor_coord.declare.suggest import did_you_mean
from reactor_coord.errors import DefinitionError
from reactor_coord.runtime.context import StepContext
from reactor_coord.testing.naming import Name, names_in, part_of, without_indexes

if TYPE_CHECKING:
    from reactor_coord.declare.definition import ReactorDefinition, StepDefinition
    from reactor_coord.declare.reactor import Reactor
    from reactor_coord.declare.step import Step

PARTS = ("run", "guard", "compensate", "undo")

_A = {"compose": "a compose", "map": "a map_each", "interrupt": "an interrupt", "async_reactor": "an async_reactor"}

Body = Callable[..., Any]


class ToldToFail(Exception):
    """What `failing_at` raises where it is given no error."""


@dataclass(frozen=True, slots=True)
class Call:
    """One time that the replacement was called."""

    path: str
    """Where: `"lines[2].reserve"`."""
    attempt: int
    arguments: Mapping[str, Any]


@dataclass(slots=True)
class MockedStep:
    """What was replaced, and how often it was called."""

    reactor: str
    step: str
    calls: list[Call] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How often it was called."""
        return len(self.calls)


@contextmanager
def mock_step(
    reactor: type[Reactor],
    step: str,
    body: Body | None = None,
    *,
    returns: Any = None,
    raises: BaseException | type[BaseException] | None = None,
    part: str = "run",
) -> Iterator[MockedStep]:
    """Have another body run at that step inside the block, wherever that reactor runs; everything around it stays as it is.

    Args:
        reactor: Whose step it is. Where this reactor is composed into another, it is replaced as well.
        step: Its name, or its path: `"payment.charge"`, `"lines.reserve"` in every element of a map, `"lines[2].reserve"` in one.
        body: Called with the step, which has its inputs (`step.amount`; of an inline step `step.arguments["amount"]`), `context`,
            `fail`, `skip` and so on. With a parameter named `original` it gets what it replaces, to be called without arguments.
        returns: The value, where no body is given.
        raises: An exception to raise instead.
        part: `"run"`, `"guard"`, `"compensate"` (the body gets the error after the step) or `"undo"` (the result).

    Raises:
        DefinitionError: There is no such step, it has no body of its own, or it has no such part.
        TypeError: A body is given, and what it returns or raises as well.
    """
    if body is not None and (returns is not None or raises is not None):
        raise TypeError("mock_step takes a body, or what it returns or raises, not both")
    target = _target(reactor.definition, step, part)
    mocked = MockedStep(reactor.__name__, step)
    if body is None:
        body = partial(_answer, returns, raises)
    takes_original = "original" in inspect.signature(body).parameters
    replaced = getattr(target, part)
    own = vars(target).get(part)
    name = reactor.definition.name

    def replacement(self: Step, *subject: Any) -> Any:
        at = _name_of(self, name, step)
        if at is None:
            return replaced(self, *subject)
        mocked.calls.append(Call(str(at), self.context.attempt, dict(self.arguments)))
        original = {"original": partial(replaced, self, *subject)} if takes_original else {}
        return body(self, *subject, **original)

    setattr(target, part, replacement)
    try:
        yield mocked
    finally:
        if own is None:
            delattr(target, part)
        else:
            setattr(target, part, own)


@contextmanager
def failing_at(
    reactor: type[Reactor],
    step: str,
    error: BaseException | type[BaseException] | None = None,
    *,
    times: int | None = None,
    after: bool = False,
    part: str = "run",
) -> Iterator[MockedStep]:
    """Have that step fail inside the block, so that a test sees what becomes of the rest.

    `error`: what it fails with (`ToldToFail`). `times`: only so often, then it does what it does. `after`: it does what it does
    first, and fails then, so that its `compensate` has something to take back. Else as `mock_step`.
    """
    failure = error if error is not None else ToldToFail(f"{reactor.__name__}.{step} was told to fail")
    numbers = itertools.count(1)

    def body(self: Step, *subject: Any, original: Callable[[], Any]) -> Any:
        if times is not None and next(numbers) > times:
            return original()
        if after:
            original()
        raise failure

    with mock_step(reactor, step, body, part=part) as mocked:
        yield mocked


def _answer(value: Any, error: BaseException | type[BaseException] | None, step: Step, *subject: Any) -> Any:
    if error is not None:
        raise error
    return value


def _target(definition: ReactorDefinition, path: str, part: str) -> type[Step]:
    """The class whose part is to be replaced."""
    if part not in PARTS:
        raise DefinitionError(f"mock_step(part={part!r}): a step has no such part.{did_you_mean(part, PARTS)}")
    found = _find(definition, without_indexes(path).split("."))
    if found is None:
        paths = [name for name in names_in(definition) if _find(definition, name.split(".")) is not None]
        raise DefinitionError(f"{definition.label} has no step {path!r}.{did_you_mean(without_indexes(path), paths)}")
    if found.step_class is None:
        inside = (
            [] if found.reactor_class is None else [f"{path}.{name}" for name in found.reactor_class.definition.steps]
        )
        more = f" Name one of the steps inside it: {', '.join(inside)}." if inside else ""
        raise DefinitionError(f"{path!r} of {definition.label} is {_A[found.kind]}: it has no body of its own.{more}")
    if part != "run" and not getattr(found.step_class, f"has_{part}"):
        raise DefinitionError(f"{path!r} of {definition.label} has no {part} that could be replaced.")
    return found.step_class


def _find(definition: ReactorDefinition, parts: list[str]) -> StepDefinition | None:
    first, *more = parts
    step = definition.steps.get(first)
    if step is None or not more:
        return step
    return _find(step.reactor_class.definition, more) if step.reactor_class is not None else None


def _name_of(step: Step, reactor: str, path: str) -> Name | None:
    """How that reactor calls this step, if it is the one at that path; None for any other, and for a call by itself."""
    context = step.context
    if not isinstance(context, StepContext):
        return None
    row = context._frame.execution
    above: tuple[str, ...] = ()
    name = Name.of(row, context.step, above)
    while not (row.reactor == reactor and name.is_at(path)):
        parent = row.parent
        if parent is None:
            return None
        above = (part_of(row), *above)
        name, row = Name.of(context._frame.execution, context.step, above), parent
    return name
