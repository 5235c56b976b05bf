"""Values without parts and how they are written: one row of the table for each type, by its exact type.

A row's `write` gives what stands beside the tag, `read` takes it back, `show` says it for people. JSON's own scalars that
some reader or database would bend (a number above 2**53, a NaN, a NUL in a string) are rows too.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.utils.safestring import SafeString, mark_safe

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_EXACT_INTEGER = 2**53


class Unwritable(ValueError):
    """A value of a type that can be written, but not this one; the text is the remedy."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """How one type is written under `tag`."""

    tag: str
    write: Callable[[Any], Mapping[str, Any]]
    read: Callable[[Mapping[str, Any]], Any]
    show: Callable[[Mapping[str, Any]], Any] = lambda data: data["v"]


def is_plain(value: Any) -> bool:
    """Whether JSON, every database and every reader of it give this value back as it is."""
    kind = type(value)
    if kind is str:
        return (value.isascii() and "\x00" not in value) or not _UNSTORABLE.search(value)
    if kind is int:
        return bool(-_EXACT_INTEGER <= value <= _EXACT_INTEGER)
    if kind is float:
        # PostgreSQL keeps JSON numbers as decimals: 1e22 would come back as an integer, -0.0 without its sign.
        written = repr(value)
        return "e" not in written and "n" not in written and written != "-0.0"
    return value is None or kind is bool


def _write_text(value: str) -> dict[str, Any]:
    return {"v": base64.b64encode(value.encode("utf-8", "surrogatepass")).decode("ascii")}


def _read_text(data: Mapping[str, Any]) -> str:
    return base64.b64decode(data["v"]).decode("utf-8", "surrogatepass")


def _show_text(data: Mapping[str, Any]) -> str:
    return _UNSTORABLE.sub("\ufffd", _read_text(data))


def _write_int(value: int) -> dict[str, Any]:
    # Python refuses to convert more than 4,300 decimal digits; hexadecimal has no such bound.
    return {"v": str(value) if value.bit_length() < 10_000 else hex(value)}


def _read_int(data: Mapping[str, Any]) -> int:
    return int(data["v"], 0)


def _write_bytes(value: bytes | bytearray) -> dict[str, Any]:
    return {"v": base64.b64encode(value).decode("ascii")}


def _show_bytes(data: Mapping[str, Any]) -> str:
    return f"<{len(base64.b64decode(data['v'])):,} bytes>"


def _write_zone(zone: tzinfo | None) -> dict[str, Any]:
    if zone is None:
        return {}
    if isinstance(zone, ZoneInfo) and zone.key:
        return {"tz": ["zone", zone.key]}
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        return {"tz": ["offset", offset.total_seconds(), *name]}
    raise Unwritable(f"its time zone is a {type(zone).__name__}; use a zoneinfo.ZoneInfo or datetime.timezone")


def _read_zone(data: Mapping[str, Any]) -> tzinfo | None:
    if "tz" not in data:
        return None
    kind, value, *name = data["tz"]
    return ZoneInfo(value) if kind == "zone" else timezone(timedelta(seconds=value), *name)


def _write_clock(value: datetime | time) -> dict[str, Any]:
    written = {"v": value.replace(tzinfo=None, fold=0).isoformat(), **_write_zone(value.tzinfo)}
    return written | {"fold": 1} if value.fold else written


def _read_datetime(data: Mapping[str, Any]) -> datetime:
    return datetime.fromisoformat(data["v"]).replace(tzinfo=_read_zone(data), fold=data.get("fold", 0))


def _read_time(data: Mapping[str, Any]) -> time:
    return time.fromisoformat(data["v"]).replace(tzinfo=_read_zone(data), fold=data.get("fold", 0))


def _read_delta(data: Mapping[str, Any]) -> timedelta:
    days, seconds, microseconds = data["v"]
    return timedelta(days, seconds, microseconds)


SCALARS: Mapping[type, Scalar] = {
    str: Scalar("text", _write_text, _read_text, _show_text),
    int: Scalar("int", _write_int, _read_int),
    float: Scalar("float", lambda value: {"v": repr(value)}, lambda data: float(data["v"])),
    Decimal: Scalar("decimal", lambda value: {"v": str(value)}, lambda data: Decimal(data["v"])),
    UUID: Scalar("uuid", lambda value: {"v": str(value)}, lambda data: UUID(data["v"])),
    bytes: Scalar("bytes", _write_bytes, lambda data: base64.b64decode(data["v"]), _show_bytes),
    bytearray: Scalar("bytearray", _write_bytes, lambda data: bytearray(base64.b64decode(data["v"])), _show_bytes),
    datetime: Scalar("datetime", _write_clock, _read_datetime, lambda data: _read_datetime(data).isoformat()),
    date: Scalar("date", lambda value: {"v": value.isoformat()}, lambda data: date.fromisoformat(data["v"])),
    time: Scalar("time", _write_clock, _read_time, lambda data: _read_time(data).isoformat()),
    timedelta: Scalar(
        "timedelta",
        lambda value: {"v": [value.days, value.seconds, value.microseconds]},
        _read_delta,
        lambda data: str(_read_delta(data)),
    ),
    SafeString: Scalar("safe", _write_text, lambda data: mark_safe(_read_text(data)), _show_text),
}
BY_TAG: Mapping[str, Scalar] = {scalar.tag: scalar for scalar in SCALARS.values()}
