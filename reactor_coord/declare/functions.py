"""Functions that an author hands in (`.map(fn)`, `collect=`, `over=`, a key): checked when written, called much later."""

from __future__ import annotations

import inspect
from typing import Any

from reactor_coord.errors import DefinitionError


def check_function(place: str, function: Any, given: int, called: str) -> None:
    """Refuse a function that could not be called with `given` positional arguments, or whose answer would be no value.

    `called` says what it is called with, for the message: `with the value`. A built-in that does not tell its signature
    is taken as it is.
    """
    name = getattr(function, "__name__", type(function).__name__)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(
            f"{place}: the function {name} is async, and its answer would never be awaited; write a plain function, and await "
            "inside it with asgiref.sync.async_to_sync(...)."
        )
    if inspect.isgeneratorfunction(function):
        raise DefinitionError(f"{place}: the function {name} has a yield in it, so it returns no value; return a list.")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*[None] * given)
    except TypeError as error:
        raise DefinitionError(
            f"{place}: the function {name}{signature} is called {called}, which it does not take: {error}."
        ) from None
