"""Once per bucket of the calendar: which buckets of a key are marked, on the server's clock.

What a bucket is, in which time zone, is computed by `bucket_at` from the server's instant; a mark outlives its bucket by
a day, for whoever began in it and ends after it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from reactor_coord.coordination.connection import Connection
from reactor_coord.coordination.keys import Names, to_bytes, to_text

PRIMITIVE = "period"
AFTERLIFE = timedelta(days=1)
INDEX_KEEP_SECONDS = 30 * 86400


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket: its name, unique over time changes, and the instant at which it ends."""

    name: str
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Mark:
    """Who ran in a bucket."""

    bucket: str
    by: str
    at: float
    ends_at: float


def bucket_at(instant: datetime, every: str | float, timezone: str) -> Bucket:
    """Return the bucket of `every` in which an aware instant lies.

    Names of days and longer are local dates; hours and minutes carry the offset, so that the hour that comes twice is two
    buckets and the one that is left out is none. Weeks are ISO weeks. Seconds count from the epoch.
    """
    if not isinstance(every, str):
        number = int(instant.timestamp() // every)
        return Bucket(f"{every:g}s:{number}", datetime.fromtimestamp((number + 1) * every, tz=UTC))
    zone = ZoneInfo(timezone)
    local = instant.astimezone(zone)
    if every in {"minute", "hour"}:
        return _short(local, every)
    start = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0, tzinfo=None)
    following, name = _LONG[every](start)
    return Bucket(f"{every}:{name}@{timezone}", following.replace(tzinfo=zone).astimezone(UTC))


def _short(local: datetime, every: str) -> Bucket:
    """The offset is the instant's own: where clocks shift by half an hour, it may differ from that of the hour's start."""
    inside = timedelta(minutes=local.minute if every == "hour" else 0, seconds=local.second)
    length = timedelta(hours=1) if every == "hour" else timedelta(minutes=1)
    clock = f"{local:%Y-%m-%dT%H}:{0 if every == 'hour' else local.minute:02}"
    ends_at = local.astimezone(UTC).replace(microsecond=0) - inside + length
    return Bucket(f"{every}:{clock}{local:%z}", ends_at)


def _day(start: datetime) -> tuple[datetime, str]:
    return start + timedelta(days=1), f"{start:%Y-%m-%d}"


def _week(start: datetime) -> tuple[datetime, str]:
    first = start - timedelta(days=start.weekday())
    year, week, _ = start.isocalendar()
    return first + timedelta(days=7), f"{year}-W{week:02}"


def _month(start: datetime) -> tuple[datetime, str]:
    first = start.replace(day=1)
    return (first + timedelta(days=32)).replace(day=1), f"{first:%Y-%m}"


def _year(start: datetime) -> tuple[datetime, str]:
    first = start.replace(month=1, day=1)
    return first.replace(year=first.year + 1), f"{first:%Y}"


_LONG = {"day": _day, "week": _week, "month": _month, "year": _year}


class Periods:
    """All periods under one prefix of one Redis."""

    def __init__(self, connection: Connection, names: Names) -> None:
        self._connection = connection
        self._names = names

    def look(self, key: str, every: str | float, timezone: str) -> tuple[Bucket, Mark | None]:
        """Return the present bucket, and who marked it if somebody did. One round trip."""
        clock, packed = self._connection.commands(("TIME",), ("HGETALL", self._marks(key)))
        instant = datetime.fromtimestamp(int(clock[0]) + int(clock[1]) / 1_000_000, tz=UTC)
        bucket = bucket_at(instant, every, timezone)
        return bucket, next((mark for mark in _marks(packed) if mark.bucket == bucket.name), None)

    def mark(self, key: str, bucket: Bucket, by: str) -> None:
        """Mark a bucket: who comes later in it finds it. Marks of buckets long over are dropped. One round trip."""
        clock, packed = self._connection.commands(("TIME",), ("HGETALL", self._marks(key)))
        now = int(clock[0])
        name = self._marks(key)
        gone = [mark.bucket for mark in _marks(packed) if mark.ends_at + AFTERLIFE.total_seconds() < now]
        until = int(bucket.ends_at.timestamp() + AFTERLIFE.total_seconds())
        value = json.dumps({"by": by, "at": now, "ends_at": bucket.ends_at.timestamp()})
        lasts = max([until, *(int(mark.ends_at + AFTERLIFE.total_seconds()) for mark in _marks(packed))])
        commands: list[tuple[Any, ...]] = [
            ("HSETNX", name, bucket.name, value),
            ("EXPIREAT", name, lasts),
            ("ZADD", self._names.index(PRIMITIVE), lasts * 1000, to_bytes(key)),
            ("ZREMRANGEBYSCORE", self._names.index(PRIMITIVE), "-inf", now * 1000),
            ("EXPIRE", self._names.index(PRIMITIVE), INDEX_KEEP_SECONDS),
        ]
        if gone:
            commands.append(("HDEL", name, *gone))
        self._connection.commands(*commands)

    def marks(self, key: str) -> list[Mark]:
        """Every mark of a key that is still kept."""
        return _marks(self._connection.commands(("HGETALL", self._marks(key)))[0])

    def survey(self, *, offset: int = 0, limit: int = 500) -> list[tuple[str, list[Mark]]]:
        """The keys with a marked bucket that is not over, those that end first first. Three round trips, O(what is live)."""
        now = int(self._connection.commands(("TIME",))[0][0])
        alive = int((now + AFTERLIFE.total_seconds()) * 1000)
        index = self._names.index(PRIMITIVE)
        found = self._connection.commands(("ZRANGEBYSCORE", index, f"({alive}", "+inf", "LIMIT", offset, limit))[0]
        keys = [to_text(key) for key in found]
        replies = self._connection.commands(*(("HGETALL", self._marks(key)) for key in keys)) if keys else []
        marked = [
            (key, [mark for mark in _marks(packed) if mark.ends_at > now])
            for key, packed in zip(keys, replies, strict=True)
        ]
        return [(key, marks) for key, marks in marked if marks]

    def free(self, key: str, bucket: str, by: str) -> bool:
        """For an operator: take back the mark of a bucket, if it is still that one's. Who comes next finds it free."""
        name = self._marks(key)
        marks = self.marks(key)
        if not any(mark.bucket == bucket and mark.by == by for mark in marks):
            return False
        # A mark is set only where there is none (HSETNX), so between look and delete it cannot have become another's.
        return bool(self._connection.commands(("HDEL", name, to_bytes(bucket)))[0])

    def _marks(self, key: str) -> bytes:
        return f"{self._names.tag(PRIMITIVE, key)}:marks".encode()


def _marks(packed: Any) -> list[Mark]:
    items = packed.items() if hasattr(packed, "items") else zip(packed[::2], packed[1::2], strict=True)
    found = []
    for name, value in items:
        data = json.loads(to_text(value))
        found.append(Mark(to_text(name), data["by"], float(data["at"]), float(data["ends_at"])))
    return found
