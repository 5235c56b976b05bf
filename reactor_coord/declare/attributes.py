"""What may stand in the body of a `Step` or a `Reactor` beside its inputs and steps, and what is refused there.

Allowed are the options that the class has; methods, properties and nested classes; private names and constants in
capitals; and any other plain value under a name that nobody would take for an option. Refused is what nothing would read
and was surely meant: the options of the other class or of another word, those of Celery's tasks and those that are
reserved, a near miss of a name that is read, and a declaration under a name that is not read.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType
from typing import Any

from pydantic.fields import FieldInfo

from reactor_coord.declare.attribute_names import HANDLERS, REACTOR_OPTIONS, REACTOR_WRONG, STEP_OPTIONS, STEP_WRONG
from reactor_coord.declare.body import HOOKS, Declared
from reactor_coord.declare.decorators import Coordination
from reactor_coord.declare.retry import Retry
from reactor_coord.declare.shown import shown
from reactor_coord.declare.suggest import near_miss
from reactor_coord.errors import DefinitionError

_METHODS = (FunctionType, classmethod, staticmethod)
_NEVER_MADE = "A Reactor is never instantiated, so nothing could call it."


def check_step_attributes(cls: type[Any], framework: type[Any], own: Iterable[str]) -> None:
    """Check what a subclass of `Step` declares. `own`: the names that Step itself has, and that are no options."""
    for name, value in _written(cls, framework):
        if isinstance(value, Declared) and value.kind_of_declaration == "step":
            raise _refused(cls, name, value, "A step stands in the body of a Reactor; a Step is one.")
        if isinstance(value, Declared):
            continue
        if name in HOOKS:
            _check_hook(cls, name, value)
        elif name in own:
            _check_own(cls, framework, name, value)
        elif name not in STEP_OPTIONS:
            _check_function_of_step(cls, name, value)
            _check_declaration_in_step(cls, name, value)
            _check_value(cls, name, value, STEP_WRONG, STEP_OPTIONS | HOOKS)


def check_reactor_attributes(cls: type[Any], framework: type[Any], own: Iterable[str]) -> None:
    """Check what a subclass of `Reactor` declares, beside its steps, which the compiler checks."""
    for name, value in _written(cls, framework):
        if isinstance(value, Declared):
            continue
        if name in own:
            _check_own(cls, framework, name, value)
        elif name not in REACTOR_OPTIONS:
            _check_function_of_reactor(cls, name, value)
            _check_value(cls, name, value, REACTOR_WRONG, REACTOR_OPTIONS)


def check_forgotten_steps(cls: type[Any], framework: type[Any], names: Iterable[str], used: Iterable[Any]) -> None:
    """Refuse a function that takes just what the reactor has, and that nothing uses: an `@step` was forgotten above it.

    `names`: the reactor's inputs and steps. `used`: the functions that its references, conditions and keys call.
    """
    known = {*names, "context"}
    functions = set(map(id, used))
    for name, value in _written(cls, framework):
        if not isinstance(value, FunctionType) or id(value) in functions:
            continue
        parameters = inspect.signature(value).parameters
        if parameters and known >= parameters.keys():
            raise _refused(
                cls,
                name,
                value,
                "It takes what the reactor has, and nothing calls it. Put @step above it, or @staticmethod.",
            )


def _written(cls: type[Any], framework: type[Any]) -> Iterator[tuple[str, Any]]:
    """The public names in lower case that the class and its mix-ins give a value. Its bases were checked when they were made."""
    for owner in cls.__mro__:
        is_ours = owner in framework.__mro__ or owner.__module__ in ("builtins", "typing", "abc")
        if owner is cls or not (is_ours or issubclass(owner, framework)):
            for name, value in tuple(vars(owner).items()):
                if not name.startswith("_") and not name.isupper():
                    yield name, value


def _check_hook(cls: type[Any], name: str, value: Any) -> None:
    if not callable(value) or isinstance(value, _METHODS[1:]):
        raise _refused(cls, name, value, f"It must be a method: def {name}(self, ...).")


def _check_own(cls: type[Any], framework: type[Any], name: str, value: Any) -> None:
    """A name of the framework's own: a method may be extended by one of its kind, anything else not be touched."""
    theirs = inspect.getattr_static(framework, name, None)
    if isinstance(theirs, _METHODS) and type(value) is type(theirs):
        return
    wrong = STEP_WRONG if name in STEP_WRONG else REACTOR_WRONG
    remedy = wrong.get(name, "").replace("{label}", cls.__name__)
    if isinstance(theirs, classmethod) and isinstance(value, FunctionType):
        remedy = f"It is called on the class: write @classmethod above it to extend it{_or_step(framework)}."
    raise _refused(cls, name, value, f"The name is taken by {framework.__name__} itself. {remedy or 'Choose another.'}")


