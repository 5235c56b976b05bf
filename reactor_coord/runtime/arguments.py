"""A step's arguments, key material and place: derived here for the way forward, for rollback and for whoever looks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from reactor_coord.coordination.types import Requester
from reactor_coord.declare.references import Scope, resolve_arguments, skipped_arguments
from reactor_coord.runtime.deadlocks import is_awaited
from reactor_coord.runtime.dispatch import wake_name
from reactor_coord.runtime.gates import Place
from reactor_coord.storage import codec
from reactor_coord.storage.element_values import ElementValues

if TYPE_CHECKING:
    from reactor_coord.declare.definition import StepDefinition
    from reactor_coord.models import StepRun
    from reactor_coord.runtime.tree import Frame


def condition_values(step: StepDefinition, scope: Scope, names: Collection[str]) -> dict[str, Any]:
    """Resolve the arguments of these names as `where` sees them: defaults applied, coerced where they are valid.

    What is not valid is seen as it came: whether the step runs is asked before its arguments are validated.
    """
    values = resolve_arguments(step.arguments, scope, names)
    if step.schema is None:
        return values
    absent = skipped_arguments(step.arguments, scope)
    return values | step.schema.coerce(values, names=names, absent=absent)


def declared_arguments(frame: Frame, step: StepDefinition) -> dict[str, Any]:
    """Resolve and validate. What only `where` names is left out of a step with declared inputs."""
    names = None if step.schema is None else frozenset(step.arguments) & frozenset(step.schema.fields)
    values = resolve_arguments(step.arguments, frame, names)
    if step.schema is None:
        return values
    values = {name: _as_declared(step, name, value) for name, value in values.items()}
    return step.schema.validate(values, absent=skipped_arguments(step.arguments, frame))


def _as_declared(step: StepDefinition, name: str, value: Any) -> Any:
    """The values of a large map as a list where the input has a type: only an untyped one can take them as they are read."""
    field = step.schema.fields.get(name) if step.schema is not None else None
    is_lazy = isinstance(value, ElementValues)
    return list(value) if is_lazy and field is not None and field.type is not Any else value


def recorded_arguments(frame: Frame, step: StepDefinition, run: StepRun) -> dict[str, Any]:
    """Return the arguments with which the step ran: rollback works on the same values and under the same key."""
    if run.arguments is None:
        return declared_arguments(frame, step)
    return dict(codec.decode(run.arguments))


def legible_arguments(frame: Frame, step: StepDefinition, run: StepRun) -> dict[str, Any]:
    """Those of the recorded ones that can be read: what a child ran under needs no more."""
    if run.arguments is None:
        return declared_arguments(frame, step)
    return codec.decode_legible(run.arguments)


def requester(frame: Frame, step: str) -> Requester:
    """Name who asks: the tree owns, the lease claims, the root is woken."""
    tree = frame.tree
    return Requester(
        owner=tree.id,
        claim=tree.lease.token,
        wake=wake_name(tree.id, tree.root.queue) if tree.parks else "",
        execution=str(frame.execution.id),
        reactor=frame.definition.label,
        step=step,
    )


def place_of_step(frame: Frame, step: StepDefinition, arguments: Mapping[str, Any]) -> Place:
    """Return the place of a step with these arguments."""
    place = _place(frame, step.name, arguments, step.redacted, step.coordination)
    run = frame.runs.get(step.name)
    if run is not None and run.attempts:
        _recall(place, run.keys)
    return place


def place_of_reactor(frame: Frame) -> Place:
    """Return the place of the reactor's own declarations."""
    definition = frame.definition
    place = _place(frame, "", frame.legible_inputs, definition.schema.redacted, definition.coordination)
    _recall(place, frame.execution.keys)
    return replace(place, admitted_at=frame.execution.admitted_at)


def _recall(place: Place, recorded: object) -> None:
    """Have the place ask for the keys that it asked for before, whatever its templates would say now."""
    known = recorded if isinstance(recorded, Mapping) else {}
    for primitive, declaration in place.declarations.items():
        texts = known.get(primitive)
        if isinstance(texts, list) and len(texts) == len(declaration.keys):
            place.texts.update(zip(declaration.keys, map(str, texts), strict=True))


def _place(
    frame: Frame, step: str, arguments: Mapping[str, Any], redacted: frozenset[str], declarations: Mapping[str, Any]
) -> Place:
    waited = frame.tree.waited
    previous = waited if waited is not None and waited.path == f"{frame.execution.id}/{step}" else None
    return Place(
        requester=requester(frame, step),
        reactor=frame.definition.label,
        step=step,
        arguments=arguments,
        redacted=redacted,
        declarations=declarations,
        emit=frame.emit,
        parks=frame.tree.parks,
        family=str(frame.tree.root.tags.get("dispatched_by") or frame.tree.id),
        retry_of=str(frame.tree.root.tags.get("retry_of") or ""),
        keeps=is_awaited(frame.tree),
        previous=previous,
        lender=frame.tree.lender,
    )
