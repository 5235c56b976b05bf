"""Where an event becomes a trace row and a signal: `row` is the one maker of the row, `publish` the one sender of the signal.

A `Note` is an event with the execution it happened to and its time. The caller writes the row with its own transaction
(a checkpoint, an operator's change, the sweep's) and publishes the note then or after the commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from reactor_coord.declare import registry
from reactor_coord.engine.events import Event
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.signals import SIGNALS
from reactor_coord.storage import clock

if TYPE_CHECKING:
    from uuid import UUID

    from reactor_coord.declare.definition import ReactorDefinition


COLUMNS = ("id", "root_id", "reactor", "label")
"""What a note reads of an execution's row."""


@dataclass(frozen=True, slots=True)
class Note:
    """An event, when it happened and to which execution. Without ids: a call outside any execution, which has no trace."""

    event: Event
    at: datetime
    execution_id: UUID | None = None
    root_id: UUID | None = None
    reactor: str = ""
    """The reactor's label."""
    sender: type[Any] | None = None
    """The reactor's class, where this process has defined it."""


def note(
    execution: Execution, event: Event, *, definition: ReactorDefinition | None = None, at: datetime | None = None
) -> Note:
    """Note what happened to this execution, now unless `at` says when. The reactor is the row's, unless it is given."""
    definition = definition or registry.defined(execution.reactor)
    return Note(
        event,
        at or clock.present(),
        execution.id,
        execution.root_id or execution.id,
        definition.label if definition is not None else execution.label or execution.reactor,
        definition.cls if definition is not None else None,
    )


def row(note: Note) -> TraceEvent:
    """Make the trace row of a note; it is not saved. Only what happened to an execution has one."""
    assert note.root_id is not None
    assert note.execution_id is not None
    step, primitive, key = note.event.subject
    return TraceEvent(
        root_id=note.root_id,
        execution_id=note.execution_id,
        at=note.at,
        kind=note.event.kind.value,
        step=step,
        primitive=primitive,
        key=key,
        data=note.event.data(),
    )


def publish(note: Note) -> None:
    """Send the signal of a note. A receiver that raises is logged by Django and changes nothing."""
    event = note.event
    step, primitive, key = event.subject
    SIGNALS[event.kind].send_robust(
        sender=note.sender,
        kind=event.kind,
        reactor=note.reactor,
        step=step,
        primitive=primitive,
        key=key,
        holder=event.holder,
        execution=_text(note.execution_id),
        root=_text(note.root_id),
        data=event.data(),
        at=note.at,
        event=event,
    )


def _text(identity: UUID | None) -> str:
    return "" if identity is None else str(identity)
