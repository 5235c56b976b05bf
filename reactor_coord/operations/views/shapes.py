"""What operators see, as values: frozen, without models, ready for a page, an API answer or a terminal.

Nothing here queries; `executions` and `coordination` fill these in. Payloads (`arguments`, `result`, `inputs`, trace data) have
already been through `storage.codec.display`: redacted, without tags, truncated.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from reactor_coord.engine.states import is_terminal

Row = TypeVar("Row")

_ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT(?P<time>\d\d:\d\d:\d\d(\.\d{1,3})?)\d*(\+00:00|Z)?")


@dataclass(frozen=True, slots=True)
class HolderView:
    """Who has a key. `execution` is empty for an owner outside any execution (a direct call, a test).

    `live` false: as it was last recorded, with `recorded` its words of then.
    """

    owner: str
    execution: str = ""
    reactor: str = ""
    step: str = ""
    state: str = "held"
    since: dt.datetime | None = None
    lease_left: float | None = None
    fence: int | None = None
    live: bool = True
    recorded: str = ""

    @property
    def name(self) -> str:
        """The holder in few words: `Payment 2f9a1c03 at charge`."""
        if self.recorded:
            return self.recorded
        words = self.reactor or "somebody"
        who = self.execution or self.owner
        words += f" {short(who)}" if who else ""
        return f"{words} at {self.step}" if self.step else words


@dataclass(frozen=True, slots=True)
class WaitView:
    """What a parked execution waits on. `place` counts from 1; `live` false: as the row last recorded it, not as Redis has it.

    `execution` is the one of the tree that waits (the root, or one it composed); `path` names the step from the root's view.
    """

    kind: str
    step: str = ""
    path: str = ""
    execution: str = ""
    reactor: str = ""
    primitive: str = ""
    key: str = ""
    keys: tuple[str, ...] = ()
    holder: HolderView | None = None
    place: int | None = None
    waiting: int | None = None
    attempts: int = 0
    since: dt.datetime | None = None
    next_check: dt.datetime | None = None
    live: bool = False


@dataclass(frozen=True, slots=True)
class CoordinationView:
    """One declared hold of one step or reactor.

    `state`: pending | waiting | granted | held | parked | released | passed | not taken.
    """

    primitive: str
    key: str
    state: str
    declared: str = ""
    holder: HolderView | None = None
    since: dt.datetime | None = None
    fence: int | None = None


@dataclass(frozen=True, slots=True)
class ErrorView:
    """Why a step failed, as it was recorded."""

    type: str
    message: str
    traceback: str = ""
    began: bool = True
    retryable: bool = True


@dataclass(frozen=True, slots=True)
class RollbackFailureView:
    """A cleanup that did not happen: what is left for a person to put right."""

    step: str
    kind: str = ""
    key: str = ""
    reason: str = ""
    message: str = ""
    error_type: str = ""


@dataclass(frozen=True, slots=True)
class FailureView:
    """The failure that ended an execution. `rollback_closed`: which operator closed its rollback by hand, and why; else empty."""

    step: str
    reactor: str
    type: str
    message: str
    arguments: Any = None
    rollback_closed: str = ""


@dataclass(frozen=True, slots=True)
class FieldView:
    """One value that an answer has. `schema` is its JSON Schema, self-contained; `initial` its default, as JSON."""

    name: str
    type: str
    required: bool = True
    redact: bool = False
    help: str = ""
    schema: dict[str, Any] = field(default_factory=dict)
    initial: Any = None


@dataclass(frozen=True, slots=True)
class QuestionView:
    """What a paused execution asks. No `fields`: any JSON answers it. `until` None: it waits for as long as it takes."""

    step: str
    execution: str
    reactor: str
    correlation_id: str
    since: dt.datetime | None = None
    until: dt.datetime | None = None
    fields: tuple[FieldView, ...] = ()
    definition_missing: bool = False

    @property
    def shape(self) -> str:
        """Its fields in one line: `approved: bool, note: str (optional)`."""
        return ", ".join(f"{each.name}: {each.type}{'' if each.required else ' (optional)'}" for each in self.fields)


@dataclass(frozen=True, slots=True)
class UnitView:
    """One execution that a step handed to a worker of its own."""

    id: str
    label: str
    status: str
    status_label: str
    element_index: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class UnitsView:
    """What a step handed off, counted by status; of a fan-out `shown` has only those that need a look."""

    total: int
    counts: tuple[tuple[str, int], ...]
    shown: tuple[UnitView, ...] = ()
    is_fan_out: bool = False

    @property
    def done(self) -> int:
        """How many are over."""
        return sum(count for status, count in self.counts if is_terminal(status))


@dataclass(frozen=True, slots=True)
class StepView:
    """One step of the definition, begun or not; `level` is its depth in the graph, `branches` what it composed or fanned out."""

    name: str
    kind: str
    status: str
    level: int = 0
    depends_on: tuple[str, ...] = ()
    attempts: int = 0
    contention_attempts: int = 0
    workers_lost: int = 0
    arguments: Any = None
    result: Any = None
    error: ErrorView | None = None
    reason: str = ""
    correlation_id: str = ""
    rollback_failure: RollbackFailureView | None = None
    coordination: tuple[CoordinationView, ...] = ()
    started_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None
    oversized: bool = False
    branches: tuple[BranchView, ...] = ()
    branches_total: int = 0
    question: QuestionView | None = None
    units: UnitsView | None = None

    @property
    def duration(self) -> float | None:
        """Seconds from its begin to its end; None while it runs or before."""
        return seconds_between(self.started_at, self.finished_at)


@dataclass(frozen=True, slots=True)
class BranchView:
    """A nested execution (composed, or an element of a map) inside the page of its root."""

    id: str
    reactor: str
    label: str
    status: str
    element_index: int | None = None
    reason: str = ""
    definition_missing: bool = False
    coordination: tuple[CoordinationView, ...] = ()
    steps: tuple[StepView, ...] = ()


@dataclass(frozen=True, slots=True)
class TraceView:
    """One trace row. `offset` is in seconds since the execution was created."""

    sequence: int
    at: dt.datetime
    offset: float
    kind: str
    execution: str
    reactor: str = ""
    step: str = ""
    primitive: str = ""
    key: str = ""
    data: Any = None
    nested: bool = False

    @property
    def words(self) -> str:
        """Its data in one line for a table: `place=1, holder=…`."""
        return in_words(self.data)


@dataclass(frozen=True, slots=True)
class ExecutionSummary:
    """One row of a list: no payload."""

    id: str
    reactor: str
    label: str
    status: str
    status_label: str
    mode: str
    queue: str = ""
    idempotency_key: str = ""
    tags: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    waits_on: WaitView | None = None
    parent: str = ""
    parent_step: str = ""
    element_index: int | None = None
    root: str = ""
    created_at: dt.datetime | None = None
    started_at: dt.datetime | None = None
    finished_at: dt.datetime | None = None
    cancel_as_it_stands: bool = False

    @property
    def short_id(self) -> str:
        """The end of the id, where a uuid7 is random: enough to tell rows apart."""
        return short(self.id)

    @property
    def duration(self) -> float | None:
        """Seconds from its first begin to its end; None until it ended."""
        return seconds_between(self.started_at, self.finished_at)


@dataclass(frozen=True, slots=True)
class ExecutionDetail:
    """Everything the page of one execution says. `notice` is set when Redis could not be asked; the rest still holds."""

    summary: ExecutionSummary
    explain: str
    inputs: Any
    result: Any
    failure: FailureView | None
    rollback_failures: tuple[RollbackFailureView, ...]
    steps: tuple[StepView, ...]
    coordination: tuple[CoordinationView, ...]
    trace: tuple[TraceView, ...]
    trace_total: int
    waits_on: WaitView | None
    definition_missing: bool
    allowed: frozenset[str]
    notice: str = ""
    worker: str = ""
    workers_lost: int = 0
    lease_expires_at: dt.datetime | None = None
    cancel_requested: bool = False
    steps_hidden: int = 0
    questions: tuple[QuestionView, ...] = ()

    @property
    def levels(self) -> tuple[tuple[StepView, ...], ...]:
        """Its steps by depth in the graph, for the picture."""
        depth = 1 + max((step.level for step in self.steps), default=-1)
        return tuple(tuple(step for step in self.steps if step.level == level) for level in range(depth))


@dataclass(frozen=True, slots=True)
class HoldRow:
    """One live hold of one key. `slots_used` of `limit`: of a semaphore, by all its holders."""

    key: str
    primitive: str
    state: str
    owner: str
    execution: str
    reactor: str
    step: str
    since: dt.datetime | None
    lease_left: float
    fence: int
    count: int
    waiting: int
    slots_used: int | None = None
    limit: int | None = None

    @property
    def holder(self) -> str:
        """Its holder in few words."""
        return HolderView(self.owner, self.execution, self.reactor, self.step).name


@dataclass(frozen=True, slots=True)
class WaiterRow:
    """One place in one line. `kind`: parked (woken by a message) or blocking (a process that stands there).

    `ticket` names it as long as it stands there, whatever its place.
    """

    key: str
    primitive: str
    place: int
    owner: str
    execution: str
    reactor: str
    step: str
    since: dt.datetime | None
    kind: str
    priority: int = 0
    ticket: int = 0

    @property
    def name(self) -> str:
        """Who it is, in few words."""
        return HolderView(self.owner, self.execution, self.reactor, self.step).name


@dataclass(frozen=True, slots=True)
class WindowRow:
    """One window of a rate limit: starts counted now, those planned in it included. `ends_at`: of a fixed window."""

    limit: int
    seconds: float
    count: int
    ends_at: dt.datetime | None


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One start to come: whose, and when. `who` and `at` name it."""

    who: str
    execution: str
    step: str
    at: float
    due: dt.datetime | None


