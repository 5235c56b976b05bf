"""What is stored as JSON beside an execution's plain columns. Each form is written and read here, and nowhere else.

| record | stored in |
|---|---|
| `Wait` | `Execution.waiting_on` |
| `Failure` | `Execution.failure` |
| `RollbackFailure` | the entries of `Failure.rollback_failures` |
| `StepRollbackFailure` | `StepRun.rollback_failure` |
| `ParkedHold` | the entries of `Execution.holds_kept`, of `StepRun.coordination` and of `Wait.turns` |
| `StepError` | `StepRun.error` |

`to_json` writes the field names as keys, times as ISO 8601 texts, and under `v` the version of the form. `from_json` reads
what any version wrote: a missing field takes its default, and so does one whose value is of another type; an unknown field is
ignored. It never raises, whatever JSON it is given, so that no damaged row can break a page, a sweep or a rollback.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Any, ClassVar, Self, TypeVar

VERSION = 1
"""Of all forms. Raise it when a field changes its meaning, and have `from_json` translate what was written before."""


@dataclass(frozen=True, slots=True)
class Record:
    """What all records share: how they become JSON and are read back."""

    IS_SPARSE: ClassVar[bool] = False
    """Whether what is not there, a time or a list, is left out of the JSON. Texts, numbers and flags are always written."""

    def to_json(self) -> dict[str, Any]:
        """The record as a JSON object: dicts, lists, texts, numbers and flags."""
        plain = {each.name: _plain(getattr(self, each.name)) for each in _stored(fields(self))}
        if self.IS_SPARSE:
            plain = {name: value for name, value in plain.items() if value not in _EMPTY}
        return {"v": VERSION, **plain}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """Read what a column holds. A bare text is taken as the message, where the record has one; never raises."""
        given = data if isinstance(data, Mapping) else {}
        kind: Any = cls
        readers = _readers(kind)
        if isinstance(data, str) and "message" in readers:
            given = {"message": data}
        return cls(
            **{name: value for name, read in readers.items() if (value := _read(read, given.get(name))) is not None}
        )


R = TypeVar("R", bound=Record)

NOT_STORED: Mapping[str, bool] = {"stored": False}
"""Metadata of a field that is known in one process only, such as an exception itself: it is neither written nor read."""


@dataclass(frozen=True, slots=True)
class StepError(Record):
    """Why a step's last attempt failed. `began`: the attempt's body had begun, so that the step may need its `compensate`."""

    type: str = "Error"
    message: str = ""
    traceback: tuple[str, ...] = ()
    """One line a frame, outermost first: `<file>:<line> in <function>`."""
    began: bool = True
    """True where it was not recorded: a compensation too many does no harm, a missing one leaves an effect behind."""
    retryable: bool = True
    cause: str = ""
    """Type and message of the error that led to this one: of an earlier attempt, say."""

    def __str__(self) -> str:
        return f"{self.type}: {self.message}"


class RollbackReason(StrEnum):
    """Why a cleanup did not happen."""

    UNAVAILABLE = "coordination_unavailable"
    RAISED = "raised"
    RETURNED = "returned_failure"
    MAY_HAVE_RUN = "may_have_run"
    """A process died in its body, and it declares nothing that would clean up."""
    ROW_GONE = "row_gone"
    """The row of the execution that did the work was deleted: what it did is nowhere written any more."""


@dataclass(frozen=True, slots=True)
class RollbackFailure(Record):
    """One cleanup that did not happen. `kind`: `undo` or `compensate`; `reason`: a word of `RollbackReason`."""

    step: str = ""
    kind: str = ""
    reason: str = ""
    message: str = ""
    key: str = ""
    """The key it could not have, where that was the reason."""
    reactor: str = ""
    """The label of the reactor that declares the step."""
    error_type: str = ""
    """Name of the error's class: `CompensationError` where it could not have its key; `Failure` for one given as text."""


