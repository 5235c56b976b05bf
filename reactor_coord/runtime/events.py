"""What happened, told to whoever listens: one signal for each trace row. Logs and metrics are receivers of it."""

from __future__ import annotations

from reactor_coord.declare.definition import ReactorDefinition
from reactor_coord.engine.states import EventKind
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.signals import SIGNALS
from reactor_coord.storage import clock


def row(execution: Execution, kind: EventKind, *, step: str = "", **data: object) -> TraceEvent:
    """Make the trace row of something that happens outside a run."""
    root_id = execution.root_id or execution.id
    return TraceEvent(root_id=root_id, execution=execution, at=clock.present(), kind=kind, step=step, data=data)


def publish(row: TraceEvent, definition: ReactorDefinition | None, holder: str = "") -> None:
    """Send the signal of a trace row. A receiver that raises is logged by Django and disturbs nobody."""
    signal = SIGNALS.get(EventKind(row.kind))
    if signal is None:
        return
    signal.send_robust(
        sender=definition.cls if definition else None,
        kind=row.kind,
        reactor=definition.label if definition else "",
        step=row.step,
        primitive=row.primitive,
        key=row.key,
        holder=holder,
        execution=str(row.execution_id),
        root=str(row.root_id),
        data=row.data,
        at=row.at,
    )