@dataclass(frozen=True, slots=True)
class LimitRow:
    """One rate limit. `planned` has the soonest slots, `planned_total` says how many there are."""

    key: str
    algorithm: str
    windows: tuple[WindowRow, ...]
    planned: tuple[SlotRow, ...]
    planned_total: int


@dataclass(frozen=True, slots=True)
class BucketRow:
    """One marked bucket of a period: who ran in it, when that was marked, until when a second run is skipped."""

    key: str
    bucket: str
    by: str
    since: dt.datetime | None
    until: dt.datetime | None


@dataclass(frozen=True, slots=True)
class PositionRow:
    """One position that has not passed. `passed_over`: when, unless it shows a sign of life and once it is its turn."""

    position: int
    state: str
    execution: str
    reactor: str
    step: str
    passed_over: dt.datetime | None

    @property
    def name(self) -> str:
        """Who it is, in few words."""
        return HolderView(self.execution, self.execution, self.reactor, self.step).name


@dataclass(frozen=True, slots=True)
class LineRow:
    """One ordered line. `epoch` tells it from the next one; `first_failed` is 0 while none did; `in_flight`: the first.

    `failed_until`: until when those who come skip although the line may be drained, and `failed_by` is the execution whose
    retry, if it succeeds, heals the line before.
    """

    key: str
    epoch: int
    next: int
    last_completed: int
    last_given: int
    first_failed: int
    waiting: int
    in_flight: tuple[PositionRow, ...]
    failed_until: dt.datetime | None = None
    failed_by: str = ""