@dataclass(frozen=True, slots=True)
class StepRollbackFailure(Record):
    """What stayed undone of one step: its own cleanup, or, with `of_units`, any number of cleanups in the units below it."""

    failures: tuple[RollbackFailure, ...] = ()
    order: float = 0.0
    """When rollback met it, Unix seconds: the order in which `Failure.rollback_failures` lists it."""
    of_units: bool = False

    def to_json(self) -> dict[str, Any]:
        """`{"order", "entries"}` for units, else the one failure's fields and `order`."""
        if self.of_units:
            return {"v": VERSION, "order": self.order, "entries": [each.to_json() for each in self.failures]}
        (failure,) = self.failures
        return {**failure.to_json(), "order": self.order}

    @classmethod
    def from_json(cls, data: object) -> Self:
        """See `Record`. What has no `entries` is one failure of the step itself, known or not."""
        given = data if isinstance(data, Mapping) else {}
        order = _read(_finite, given.get("order")) or 0.0
        if "entries" in given:
            return cls(list_of(RollbackFailure, given["entries"]), order, of_units=True)
        return cls((RollbackFailure.from_json(data),), order)


@dataclass(frozen=True, slots=True)
class Failure(Record):
    """Why an execution failed: the step that failed, what it said and got, and what its rollback left undone."""

    step: str = ""
    """Empty when the reactor itself failed."""
    reactor: str = ""
    """The label of the reactor whose step failed: of a composed child, where it failed there."""
    error_type: str = ""
    message: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """For people: redacted values are masked, and what cannot be encoded is named by its type."""
    rollback_failures: tuple[RollbackFailure, ...] = ()
    """In the order in which rollback met them."""
    cause: str = ""
    """Type and message of the error that led to it: that of an attempt before the one that was refused, say."""
    closed_at: float = 0.0
    """When an operator closed the incomplete rollback by hand, Unix seconds; 0 where it was not closed."""
    closed_by: str = ""
    """The operator, by name."""
    closed_because: str = ""
    """The operator's reason."""

    @property
    def is_incomplete(self) -> bool:
        """Whether some cleanups did not happen, and none of the operators has closed the rollback: those can be tried again."""
        return bool(self.rollback_failures) and not self.closed_at

    @property
    def where(self) -> str:
        """`Reactor.step`, or the reactor alone when it failed itself."""
        return f"{self.reactor}.{self.step}" if self.step else self.reactor


class HoldState(StrEnum):
    """Of a hold that a step run records: whether the step has it still."""

    HELD = "held"
    RELEASED = "released"


@dataclass(frozen=True, slots=True)
class ParkedHold(Record):
    """One key that an execution holds, keeps while it is parked, or held around a step."""

    primitive: str = ""
    key: str = ""
    fence: int | None = None
    """The fencing token; None of what keeps nobody out, such as a period's mark to come."""
    since: float = 0.0
    """When it was taken, Unix seconds of Redis' clock; 0 where that is not known."""
    step: str = ""
    """The step that declares it; empty for the reactor's own."""
    path: str = ""
    """`<execution id>/<step>`: the place in the tree that took it."""
    state: str = ""
    """Of a step run's record: a word of `HoldState`."""

    IS_SPARSE: ClassVar[bool] = True

    @property
    def since_time(self) -> datetime | None:
        """`since` as a time, UTC; None where it is not known."""
        return _read(instant, self.since)  # type: ignore[no-any-return]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait(Record):
    """What a parked or paused execution waits on. Which fields are set depends on the kind of the park.

    The next look at the same place reads it back: `since`, `attempts`, `stuck`, `fence` and `place` tell it how long the
    execution has waited and whether anything has moved.
    """

    path: str = ""
    """`<execution id>/<step>`: the place in the tree that waits; the step is empty for a reactor's own declarations."""
    reactor: str = ""
    step: str = ""
    primitive: str = ""
    """Empty when no key is waited for: a retry's delay, the results of units, an answer."""
    key: str = ""
    """The first key that was busy; `keys` are all that the declaration names."""
    keys: tuple[str, ...] = ()
    holder: str = ""
    """Who has the key, in words."""
    holder_execution: str = ""
    place: int = 0
    """The waiter's place in the wait queue, from 1; 0 where there is none."""
    waiting: int = 0
    """How many stand in the wait queue."""
    since: datetime | None = None
    """When this wait began; later looks keep it."""
    attempts: int = 0
    """Refusals so far, over all parks at this place."""
    stuck: int = 0
    """Looks in a row in which the wait queue had not moved: what the ceiling counts."""
    fence: int = 0
    """The fence of the key at the last look; of an ordered lock the waiter's position."""
    until: datetime | None = None
    """When the execution looks again by itself; far in the future for a question without a timeout."""
    parked_at: datetime | None = None
    """When the execution parked or paused, the last time; by the clock of the rows."""
    timed: bool = False
    """True when only time ends the wait: a message that comes before `until` is a stray one."""
    position: int | None = None
    """The waiter's sequence number in an ordered lock's line."""
    slot: datetime | None = None
    """The start that a rate limit has planned for this waiter."""
    units: tuple[str, ...] = ()
    """Ids of the units whose results are waited for, the first few."""
    turns: tuple[ParkedHold, ...] = ()
    """Ordered turns that are kept while a later primitive of the same place is waited for."""
    correlation_id: str = ""
    """The question that is asked, of a pause."""
    outage_since: datetime | None = None
    """When Redis, or the database, was first found away, of a wait for it to come back."""
    outage_looks: int = 0
    """How often it has been found away since."""

    IS_SPARSE: ClassVar[bool] = True

    @property
    def is_in_line(self) -> bool:
        """Whether it stands in the wait queue of a key, and has to leave it when the execution does not come back."""
        return bool(self.primitive and self.keys)

    @property
    def execution(self) -> str:
        """The id of the execution in the tree that waits; empty where no path was recorded."""
        return self.path.rpartition("/")[0]


