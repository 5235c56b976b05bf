"""Inline steps: functions written in a reactor's body, compiled to a `Step` subclass, so that one path runs both.

A function gets the arguments it names, by keyword, and the context if it names `context`. `undo` and `compensate` get the
result or the error as well: as the parameter named `result` or `error`, else as the first one that is no argument's name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reactor_coord.declare.coordination import Declaration
from reactor_coord.declare.retry import Retry
from reactor_coord.declare.shown import shown
from reactor_coord.declare.step import Step, check_body
from reactor_coord.errors import DefinitionError

NOTHING = inspect.Parameter.empty
SUBJECTS: Mapping[str, str] = {"undo": "result", "compensate": "error"}


@dataclass(frozen=True, slots=True)
class Body:
    """A function and what it asks for. `defaults` maps each parameter to its default, or to `NOTHING`."""

    function: Callable[..., Any]
    defaults: Mapping[str, Any]
    takes_all: bool
    takes_context: bool

    @property
    def name(self) -> str:
        """The function's own name."""
        return getattr(self.function, "__name__", type(self.function).__name__)

    def subject(self, role: str, arguments: frozenset[str]) -> str | None:
        """The parameter that gets the result (of an undo) or the error (of a compensate).

        `arguments`: those of the step itself (`own_arguments`), not those its other functions add.
        """
        usual = SUBJECTS.get(role)
        if usual is None or usual in self.defaults:
            return usual
        first = next(iter(self.defaults), None)
        return None if first is None or first in arguments or self.defaults[first] is not NOTHING else first

    def call(self, arguments: Mapping[str, Any], context: Any, **subject: Any) -> Any:
        """Call it with what it names."""
        given = {name: value for name, value in arguments.items() if self.takes_all or name in self.defaults}
        if self.takes_context:
            given["context"] = context
        return self.function(**{**given, **subject})


def own_arguments(given: Iterable[str], bodies: Mapping[str, Body]) -> frozenset[str]:
    """The arguments an inline step was given, and those its function names."""
    return frozenset(given) | frozenset(bodies["run"].defaults)


def body_of(place: str, function: Any) -> Body:
    """Read a function's signature. Raises `DefinitionError` for what cannot be called by keyword or is async.

    A `staticmethod` is taken for its function: so a type checker accepts an annotated first parameter in a class body.
    """
    if isinstance(function, staticmethod):
        function = function.__func__
    if not callable(function):
        raise DefinitionError(f"{place}: {shown(function)} is not a function.")
    check_body(place, function)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise DefinitionError(f"{place}: the signature of {function!r} cannot be read; wrap it in a lambda.") from None
    named: dict[str, Any] = {}
    takes_all = False
    for parameter in parameters:
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            raise DefinitionError(
                f"{place}: arguments come by keyword, so {parameter} cannot be one; write plain named parameters."
            )
        if parameter.kind is parameter.VAR_KEYWORD:
            takes_all = True
        else:
            named[parameter.name] = parameter.default
    takes_context = named.pop("context", None) is not None
    return Body(function=function, defaults=named, takes_all=takes_all, takes_context=takes_context)


def inline_class(
    name: str,
    owner: type[Any],
    bodies: Mapping[str, Body],
    given: Iterable[str],
    coordination: Mapping[str, Declaration],
    retry: Retry | None,
    atomic: bool,
) -> type[Step]:
    """The `Step` subclass of an inline step. `bodies` has `run` and whichever of guard, compensate and undo there are.

    `given`: names of the arguments written at the step.
    """
    arguments = own_arguments(given, bodies)
    namespace: dict[str, Any] = {role: _method(role, body, arguments) for role, body in bodies.items()}
    function = bodies["run"].function
    namespace.update(
        __module__=owner.__module__,
        __qualname__=f"{owner.__qualname__}.{name}",
        __doc__=function.__doc__,
        retry=retry,
        atomic=atomic,
    )
    step_class: type[Step] = type(name, (Step,), namespace)
    # Set past the checks of `coordinate`: the keys read the step's arguments here, which the compiler has checked.
    step_class.declared_coordination = step_class.coordination = coordination
    return step_class


def _method(role: str, body: Body, arguments: frozenset[str]) -> Callable[..., Any]:
    subject = body.subject(role, arguments)

    def plain(self: Step) -> Any:
        return body.call(self.arguments, self.context)

    def with_subject(self: Step, value: Any, /) -> Any:
        return body.call(self.arguments, self.context, **({subject: value} if subject else {}))

    method: Callable[..., Any] = with_subject if role in SUBJECTS else plain
    method.__name__ = role
    return method
