"""The keys that a unit will ask for, as far as they are known where it is dispatched: looked at before anything is written.

| keys | cannot be computed | held by the dispatching tree |
|---|---|---|
| of what is handed off itself: its reactor's, its step's | the dispatching step fails | refused |
| of steps inside, and where a guard or a `where` is asked first | not looked at, which is logged | refused |
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from reactor_coord.declare.coordination import LockDeclaration, SemaphoreDeclaration
from reactor_coord.declare.references import UNSET, resolve_arguments
from reactor_coord.errors import CoordinationKeyError, HandOffRefused
from reactor_coord.runtime import units

if TYPE_CHECKING:
    from reactor_coord.declare.definition import ReactorDefinition, StepDefinition
    from reactor_coord.declare.keys import Key
    from reactor_coord.runtime.tree import Frame

logger = logging.getLogger("reactor_coord")

Wanted = tuple[str, str]
"""A primitive and a key, wanted for the unit alone."""


def check(frame: Frame, step: StepDefinition, arguments: Mapping[str, Any]) -> None:
    """Raise `CoordinationKeyError` for a unit that cannot have its key, `HandOffRefused` where this tree holds what it wants.

    Such a unit could never start.
    """
    definition = units.unit_definition(frame.definition, step)
    own = [wanted for declared in _own(step, definition, arguments) for wanted in _wanted(frame, step, declared)]
    held = {(hold.primitive, key.key): hold for hold in frame.tree.holds for key in hold.taken.keys}
    if not held:
        return
    inner = (wanted for declared in _inner(definition, arguments) for wanted in _wanted(frame, step, declared))
    for wanted in chain(own, inner):
        if wanted in held:
            raise _refusal(frame, step, wanted, held[wanted].place.describe())


def _refusal(frame: Frame, step: StepDefinition, wanted: Wanted, holder: str) -> HandOffRefused:
    primitive, key = wanted
    return HandOffRefused(
        f"{frame.definition.label}.{step.name} would hand work to another process that needs the {primitive} "
        f"{key!r}, which {holder} of this execution ({frame.tree.id}) holds: it could never start. "
        f"Run it inside this execution with step or compose, or dispatch it after the key is given back",
        reactor=frame.definition.label,
        step=step.name,
        primitive=primitive,
        key=key,
        holder=frame.tree.id,
    )


@dataclass(frozen=True, slots=True)
class _Declared:
    """What one place of the unit declares, with the arguments that its keys are made of."""

    at: str
    """The reactor's label, or the step inside it."""
    coordination: Mapping[str, Any]
    arguments: Mapping[str, Any]
    redacted: frozenset[str]
    is_certain: bool = False
    """Whether the unit asks for these keys whatever comes."""
    problem: str = ""
    """Why the arguments cannot be known, where they cannot."""


def _own(step: StepDefinition, definition: ReactorDefinition, inputs: Mapping[str, Any]) -> Iterator[_Declared]:
    """What a unit asks for before anything of it runs."""
    yield _of_reactor(definition, inputs, is_certain=True)
    if units.MARK not in definition.name:
        return
    for alone in definition.steps.values():
        arguments = _with_defaults(alone, inputs)
        yield _Declared(alone.name, alone.coordination, arguments, alone.redacted, not _is_asked_first(step))
        if alone.kind == "compose" and alone.reactor_class is not None:
            yield from _own(step, alone.reactor_class.definition, arguments)


def _inner(definition: ReactorDefinition, inputs: Mapping[str, Any]) -> Iterator[_Declared]:
    """What the steps of a unit ask for, at any depth, as far as that depends on its inputs alone."""
    is_single, scope = units.MARK in definition.name, _InputsOnly(inputs)
    for step in definition.steps.values():
        names = frozenset(name for name, ref in step.arguments.items() if not ref.steps() and not ref.has_element())
        try:
            arguments = _with_defaults(step, resolve_arguments(step.arguments, scope, names))
        except Exception as error:  # noqa: BLE001 - not to be known at dispatch: it is met, and told, where it runs
            yield _Declared(step.name, step.coordination, {}, step.redacted, problem=type(error).__name__)
            continue
        if not is_single:
            yield _Declared(step.name, step.coordination, arguments, step.redacted)
        if step.kind == "compose" and step.reactor_class is not None:
            if not is_single:
                yield _of_reactor(step.reactor_class.definition, arguments)
            yield from _inner(step.reactor_class.definition, arguments)


def _of_reactor(definition: ReactorDefinition, inputs: Mapping[str, Any], *, is_certain: bool = False) -> _Declared:
    return _Declared(definition.label, definition.coordination, inputs, definition.schema.redacted, is_certain)


def _wanted(frame: Frame, step: StepDefinition, declared: _Declared) -> Iterator[Wanted]:
    """The keys that it wants for itself alone. Of what it asks for for certain, the others have to be computable as well."""
    for declaration in declared.coordination.values():
        is_exclusive = _is_exclusive(declaration)
        for key in declaration.keys if declared.is_certain or is_exclusive else ():
            try:
                text = _text(key, declared)
            except CoordinationKeyError as error:
                if declared.is_certain:
                    raise error.fill(
                        reactor=frame.definition.label, step=step.name, primitive=declaration.primitive
                    ) from None
                _tell_unchecked(frame, step, declared.at, error)
                continue
            if is_exclusive:
                yield declaration.primitive, text


def _text(key: Key, declared: _Declared) -> str:
    if declared.problem:
        raise CoordinationKeyError(template=str(key), problem=declared.problem)
    return key.compute(declared.arguments, declared.redacted)


def _tell_unchecked(frame: Frame, step: StepDefinition, at: str, error: CoordinationKeyError) -> None:
    """Say that a key of the unit was not compared with what the tree holds: if both want it, the unit waits for the tree."""
    logger.info(
        "event=reactor_coord.hand_off_unchecked reactor=%s step=%s execution=%s at=%s key=%r reason=%r",
        frame.definition.label,
        step.name,
        frame.tree.id,
        at,
        error.template,
        error.problem,
    )


class _InputsOnly:
    """A scope in which no step has run: what depends on one cannot be known at dispatch."""

    element = UNSET

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self._inputs = inputs

    def input(self, name: str) -> Any:
        """The unit's input."""
        return self._inputs[name]

    def result(self, step: str) -> Any:
        """Nothing yet."""
        return UNSET

    def failure(self, step: str) -> None:
        """Nothing has failed."""


def _is_asked_first(step: StepDefinition) -> bool:
    """Whether the unit asks a guard, or a `where` of its own, before its keys: it may turn out to need none."""
    step_class = step.step_class
    if step_class is None:
        return False
    return step_class.has_guard or (step_class.has_where and not units.has_answered_where(step))


def _is_exclusive(declaration: Any) -> bool:
    is_single = isinstance(declaration, SemaphoreDeclaration) and declaration.limit == 1
    return is_single or isinstance(declaration, LockDeclaration)


def _with_defaults(step: StepDefinition, known: Mapping[str, Any]) -> dict[str, Any]:
    """Coerce what is known and add the defaults of what nothing is wired to, as the step itself will: one key, not two."""
    found = dict(known)
    for name, field in (step.schema.fields if step.schema is not None else {}).items():
        if name in known:
            found[name] = field.validated(known[name])
        elif name not in step.arguments and not field.required:
            found[name] = field.absent()
    return found
