"""Whether a step runs at all: its `where` and its guard, asked for the attempt at hand.

Both are asked before anything is taken and, when the step then waited, once more under its keys: what was so before the wait
may be so no longer. They are not asked once an attempt has begun. What they raise fails the step as one that never began. Before
either, nothing begins under a hold that is known to be lost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reactor_coord.engine.guard import ask_guard, ask_where
from reactor_coord.results import Failure, Result
from reactor_coord.runtime import needs, verdicts
from reactor_coord.runtime.arguments import condition_values, declared_arguments

if TYPE_CHECKING:
    from reactor_coord.declare.definition import StepDefinition
    from reactor_coord.declare.references import Scope
    from reactor_coord.declare.step import Step
    from reactor_coord.runtime.steps import Attempt


def asks_anything(step: StepDefinition) -> bool:
    """Whether the step has a `where` or a guard."""
    step_class = step.step_class
    return step.where is not None or (step_class is not None and (step_class.has_where or step_class.has_guard))


def ask_first(attempt: Attempt, *, guards: bool) -> Result | None:
    """Ask `where`, have the arguments, ask the guard if `guards`; `None`: the step goes on to what it declares."""
    return _or_failure(attempt, lambda: attempt.refusal_of_lost() or _ask_first(attempt, guards=guards))


def ask_where_of(attempt: Attempt) -> Result | None:
    """Ask `where` alone, unless it has answered; `None`: the step goes on, and has what it goes over."""
    return _or_failure(
        attempt,
        lambda: (
            attempt.refusal_of_lost()
            or (_where(attempt) if attempt.is_first_look else None)
            or needs.unmet(attempt.step, attempt.frame)
        ),
    )


def ask_again(attempt: Attempt) -> Result | None:
    """Ask both once more, under the keys; `None`: the body follows."""
    return _or_failure(attempt, lambda: None if attempt.has_begun else _where(attempt) or _guard(attempt))


def _or_failure(attempt: Attempt, question: Callable[[], Result | None]) -> Result | None:
    try:
        return question()
    except BaseException as error:
        if verdicts.ends_the_process(error, in_worker=attempt.tree.parks):
            raise
        return Failure(error, retryable=False)


def _ask_first(attempt: Attempt, *, guards: bool) -> Result | None:
    refusal = _where(attempt) if attempt.is_first_look else None
    if refusal is not None:
        return refusal
    lacking = needs.unmet(attempt.step, attempt.frame)
    if lacking is not None:
        return lacking
    attempt.arguments = declared_arguments(attempt.frame, attempt.step)
    return _guard(attempt) if guards and attempt.is_first_look else None


def _where(attempt: Attempt) -> Result | None:
    step, step_class = attempt.step, attempt.step.step_class
    if step.where is not None:
        return None if asks_each_element(step) else where_says(step, attempt.frame)
    if step_class is None or not step_class.has_where or step.kind == "map":
        return None  # the method of a map's step is asked by each element
    return ask_where(_in_view(attempt, step_class).where, f"{step_class.__name__}.where")


def where_says(step: StepDefinition, scope: Scope) -> Result | None:
    """Ask the `where=` of a step over its arguments in this scope; `None`: the step, or this element of it, runs."""
    where = step.where
    assert where is not None
    values = condition_values(step, scope, step.where_names)
    return ask_where(lambda: where(**values), f"{step.name}.where")


def asks_each_element(step: StepDefinition) -> bool:
    """Whether a `where=` is asked for each element of a map, not once for the map: it reads the element."""
    named = (step.arguments[name] for name in step.where_names if name in step.arguments)
    return step.where is not None and any(reference.has_element() for reference in named)


def _in_view(attempt: Attempt, step_class: type[Step]) -> Step:
    """The step as its method `where` sees it: an argument that cannot be had raises when it is read, not before."""
    values: dict[str, Any] = {}
    unresolved: dict[str, Exception] = {}
    for name in step_class.inputs_schema.fields:
        try:
            values |= condition_values(attempt.step, attempt.frame, {name})
        except Exception as error:  # noqa: BLE001 - whatever a reference's map raises: told where it is read
            unresolved[name] = error
    return attempt.instance(values, unresolved)


def _guard(attempt: Attempt) -> Result | None:
    step_class = attempt.step.step_class
    if step_class is None or not step_class.has_guard:
        return None
    return ask_guard(attempt.instance().guard, f"{step_class.__name__}.guard")
