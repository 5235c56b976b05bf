"""What a step cannot do without: below a step that was skipped it is skipped as well, and says what it needs.

A body reads `None` for the value of a step that was skipped without one, and may make something of it. No key can be made of it,
no question asked under it, no list gone over; and a reactor or a unit that requires an input would fail inside, far from why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from reactor_coord.declare.references import SKIPPED_VALUE, skipped_arguments
from reactor_coord.results import Skipped

if TYPE_CHECKING:
    from reactor_coord.declare.definition import StepDefinition
    from reactor_coord.declare.references import Reference, Scope


def unmet(step: StepDefinition, scope: Scope) -> Skipped | None:
    """Skip the step where all that one of its needs is read from was skipped; `None`: it has what it needs."""
    lost = {name for need in _needs(step, scope) if _is_skipped(need, scope) for name in need.steps()}
    if not lost:
        return None
    return Skipped(None, f"needs {', '.join(sorted(lost))}, which {'was' if len(lost) == 1 else 'were'} skipped")


def _is_skipped(need: Reference, scope: Scope) -> bool:
    steps = need.steps()
    return bool(steps) and all(scope.result(name) is SKIPPED_VALUE for name in steps)


def _needs(step: StepDefinition, scope: Scope) -> Iterator[Reference]:
    """What it goes over, is asked under, makes its keys of, or hands to a reactor or a unit that requires it."""
    yield from (each for each in (step.options.get("over"), step.options.get("correlation_id")) if each is not None)
    absent = skipped_arguments(step.arguments, scope)
    named = absent & (_required(step) | _in_keys(step)) if absent else absent
    yield from (step.arguments[name] for name in sorted(named))


def _required(step: StepDefinition) -> frozenset[str]:
    """The inputs without which what runs below the step fails; of a plain step none: its body reads `None`."""
    if step.kind in {"step", "interrupt"} or (step.reactor_class is None and step.step_class is None):
        return frozenset()
    schema = step.reactor_class.definition.schema if step.reactor_class is not None else step.step_class.inputs_schema  # type: ignore[union-attr] # one of the two is there
    return frozenset(name for name, field in schema.fields.items() if field.required and not field.nullable)


def _in_keys(step: StepDefinition) -> frozenset[str]:
    """The arguments that its keys are made of, and those of the reactor that it runs, as far as a template says."""
    inner: Mapping[str, Any] = step.reactor_class.definition.coordination if step.reactor_class is not None else {}
    declarations = chain(step.coordination.values(), inner.values())
    return frozenset(name for declaration in declarations for key in declaration.keys for name in key.names)