def _or_step(framework: type[Any]) -> str:
    return "; the work of a reactor goes into its steps" if framework.__name__ == "Reactor" else ""


def _check_function_of_step(cls: type[Any], name: str, value: Any) -> None:
    if not isinstance(value, FunctionType):
        return
    if name in HANDLERS:
        raise _refused(cls, name, value, f"Nothing calls it. {HANDLERS[name]}")
    if meant := near_miss(name, HOOKS):
        raise _refused(cls, name, value, f"Nothing calls it. Did you mean {meant!r}?")


def _check_function_of_reactor(cls: type[Any], name: str, value: Any) -> None:
    if not isinstance(value, FunctionType):
        return
    if name in HOOKS:
        raise _refused(cls, name, value, f"No reactor has a {name}: write it on a Step class, or as @<step>.{name}.")
    if next(iter(inspect.signature(value).parameters), "") == "self":
        raise _refused(cls, name, value, f"{_NEVER_MADE} Put @step above a function without self, or @classmethod.")


def _check_declaration_in_step(cls: type[Any], name: str, value: Any) -> None:
    """Refuse what declares something under the right name, or above the class, and nothing here."""
    if isinstance(value, Coordination):
        word = f"with_{value.declaration.primitive}"
        raise DefinitionError(
            f"{cls.__name__}.{name} = {word}(...): It would be ignored. Write it as a decorator above the class, @{word}(...)."
        )
    if isinstance(value, Retry) and cls.retry is not value:
        raise _refused(
            cls, name, value, "It would be ignored. Name it retry; a constant's name is written in capitals."
        )


def _check_value(cls: type[Any], name: str, value: Any, wrong: Mapping[str, str], read: frozenset[str]) -> None:
    if name == "Meta" and isinstance(value, type):
        raise _refused(cls, name, value, "Nothing reads it: options are attributes of the class itself.")
    if _is_nested(name, value) or hasattr(type(value), "__get__"):  # a class of its own body, a method, a property
        return
    if name in wrong:
        remedy = wrong[name].replace("{label}", cls.__name__).replace("{name}", name)
        raise _refused(cls, name, value, f"It would be ignored. {remedy}")
    if isinstance(value, FieldInfo):
        raise _refused(cls, name, value, "A Field of pydantic is no input: write Input(type, ...) with its rules.")
    if meant := near_miss(name, read):
        raise _refused(
            cls, name, value, f"It would be ignored. Did you mean {meant!r}? If it is your own, choose another name."
        )


def _is_nested(name: str, value: Any) -> bool:
    return isinstance(value, type) and value.__qualname__.endswith(f".{name}")


def _refused(cls: type[Any], name: str, value: Any, why: str) -> DefinitionError:
    written = f"{cls.__name__}.{name}"
    if isinstance(value, FunctionType):
        return DefinitionError(f"{written}({', '.join(inspect.signature(value).parameters)}): {why}")
    return DefinitionError(f"{written} = {shown(value)}: {why}")