def list_of(kind: type[R], data: object) -> tuple[R, ...]:
    """Read a list of records; what is no list is an empty one. An entry of another kind becomes an empty record."""
    return tuple(kind.from_json(each) for each in data) if isinstance(data, list | tuple) else ()


def holds_of(data: object) -> tuple[ParkedHold, ...]:
    """Read a list of holds, without entries that name no key or no primitive: nothing could be done about those."""
    return tuple(each for each in list_of(ParkedHold, data) if each.primitive and each.key)


# ---- to and from plain JSON

_EMPTY: tuple[object, ...] = (None, [])


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_json()
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        return str(value)  # a word of an enumeration is its text
    return dict(value) if isinstance(value, Mapping) else value


def _read(read: Callable[[Any], Any], value: object) -> Any:
    """The value as its field has it; None where it is missing or of another type."""
    try:
        return None if value is None else read(value)
    except (TypeError, ValueError, OverflowError, OSError):
        return None


def _text(value: object) -> str:
    if not isinstance(value, str | int | float):
        raise TypeError(value)
    return str(value)


def _whole(value: object) -> int:
    if not isinstance(value, str | int | float):
        raise TypeError(value)
    return int(value)


def _finite(value: object) -> float:
    number = float(value) if isinstance(value, str | int | float) else math.nan
    if not math.isfinite(number):
        raise ValueError(value)
    return number


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


EARLIEST, LATEST = datetime(1970, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
"""Times beyond these are not read: no time zone can show them."""


def instant(value: object) -> datetime:
    """A time as JSON carries it, an ISO 8601 text (UTC where it names no offset) or Unix seconds. Raises `ValueError`."""
    if isinstance(value, str):
        found = datetime.fromisoformat(value)
        found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    else:
        found = datetime.fromtimestamp(_finite(value), tz=UTC)
    if not EARLIEST <= found <= LATEST:
        raise ValueError(value)
    return found


def _texts(value: object) -> tuple[str, ...]:
    """A list of texts, without entries that are none; a single text is its lines."""
    if isinstance(value, str):
        return tuple(value.splitlines())
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    return tuple(text for each in value if (text := _read(_text, each)) is not None)


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(value)
    return {str(name): each for name, each in value.items()}


def _holds(value: object) -> tuple[ParkedHold, ...]:
    return holds_of(value)


def _rollback_failures(value: object) -> tuple[RollbackFailure, ...]:
    return list_of(RollbackFailure, value)


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "str": _text,
    "int": _whole,
    "int | None": _whole,
    "float": _finite,
    "bool": _flag,
    "datetime | None": instant,
    "tuple[str, ...]": _texts,
    "Mapping[str, Any]": _object,
    "tuple[ParkedHold, ...]": _holds,
    "tuple[RollbackFailure, ...]": _rollback_failures,
}
"""By the annotation of a field: a new field of a record is one line there."""


@cache
def _readers(kind: type[Record]) -> Mapping[str, Callable[[Any], Any]]:
    return {each.name: _READERS[str(each.type)] for each in _stored(fields(kind))}


def _stored(all_fields: Iterable[Field[Any]]) -> Iterable[Field[Any]]:
    return (each for each in all_fields if each.metadata.get("stored", True))
