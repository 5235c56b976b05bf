"""The fields of an event as JSON: written by value, read by declared type.

Reading never raises. A trace row may have been written by an earlier version (a field is missing, or had another name) or
by a later one (a field is unknown, or has another type): what cannot be read becomes the field's default.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Annotated, Any, get_args, get_origin, get_type_hints

COLUMNS = ("step", "primitive", "key")
"""Fields that are columns of the trace row and keyword arguments of the signal: they are not repeated in `data`."""


@dataclass(frozen=True, slots=True)
class Was:
    """Names under which earlier versions wrote a field."""

    names: tuple[str, ...]

    def __init__(self, *names: str) -> None:
        object.__setattr__(self, "names", names)


@dataclass(frozen=True, slots=True)
class EventField:
    """One field of an event: its declared type without `None`, and the sentence that says what it is and in which unit."""

    name: str
    type: Any
    is_optional: bool
    is_column: bool
    doc: str
    default: Any
    names: tuple[str, ...]
    """The keys under which a row may have it, the present one first."""


_FIELDS: dict[type[Any], tuple[EventField, ...]] = {}


def fields_of(event: type[Any]) -> tuple[EventField, ...]:
    """The fields of an event class in the order of their declaration, the columns first. Computed once for each class."""
    if event not in _FIELDS:
        hints = get_type_hints(event, include_extras=True)
        _FIELDS[event] = tuple(_field(each, hints[each.name]) for each in dataclasses.fields(event))
    return _FIELDS[event]


def _field(field: dataclasses.Field[Any], hint: Any) -> EventField:
    extras = hint.__metadata__ if get_origin(hint) is Annotated else ()
    declared = hint.__origin__ if extras else hint
    plain = [each for each in get_args(declared) if each is not type(None)]
    is_optional = type(None) in get_args(declared)
    kind = plain[0] if is_optional else declared
    doc = next((each for each in extras if isinstance(each, str)), "")
    earlier = next((each.names for each in extras if isinstance(each, Was)), ())
    has_default = field.default is not dataclasses.MISSING
    default = field.default if has_default else None if is_optional else _EMPTY[kind]
    return EventField(field.name, kind, is_optional, field.name in COLUMNS, doc, default, (field.name, *earlier))


_EMPTY: Mapping[Any, Any] = {str: "", int: 0, float: 0.0, bool: False, tuple[str, ...]: ()}


# ---- writing


def written(value: object) -> Any:
    """A field's value as JSON; None for what is left out of the row: no value, an empty one, a number that is not finite."""
    if isinstance(value, Enum):
        value = value.value
    if value is None or value in ("", ()):
        return None
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | list):
        return [written(each) for each in value]
    return str(value)


# ---- reading


def read(field: EventField, data: Mapping[str, Any]) -> Any:
    """A field's value from the JSON of a trace row; its default where the row has none that can be read."""
    for name in field.names:
        if data.get(name) is None:
            continue
        try:
            return _READERS[field.type](data[name])
        except (TypeError, ValueError, OverflowError, OSError):  # OSError: a time that the platform does not know
            continue
    return field.default


def _text(value: object) -> str:
    if not isinstance(value, str | int | float):
        raise TypeError(value)
    return str(value)


def _whole(value: object) -> int:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise TypeError(value)
    return int(value)


def _number(value: object) -> float:
    if not isinstance(value, str | int | float) or isinstance(value, bool) or not math.isfinite(float(value)):
        raise TypeError(value)
    return value if isinstance(value, int) else float(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _instant(value: object) -> datetime:
    """ISO 8601, or Unix seconds; one without a zone is in UTC."""
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, tz=UTC)
    if not isinstance(value, str):
        raise TypeError(value)
    found = datetime.fromisoformat(value)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    return tuple(_text(each) for each in value)


_READERS: Mapping[Any, Callable[[object], Any]] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: _flag,
    datetime: _instant,
    tuple[str, ...]: _texts,
}
