"""What happens to an execution, as values: one frozen class for every `EventKind`.

An event is made where the thing happens. Its fields are what the trace row, the signal, the log line, the metrics and the
spans tell of it: whoever reads one names an attribute of the class, so that a reader of a field that is not written does
not pass the type checker. Which execution it happened to, and when, is not part of the event: the journal adds both.

`data()` is the JSON of the trace row, `read()` makes the event from a row. Every field says its unit. A field that is None
or empty is left out of the row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Self

from reactor_coord.engine import event_fields
from reactor_coord.engine.event_fields import Was
from reactor_coord.engine.states import EventKind

Attempt = Annotated[int, "Number of the attempt, from 1; attempts that cost a worker count"]
ErrorType = Annotated[str, "Name of the error's class; `Failure` for a failure given as text"]
Message = Annotated[str, "The error's message, bounded, with redacted values masked"]
Reason = Annotated[str, "Why, in words"]
Worker = Annotated[str, "The process, as `host:pid`"]
Fence = Annotated[int | None, "Fencing token of the hold: of two holds of a key, the later has the greater"]
HeldBy = Annotated[str, "Who holds what is waited for, in words"]
ParkedFor = Annotated[str, "What is waited for: `contention`, `retry`, `result`, `fan_out` or `interrupt`"]
Position = Annotated[int | None, "Position in the line of an ordered lock, from 1"]
Place = Annotated[int | None, "Place among those who wait, 1 being next; for a turn, how many come before"]
Index = Annotated[int | None, "Index of the element, from 0, where it is an element of a map"]
Actor = Annotated[str, "Who did it, as the surface named the person"]
AsItStands = Annotated[bool, "Whether what it did stands, and nothing is undone"]
Verb = Annotated[str, "What was done: `cancel`, `undo`, `resume`, `retry`, or an act on a key such as `release`"]
CleanupSeconds = Annotated[float | None, "Duration of the cleanup's body, in seconds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What happened. `step` is empty where it concerns the execution and not one step of it."""

    kind: ClassVar[EventKind]
    is_recorded: ClassVar[bool] = True
    """Whether it is a trace row, beside a signal."""

    step: Annotated[str, "Step it happened at; empty for the execution itself"] = ""

    @property
    def subject(self) -> tuple[str, str, str]:
        """Step, primitive and key: the columns of the trace row, empty where they do not apply."""
        return self.step, "", ""

    @property
    def holder(self) -> str:
        """Who is in the way, in words; empty where nothing is waited for."""
        return ""

    def data(self) -> dict[str, Any]:
        """The JSON of the trace row: every field that has a value, but for the columns."""
        found = {
            each.name: event_fields.written(getattr(self, each.name))
            for each in event_fields.fields_of(type(self))
            if not each.is_column
        }
        return {name: value for name, value in found.items() if value is not None}

    @classmethod
    def from_data(cls, data: object, *, step: str = "", primitive: str = "", key: str = "") -> Self:
        """Make the event from what any version wrote. What is unknown is ignored, what is missing gets its default."""
        noted = data if isinstance(data, Mapping) else {}
        columns = {"step": step, "primitive": primitive, "key": key}
        values = {
            each.name: columns[each.name] if each.is_column else event_fields.read(each, noted)
            for each in event_fields.fields_of(cls)
        }
        return cls(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionEvent(Event):
    """Something that happened to an execution as a whole: `step` is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent(Event):
    """Something that happened to one step."""

    step: Annotated[str, "Name of the step in its reactor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEvent(Event):
    """Something that may be about one key of one primitive."""

    primitive: Annotated[str, "`lock`, `semaphore`, `rate_limit`, `period` or `ordered_lock`"] = ""
    key: Annotated[str, "Text of the key, as in Redis but for the prefix"] = ""

    @property
    def subject(self) -> tuple[str, str, str]:
        """Step, primitive and key."""
        return self.step, self.primitive, self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldEvent(KeyEvent):
    """Something that happened with one key of one primitive; `step` is empty for what the reactor itself declares."""

    primitive: Annotated[str, "`lock`, `semaphore`, `rate_limit`, `period` or `ordered_lock`"]
    key: Annotated[str, "Text of the key, as in Redis but for the prefix"]


# ---- executions


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionStarted(ExecutionEvent):
    """An execution, or a composed child or an element of a map inside it, begins for the first time."""

    kind = EventKind.STARTED

    worker: Worker = ""
    index: Index = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionParked(KeyEvent):
    """It steps aside and frees its worker until it is woken, or until a time."""

    kind = EventKind.PARKED

    park_kind: ParkedFor
    until: Annotated[datetime | None, "When it looks again without being woken"] = None
    held_by: HeldBy = ""
    attempt: Annotated[int, "How many times this wait has parked, from 1; 0 where the wait is not counted"] = 0
    place: Place = None

    @property
    def holder(self) -> str:
        """Who holds the key."""
        return self.held_by


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionWoken(KeyEvent):
    """A worker takes a parked execution up again."""

    kind = EventKind.WOKEN

    park_kind: ParkedFor
    worker: Worker = ""
    parked_seconds: Annotated[float | None, "From the park to this wake, in seconds, by the database's clock"] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionRollingBack(Event):
    """It turns to rolling back: `step` failed, or it was cancelled (`reason`)."""

    kind = EventKind.ROLLING_BACK

    reason: Reason = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionCompleted(ExecutionEvent):
    """It ended well. Also told of a composed child, and of an element of a map that ran in process."""

    kind = EventKind.COMPLETED

    index: Index = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionHalted(ExecutionEvent):
    """A step, or its own declarations, ended it cleanly before its last step."""

    kind = EventKind.HALTED

    reason: Reason = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionFailed(ExecutionEvent):
    """It failed and is rolled back, or it was cancelled and its rollback is incomplete (then without an error)."""

    kind = EventKind.FAILED

    failed_step: Annotated[str, "Step whose failure it was; empty for the reactor's own"] = ""
    error_type: ErrorType = ""
    message: Message = ""
    reason: Reason = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionCancelRequested(ExecutionEvent):
    """An operator, or the execution above it, asked for its end."""

    kind = EventKind.CANCEL_REQUESTED

    verb: Verb = "cancel"
    reason: Reason = ""
    actor: Actor = ""
    as_it_stands: AsItStands = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionCancelled(ExecutionEvent):
    """It was cancelled and what it had done is undone, or stands."""

    kind = EventKind.CANCELLED

    reason: Reason = ""
    as_it_stands: AsItStands = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionReverted(ExecutionEvent):
    """It had ended, and what it had done was undone since: by hand, or with what it was a part of."""

    kind = EventKind.REVERTED

    reason: Reason = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionAborted(ExecutionEvent):
    """The process that ran it in place died or was interrupted; an operator decides what becomes of it."""

    kind = EventKind.ABORTED

    reason: Reason = ""
    worker: Worker = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionNeedsDefinition(ExecutionEvent):
    """No code that this worker runs has its reactor: it waits for a deploy that has it, and an operator resumes it."""

    kind = EventKind.NEEDS_DEFINITION

    reason: Reason = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionHandedOver(ExecutionEvent):
    """The first part ran in process, as declared (`background_after`, `background_before`); a worker runs the rest."""

    kind = EventKind.HANDED_OVER


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLost(Event):
    """A worker died over it: found by the sweep, by the process itself going down, or laid to a step afterwards."""

    kind = EventKind.WORKER_LOST

    worker: Worker = ""
    reason: Reason = ""
    deaths: Annotated[int | None, "Workers lost since the last time they were laid to a step"] = None
    total: Annotated[int | None, "Workers that this step has cost so far"] = None
    cleanup: Annotated[str, "`undo` or `compensate`, where they died in a cleanup of the step"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorActed(KeyEvent):
    """A person did something: to the execution, or to a key that concerned it."""

    kind = EventKind.OPERATOR

    verb: Verb
    reason: Reason = ""
    actor: Actor = ""
    correlation_id: Annotated[str, "Name of the question that was answered"] = ""
    retried_as: Annotated[str, "Id of the execution that was started instead"] = ""
    owner: Annotated[str, "Owner whose hold was taken away, where that is no execution"] = ""
    fence: Fence = None
    ticket: Annotated[int | None, "Ticket of the waiter that was dropped"] = None
    place: Place = None
    position: Position = None
    bucket: Annotated[str, "Name of the period's bucket that was freed"] = ""
    slot_at: Annotated[datetime | None, "Time of the planned slot that was given back", Was("slot")] = None


# ---- keys


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldAcquired(HoldEvent):
    """A key was free, or a rate limit counted the start."""

    kind = EventKind.ACQUIRED

    fence: Fence = None
    how: Annotated[str, "`free`, `granted`, `reentered` (this tree has it already) or `charged` (a rate limit)"] = ""
    position: Position = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldAdopted(HoldEvent):
    """A key that the execution kept over a park is held again."""

    kind = EventKind.ADOPTED

    fence: Fence = None
    position: Position = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldGranted(HoldEvent):
    """A release had handed the key to this execution while it was parked; told at its wake, at the time of the grant."""

    kind = EventKind.GRANTED

    fence: Fence = None
    released_by: Annotated[str, "Owner whose release it was"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldRefused(HoldEvent):
    """A key was not to be had now."""

    kind = EventKind.REFUSED

    held_by: HeldBy = ""
    place: Place = None
    waiting: Annotated[int | None, "How many wait for the key"] = None
    position: Position = None
    failed_position: Annotated[int | None, "Failed position after which a strict line skips this one"] = None
    retry_after_seconds: Annotated[float | None, "Until the rate limit lets it start", Was("retry_after")] = None
    planned: Annotated[int | None, "How many slots of the rate limit are planned, its own included"] = None
    bucket: Annotated[str, "Name of the period's bucket that has its run already"] = ""

    @property
    def holder(self) -> str:
        """Who holds the key."""
        return self.held_by


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldReleased(HoldEvent):
    """A key was given back."""

    kind = EventKind.RELEASED

    fence: Fence = None
    inner: Annotated[bool, "Whether an enclosing hold of the tree still has the key"] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldLost(HoldEvent):
    """A hold ran out, or was taken away, while the body was inside."""

    kind = EventKind.LOST

    on_lost: Annotated[str, "What the declaration says: `fail` the step, or only `warn`"] = ""
    fence: Fence = None
    held_by: HeldBy = ""

    @property
    def holder(self) -> str:
        """Who was found to have the key now."""
        return self.held_by


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadlockFound(HoldEvent):
    """Executions wait for each other in a ring, and one of them fails to open it."""

    kind = EventKind.DEADLOCK

    victim: Annotated[str, "Id of the execution that fails"]
    cycle: Annotated[tuple[str, ...], "The ring in words, one entry for each wait"] = ()


# ---- steps


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted(StepEvent):
    """Its body begins, under what it declares; of a step with work below it, or handed off: that begins. No trace row."""

    kind = EventKind.STEP_STARTED
    is_recorded = False

    attempt: Attempt = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSucceeded(StepEvent):
    """Its body returned a value, which is stored."""

    kind = EventKind.STEP_SUCCEEDED

    attempt: Attempt = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSkipped(StepEvent):
    """It had nothing to do: `where`, a decision of its code, or contention that is declared to skip."""

    kind = EventKind.STEP_SKIPPED

    attempt: Attempt = 0
    reason: Reason = ""
    index: Index = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFailed(StepEvent):
    """It failed for good: the execution rolls back, unless the failure is contained."""

    kind = EventKind.STEP_FAILED

    attempt: Attempt = 0
    error_type: ErrorType = ""
    message: Message = ""
    nested: Annotated[bool, "Whether it failed by what ran below it, and is told once that is rolled back"] = False
    contained: Annotated[bool, "Whether its execution goes on: it was declared `fails_parent=False`"] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepHalted(StepEvent):
    """Its body ended the execution cleanly."""

    kind = EventKind.STEP_HALTED

    attempt: Attempt = 0
    reason: Reason = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCancelled(StepEvent):
    """It waited, or had begun, and its execution ended before it did."""

    kind = EventKind.STEP_CANCELLED

    reason: Reason = ""
    nested: Annotated[bool, "Whether it was what ran below the step that was ended"] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRetrying(StepEvent):
    """An attempt failed and another follows."""

    kind = EventKind.RETRYING

    attempt: Attempt = 0
    error_type: ErrorType = ""
    message: Message = ""
    retry_in_seconds: Annotated[float | None, "Until the next attempt, in seconds", Was("retry_in")] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompensationStarted(StepEvent):
    """The cleanup of a step that failed begins, under its locks. No trace row."""

    kind = EventKind.COMPENSATION_STARTED
    is_recorded = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCompensated(StepEvent):
    """The cleanup of a step that failed went well."""

    kind = EventKind.COMPENSATED

    seconds: CleanupSeconds = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoStarted(StepEvent):
    """The cleanup of a step that had succeeded begins, under its locks. No trace row."""

    kind = EventKind.UNDO_STARTED
    is_recorded = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUndone(StepEvent):
    """The cleanup of a step that had succeeded went well."""

    kind = EventKind.UNDONE

    seconds: CleanupSeconds = None
    nested: Annotated[bool, "Whether it was what ran below the step that was undone"] = False


BELOW = "below"
"""Reason of a cleanup that did not happen: it was one of what ran below the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepUndoFailed(StepEvent):
    """A cleanup did not happen, or failed; the rollback goes on without it."""

    kind = EventKind.UNDO_FAILED

    key: Annotated[str, "The key that it could not have, where that was the reason"] = ""
    nested: Annotated[bool, "Whether it was a cleanup below the step, which is told at its own step, too"] = False
    reason: Annotated[
        str, "`raised`, `returned_failure`, `coordination_unavailable`, or `below`: a cleanup of what ran below it"
    ] = ""
    error_type: ErrorType = ""
    message: Message = ""

    @property
    def subject(self) -> tuple[str, str, str]:
        """Step and key."""
        return self.step, "", self.key


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgress(StepEvent):
    """A body told how far it is."""

    kind = EventKind.PROGRESS

    done: Annotated[float, "Units of work done"]
    total: Annotated[float | None, "Units of work there are, if known"] = None
    message: Annotated[str, "What the body says of it"] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRanReactor(StepEvent):
    """A body runs another reactor, which has an execution of its own."""

    kind = EventKind.RAN_REACTOR

    ran: Annotated[str, "The label of that reactor"]
    ran_id: Annotated[str, "The id of its execution"]


EVENTS: tuple[type[Event], ...] = (
    ExecutionStarted,
    ExecutionParked,
    ExecutionWoken,
    ExecutionRollingBack,
    ExecutionCompleted,
    ExecutionHalted,
    ExecutionFailed,
    ExecutionCancelRequested,
    ExecutionCancelled,
    ExecutionReverted,
    ExecutionAborted,
    ExecutionNeedsDefinition,
    ExecutionHandedOver,
    WorkerLost,
    OperatorActed,
    HoldAcquired,
    HoldAdopted,
    HoldGranted,
    HoldRefused,
    HoldReleased,
    HoldLost,
    DeadlockFound,
    StepStarted,
    StepSucceeded,
    StepSkipped,
    StepFailed,
    StepHalted,
    StepCancelled,
    StepRetrying,
    CompensationStarted,
    StepCompensated,
    UndoStarted,
    StepUndone,
    StepUndoFailed,
    StepProgress,
    StepRanReactor,
)

BY_KIND: Mapping[EventKind, type[Event]] = {each.kind: each for each in EVENTS}


def read(kind: str, data: object, *, step: str = "", primitive: str = "", key: str = "") -> Event | None:
    """Make the event of a trace row. None where the row is of a kind that this version does not know."""
    try:
        found = BY_KIND[EventKind(kind)]
    except ValueError:
        return None
    return found.from_data(data, step=step, primitive=primitive, key=key)
