"""Calls of the words an author writes, checked before they are made: a misspelt keyword is told with the one that was meant."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from reactor_coord.declare.shown import shown
from reactor_coord.declare.suggest import closest
from reactor_coord.errors import DefinitionError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_KEYWORDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def checked_call(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: a call that does not fit the signature raises `DefinitionError` instead of Python's `TypeError`.

    The error names the place, the keyword and the one that was meant, or all that there are. A type checker still sees
    the function's own signature.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            raise DefinitionError(_problem(function, signature, args, kwargs, error)) from None
        return function(*args, **kwargs)

    return checked


def checked_init(cls: type[T]) -> type[T]:
    """Decorator: the same for making an instance of a class."""
    init = cls.__init__
    signature = inspect.signature(init)

    @wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            signature.bind(self, *args, **kwargs)
        except TypeError as error:
            raise DefinitionError(_problem(cls, signature, (cls, *args), kwargs, error)) from None
        init(self, *args, **kwargs)

    cls.__init__ = checked  # type: ignore[method-assign]
    return cls


def option_names(function: Callable[..., Any]) -> list[str]:
    """The keywords that a function names, in their order; what it takes as `**inputs` is not among them."""
    return _names(inspect.signature(function))


def _names(signature: inspect.Signature) -> list[str]:
    return [name for name, each in signature.parameters.items() if each.kind in _KEYWORDS]


def _problem(
    what: Callable[..., Any], signature: inspect.Signature, args: tuple[Any, ...], given: Any, error: TypeError
) -> str:
    place = what.__name__
    owner = args[0] if args and next(iter(signature.parameters)) in ("cls", "self") else None
    if isinstance(owner, type) and owner is not what:
        place = f"{owner.__name__}.{place}"
    known = [name for name in _names(signature) if name not in ("self", "cls")]
    for name in given:
        if name not in known:
            return (
                f"{place}({name}={shown(given[name])}): {place} has no option {name!r}."
                f"{closest(name, known)} Its options are {', '.join(known)}."
            )
    return f"{place}(...): {error}. Its options are {', '.join(known)}, each given by its name."