@dataclass(frozen=True, slots=True)
class ParkRow:
    """One execution that stepped aside, and why."""

    execution: str
    reactor: str
    label: str
    status: str
    wait: WaitView


@dataclass(frozen=True, slots=True)
class Live(Generic[Row]):
    """Rows from Redis, or none and a `notice` saying why they could not be read."""

    rows: tuple[Row, ...]
    notice: str = ""
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class StepOutline:
    """One step as it is declared."""

    name: str
    kind: str
    runs: str
    after: tuple[str, ...]
    level: int
    coordination: tuple[CoordinationView, ...]


@dataclass(frozen=True, slots=True)
class ReactorOutline:
    """One reactor as it is declared."""

    name: str
    label: str
    doc: str
    queue: str
    inputs: tuple[tuple[str, str], ...]
    steps: tuple[StepOutline, ...]
    coordination: tuple[CoordinationView, ...]
    returns: str = ""


def short(identifier: str) -> str:
    """The last eight signs of an id: a uuid7 begins with the time, so its beginning is the same for all of one minute."""
    return identifier[-8:] if len(identifier) > 12 else identifier


def seconds_between(begin: dt.datetime | None, end: dt.datetime | None) -> float | None:
    """Seconds from one instant to another, None when one is missing."""
    return None if begin is None or end is None else (end - begin).total_seconds()


def in_words(data: Any) -> str:
    """A small mapping as `a=1, b=2`; what is empty or false is left out, ids and times are cut to what tells them apart."""
    if not isinstance(data, dict):
        return "" if data in (None, "", []) else str(data)
    return ", ".join(
        f"{name}={_value(value)}" for name, value in data.items() if value not in (None, "", [], {}, False)
    )


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    if isinstance(value, dict):
        return f"({in_words(value)})"
    if isinstance(value, list):
        return " ".join(_value(each) for each in value)
    return _TIME.sub(r"\g<time>", _ID.sub(lambda found: short(found.group()), str(value)))
