"""A step's arguments, key material and place: derived here for the way forward, for rollback and for whoever looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from reactor_coord.coordination.types import Requester
from reactor_coord.declare.references import resolve_arguments, skipped_arguments
from reactor_coord.runtime.deadlocks import is_awaited
from reactor_coord.runtime.dispatch import wake_name
from reactor_coord.runtime.gates import Place
from reactor_coord.storage import codec

if TYPE_CHECKING:
    from reactor_coord.declare.definition import StepDefinition
    from reactor_coord.models import StepRun
    from reactor_coord.runtime.tree import Frame


def where_arguments(frame: Frame, step: StepDefinition) -> dict[str, Any]:
    """Resolve just what the `where` callable names."""
    return resolve_arguments(step.arguments, frame, step.where_names)


def declared_arguments(frame: Frame, step: StepDefinition) -> dict[str, Any]:
    """Resolve and validate. What only `where` names is left out of a step with declared inputs."""
    names = None if step.schema is None else frozenset(step.arguments) & frozenset(step.schema.fields)
    values = resolve_arguments(step.arguments, frame, names)
    if step.schema is None:
        return values
    return step.schema.validate(values, absent=skipped_arguments(step.arguments, frame))


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
    return _place(frame, step.name, arguments, step.redacted, step.coordination)


def place_of_reactor(frame: Frame) -> Place:
    """Return the place of the reactor's own declarations."""
    definition = frame.definition
    place = _place(frame, "", frame.legible_inputs, definition.schema.redacted, definition.coordination)
    return replace(place, admitted_at=frame.execution.admitted_at)


def _place(
    frame: Frame, step: str, arguments: Mapping[str, Any], redacted: frozenset[str], declarations: Mapping[str, Any]
) -> Place:
    waited = frame.tree.waited
    previous = waited if waited is not None and waited.get("path") == f"{frame.execution.id}/{step}" else None
    return Place(
        requester=requester(frame, step),
        reactor=frame.definition.label,
        step=step,
        arguments=arguments,
        redacted=redacted,
        declarations=declarations,
        emit=frame.emit,
        parks=frame.tree.parks,
        keeps=is_awaited(frame.tree),
        previous=previous,
        # Not the row's `resume_at`: the sweep that sends a look's message moves that on to the next.
        due=datetime.fromisoformat(previous["until"]) if previous is not None else None,
    )
