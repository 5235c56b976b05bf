"""One structured line for every event, on the logger `reactor_coord`.

    event=reactor_coord.step.parked reactor=Payment step=charge primitive=lock key=acct:1 attempt=2 execution=...

The same pairs are in the record's `extra` (`record.event`, `record.reactor_coord`), for formatters that write JSON.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from reactor_coord.engine import events
from reactor_coord.engine.event_fields import fields_of
from reactor_coord.engine.events import Event
from reactor_coord.engine.states import EventKind
from reactor_coord.signals import SIGNALS

logger = logging.getLogger("reactor_coord")

_NEEDS_QUOTES = re.compile(r'[\s"=\\\x00-\x1f\x7f]')
_LONGEST_VALUE = 500

ALWAYS = "attempt"
"""The field that every event that has it shows."""


@dataclass(frozen=True, slots=True)
class Line:
    """How an event is named and how loud it is; `details` are the fields of it that go into the line."""

    event: type[Event]
    name: str
    level: int
    details: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a detail that the event does not have: it would be missing from every line, and nothing would say so."""
        known = {each.name for each in fields_of(self.event)}
        unknown = [name for name in self.details if name not in known]
        if unknown:
            raise TypeError(
                f"{self.event.__name__} has no field {', '.join(unknown)}; it has {', '.join(sorted(known))}"
            )


def _debug(event: type[Event], name: str, *details: str) -> Line:
    return Line(event, name, logging.DEBUG, details)


def _info(event: type[Event], name: str, *details: str) -> Line:
    return Line(event, name, logging.INFO, details)


def _warning(event: type[Event], name: str, *details: str) -> Line:
    return Line(event, name, logging.WARNING, details)


_LINES = (
    _debug(events.ExecutionStarted, "execution.started", "worker", "index"),
    _info(events.ExecutionParked, "step.parked", "park_kind", "place", "until"),
    _info(events.ExecutionWoken, "execution.woken", "park_kind", "parked_seconds"),
    _warning(events.ExecutionRollingBack, "execution.rolling_back", "reason"),
    _info(events.ExecutionCompleted, "execution.completed"),
    _info(events.ExecutionHalted, "execution.halted", "reason"),
    _warning(events.ExecutionFailed, "execution.failed", "failed_step", "error_type", "reason"),
    _info(events.ExecutionCancelRequested, "execution.cancel_requested", "actor", "reason"),
    _info(events.ExecutionCancelled, "execution.cancelled", "reason"),
    _info(events.ExecutionReverted, "execution.reverted", "reason"),
    _warning(events.ExecutionAborted, "execution.aborted", "worker", "reason"),
    _warning(events.ExecutionNeedsDefinition, "execution.needs_definition", "reason"),
    _info(events.ExecutionHandedOver, "execution.handed_over"),
    _warning(events.WorkerLost, "worker.lost", "worker", "reason", "deaths", "total", "cleanup"),
    _info(events.OperatorActed, "operator.acted", "verb", "actor", "reason", "retried_as", "owner"),
    _debug(events.HoldAcquired, "hold.acquired", "fence", "position"),
    _info(events.HoldAdopted, "hold.adopted", "fence", "position"),
    _info(events.HoldGranted, "hold.granted", "fence"),
    _info(events.HoldRefused, "hold.refused", "place", "retry_after_seconds", "bucket"),
    _debug(events.HoldReleased, "hold.released", "fence"),
    _warning(events.HoldLost, "hold.lost", "on_lost"),
    _warning(events.DeadlockFound, "deadlock.found", "victim", "cycle"),
    _debug(events.StepStarted, "step.started"),
    _debug(events.StepSucceeded, "step.succeeded"),
    _info(events.StepSkipped, "step.skipped", "reason"),
    _warning(events.StepFailed, "step.failed", "error_type"),
    _info(events.StepHalted, "step.halted", "reason"),
    _info(events.StepCancelled, "step.cancelled", "reason"),
    _info(events.StepRetrying, "step.retrying", "retry_in_seconds", "error_type"),
    _debug(events.CompensationStarted, "step.compensation_started"),
    _info(events.StepCompensated, "step.compensated", "seconds"),
    _debug(events.UndoStarted, "step.undo_started"),
    _info(events.StepUndone, "step.undone", "seconds"),
    _warning(events.StepUndoFailed, "step.undo_failed", "reason", "error_type"),
    _debug(events.StepProgress, "step.progress", "done", "total"),
    _info(events.StepRanReactor, "step.ran_reactor", "ran", "ran_id"),
)

LINES: Mapping[EventKind, Line] = {line.event.kind: line for line in _LINES}


def write(event: Event, *, reactor: str, execution: str) -> None:
    """Write the event's line if the logger's level lets it."""
    line = LINES[event.kind]
    if not logger.isEnabledFor(line.level):
        return
    pairs = _pairs(line, event, reactor, execution)
    text = " ".join(f"{name}={_quoted(value)}" for name, value in pairs.items())
    logger.log(line.level, "%s", text, extra={"event": pairs["event"], "reactor_coord": pairs})


def _pairs(line: Line, event: Event, reactor: str, execution: str) -> dict[str, Any]:
    step, primitive, key = event.subject
    data = event.data()
    found = {
        "event": f"reactor_coord.{line.name}",
        "reactor": reactor,
        "step": step,
        "primitive": primitive,
        "key": key,
        "holder": event.holder,
        **{name: data.get(name) for name in (ALWAYS, *line.details)},
        "execution": execution,
    }
    return {name: value for name, value in found.items() if value not in (None, "")}


def _quoted(value: object) -> str:
    text = str(value)
    if len(text) > _LONGEST_VALUE:
        text = f"{text[:_LONGEST_VALUE]}…"
    if not _NEEDS_QUOTES.search(text):
        return text
    # Escaped, so that what a key or a reason contains can never begin a line or a pair of its own.
    return '"' + text.encode("unicode_escape").decode("ascii").replace('"', '\\"') + '"'


def connect() -> None:
    """Write a line for every event from now on. Connecting again changes nothing."""
    for kind, signal in SIGNALS.items():
        signal.connect(_receive, dispatch_uid=f"reactor_coord.observe.logs.{kind.value}")


def _receive(sender: object, *, event: Event, reactor: str, execution: str, **_: Any) -> None:
    write(event, reactor=reactor, execution=execution)


connect()
