"""Values that are work still to be done: a coroutine, a generator, a future. Whoever returned one has done nothing yet."""

from __future__ import annotations

import inspect
from typing import Any

from reactor_coord.errors import CodecError, DefinitionError
from reactor_coord.results import Failure


def failure_of(value: Any) -> Failure | None:
    """The failure, not to be retried, of a function that returned such work; None when the value is none.

    The work would begin when the step is over and its holds are given back, or never. A coroutine or a generator is
    closed: else Python warns of it later, at a place that has nothing to do with it.
    """
    is_awaited = inspect.isawaitable(value)
    if not (is_awaited or inspect.isgenerator(value) or inspect.isasyncgen(value)):
        return None
    if inspect.iscoroutine(value) or inspect.isgenerator(value):
        value.close()
    what = (
        f"a {type(value).__name__} was returned, whose work has not been done: it would begin after the step is over,"
    )
    if is_awaited:
        remedy = "Await it inside, with asgiref.sync.async_to_sync(function)(...), and return the result."
        return Failure(DefinitionError(f"{what} without its holds, or never. {remedy}"), retryable=False)
    error = CodecError(
        f"{what} without its holds, or never. Return a list, which can be stored as well.", path="result"
    )
    return Failure(error, retryable=False)
