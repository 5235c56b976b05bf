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

from reactor_coord.engine.states import EventKind
from reactor_coord.signals import SIGNALS

logger = logging.getLogger("reactor_coord")

_NEEDS_QUOTES = re.compile(r'[\s"=\\\x00-\x1f\x7f]')
_LONGEST_VALUE = 500


@dataclass(frozen=True, slots=True)
class Line:
    """How an event is named and how loud it is; `details` are the entries of its data that go into the line."""

    event: str
    level: int = logging.INFO
    details: tuple[str, ...] = ()


LINES: Mapping[EventKind, Line] = {
    EventKind.STARTED: Line("execution.started", logging.DEBUG),
    EventKind.WOKEN: Line("execution.woken", details=("park_kind",)),
    EventKind.ACQUIRED: Line("hold.acquired", logging.DEBUG, ("fence",)),
    EventKind.ADOPTED: Line("hold.adopted", details=("fence",)),
    EventKind.GRANTED: Line("hold.granted", details=("fence",)),
    EventKind.REFUSED: Line("hold.refused", details=("place",)),
    EventKind.RELEASED: Line("hold.released", logging.DEBUG, ("fence",)),
    EventKind.LOST: Line("hold.lost", logging.WARNING),
    EventKind.PARKED: Line("step.parked", details=("park_kind", "place", "until")),
    EventKind.DEADLOCK: Line("deadlock.found", logging.WARNING, ("victim", "cycle")),
    EventKind.STEP_SUCCEEDED: Line("step.succeeded", logging.DEBUG),
    EventKind.STEP_SKIPPED: Line("step.skipped", details=("reason",)),
    EventKind.STEP_FAILED: Line("step.failed", logging.WARNING, ("error_type",)),
    EventKind.STEP_HALTED: Line("step.halted", details=("reason",)),
    EventKind.RETRYING: Line("step.retrying", details=("delay", "error_type")),
    EventKind.WORKER_LOST: Line("worker.lost", logging.WARNING, ("worker",)),
    EventKind.COMPENSATED: Line("step.compensated"),
    EventKind.UNDONE: Line("step.undone"),
    EventKind.UNDO_FAILED: Line("step.undo_failed", logging.WARNING, ("reason",)),
    EventKind.ROLLING_BACK: Line("execution.rolling_back", logging.WARNING),
    EventKind.COMPLETED: Line("execution.completed"),
    EventKind.HALTED: Line("execution.halted", details=("reason",)),
    EventKind.FAILED: Line("execution.failed", logging.WARNING, ("error_type",)),
    EventKind.CANCEL_REQUESTED: Line("execution.cancel_requested", details=("actor",)),
    EventKind.CANCELLED: Line("execution.cancelled", details=("reason",)),
    EventKind.ABORTED: Line("execution.aborted", logging.WARNING, ("worker",)),
    EventKind.OPERATOR: Line("operator.acted", details=("verb", "actor")),
    EventKind.PROGRESS: Line("step.progress", logging.DEBUG, ("done", "total")),
}


def write(kind: str, **event: Any) -> None:
    """Receiver of every signal: writes its line if the logger's level lets it."""
    line = LINES[EventKind(kind)]
    if not logger.isEnabledFor(line.level):
        return
    pairs = _pairs(line, event)
    text = " ".join(f"{name}={_quoted(value)}" for name, value in pairs.items())
    logger.log(line.level, "%s", text, extra={"event": pairs["event"], "reactor_coord": pairs})


def _pairs(line: Line, event: Mapping[str, Any]) -> dict[str, Any]:
    data = event.get("data") or {}
    found = {
        "event": f"reactor_coord.{line.event}",
        "reactor": event.get("reactor"),
        "step": event.get("step"),
        "primitive": event.get("primitive"),
        "key": event.get("key"),
        "holder": event.get("holder"),
        "attempt": data.get("attempt"),
        **{name: data.get(name) for name in line.details},
        "execution": event.get("execution"),
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


def _receive(sender: object, *, kind: str, **event: Any) -> None:
    write(kind, **event)


connect()
