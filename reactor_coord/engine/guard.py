"""What the answer of a guard means, and that of a `where`: the one place where it is decided whether a body follows.

A guard answers before the body: by returning, or from any depth by `self.fail`, `self.skip`, `self.halt`, `self.succeed`. An
answer that is none of these fails the step: no body runs on an answer that could be read in two ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from reactor_coord.engine import undone_work
from reactor_coord.errors import GuardError
from reactor_coord.results import Decided, Failure, Halt, Result, Skipped, Success

PASSES = "It passes with nothing, True, self.succeed() or Success()"
REFUSES = "it ends the step with self.fail(...), self.skip(...) or self.halt(...), or the Failure, Skipped or Halt of that name"
EARLY = "To end the step early with a value, say self.skip(value=...), which is never undone"


def ask_guard(guard: Callable[[], object], name: str) -> Result | None:
    """Call a guard; `None`: it has passed, else how the step ends. `name` is the guard's, for the message: `Charge.guard`.

    What the guard raises, other than its verdict, passes through.
    """
    return refusal_of_guard(_answer_of(guard), name)


def ask_where(where: Callable[[], object], name: str) -> Result | None:
    """Call a `where`; `None`: the step runs, else how it ends. `name` is the condition's, for the message."""
    return refusal_of_where(_answer_of(where), name)


def refusal_of_guard(answer: object, name: str) -> Result | None:
    """Return how a step ends whose guard gave this answer, `None` when the guard has passed. A failure is never retried."""
    if answer is None or answer is True:
        return None
    if isinstance(answer, (Success, Failure, Skipped, Halt)):
        return _refusal_of_verdict(answer, name)
    undone_work.failure_of(answer)  # closes a coroutine, which would warn of itself later
    return _unclear(name, f"returned {_described(answer)}, which is no answer. {PASSES}; {REFUSES}.")


def refusal_of_where(answer: object, name: str) -> Result | None:
    """Return how a step ends whose `where` gave this answer: a verdict counts as a guard's, any other value as true or false.

    A coroutine would always be true: it is a failure.
    """
    if isinstance(answer, (Success, Failure, Skipped, Halt)):
        return _refusal_of_verdict(answer, name)
    undone = undone_work.failure_of(answer)
    if undone is not None:
        return replace(undone, retryable=False)
    return None if answer else Skipped(reason="where")


def _refusal_of_verdict(answer: Result, name: str) -> Result | None:
    if isinstance(answer, Failure):
        return replace(answer, retryable=False)
    if not isinstance(answer, Success):
        return answer
    if answer.value is None:
        return None
    return _unclear(name, f"succeeded with a value ({_described(answer.value)}). {PASSES}. {EARLY}.")


def _answer_of(question: Callable[[], object]) -> object:
    try:
        return question()
    except Decided as decided:
        return decided.result


def _unclear(name: str, what: str) -> Failure:
    return Failure(GuardError(f"The body was not run: {name} {what}", guard=name), retryable=False)


def _described(answer: object) -> str:
    """Name an answer by its type alone: the value itself may be redacted."""
    return "False" if answer is False else f"a value of type {type(answer).__name__}"
