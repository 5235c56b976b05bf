"""Once per bucket of the calendar: which buckets of a key are marked, on the server's clock.

What a bucket is, in which time zone, is computed by `bucket_at` from the server's instant; a mark outlives its bucket by
a day, for whoever began in it and ends after it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from reactor_coord.coordination import damage
from reactor_coord.coordination.asking import Ask, alone
from reactor_coord.coordination.connection import Argument, Connection
from reactor_coord.coordination.keeper import Keeper
from reactor_coord.coordination.keys import Names, to_bytes, to_text
from reactor_coord.coordination.scripts import script

PRIMITIVE = "period"
AFTERLIFE = timedelta(days=1)
PERIOD = script("period")
T = TypeVar("T")

SKEW = timedelta(seconds=2)
"""How far the server's clock may be from ours for a look to be sent with others; beyond, it is sent alone."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket: its name, unique over time changes, and the instant at which it ends."""

    name: str
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Mark:
    """What ran in a bucket. `runs` are its successes, first first: `<execution>/<step>`, or the owner of a call of its own.

    `at` is when the first of them ended.
    """

    bucket: str
    runs: tuple[str, ...]
    at: float
    ends_at: float

    @property
    def by(self) -> str:
        """The execution of the first, or its owner."""
        return self.runs[0].partition("/")[0]


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

    def __init__(self, connection: Connection, names: Names, keeper: Keeper | None = None) -> None:
        self._connection = connection
        self._names = names
        self._keeper = keeper or Keeper()

    def look(self, key: str, every: str | float, timezone: str) -> tuple[Bucket, Mark | None]:
        """Return the present bucket, and who marked it if somebody did. One round trip."""
        clock, packed = self._connection.commands(("TIME",), ("HGETALL", self._marks(key)))
        instant = datetime.fromtimestamp(int(clock[0]) + int(clock[1]) / 1_000_000, tz=UTC)
        bucket = bucket_at(instant, every, timezone)
        return bucket, next((mark for mark in self._read(key, packed) if mark.bucket == bucket.name), None)

    def looking(self, key: str, every: str | float, timezone: str) -> Ask[tuple[Bucket, Mark | None] | None] | None:
        """`look`, to be sent with others. It answers None where the server's clock is too far from ours.

        None: the buckets of these seconds cannot be told beforehand.
        """
        begin = datetime.fromtimestamp(time.time(), tz=UTC) - SKEW
        buckets = _buckets(begin, begin + 2 * SKEW, every, timezone)
        if buckets is None:
            return None
        args: list[Argument] = ["look", _ms(begin)]
        for bucket in buckets:
            args += [_ms(bucket.ends_at), bucket.name]
        return Ask(PRIMITIVE, key, PERIOD, self._keys(key), args, read=partial(_looked, buckets))

    def mark(self, key: str, bucket: Bucket, run: str) -> None:
        """List a success in a bucket: who comes later finds it marked. Marks of buckets long over are dropped. One round trip."""
        self.send(self.marking(key, bucket, run))

    def send(self, ask: Ask[T]) -> T:
        """Send one of these by itself."""
        return alone(self._connection, ask)

    def marking(self, key: str, bucket: Bucket, run: str) -> Ask[tuple[str, ...]]:
        """`mark`, to be sent with others; it wakes nobody."""
        ends_at, afterlife = f"{bucket.ends_at.timestamp():.3f}", int(AFTERLIFE.total_seconds())
        args: list[Argument] = ["mark", to_bytes(key), bucket.name, to_bytes(run), ends_at, afterlife]
        beside = partial(self._note, key, bucket)
        return Ask(PRIMITIVE, key, PERIOD, self._keys(key), args, read=lambda _reply: (), beside=beside)

    def unmark(self, key: str, run: str) -> int:
        """Take a run's successes back; a bucket in which no other succeeded is free. Answers in how many buckets it was.

        Repeated, it does nothing more. One round trip.
        """
        return self.send(self._asking(key, "unmark", to_bytes(run)))

    def unmark_later(self, key: str, run: str, seconds: float) -> None:
        """`unmark` in the background, tried for so many seconds while Redis does not answer."""

        def perform() -> tuple[str, ...]:
            self.unmark(key, run)
            return ()

        self._keeper.later(perform, time.monotonic() + seconds)

    def marks(self, key: str) -> list[Mark]:
        """Every mark of a key that is still kept."""
        return self._read(key, self._connection.commands(("HGETALL", self._marks(key)))[0])

    def _read(self, key: str, packed: Any) -> list[Mark]:
        with damage.told(self._connection, lambda: [self._marks(key)]):
            return _marks(packed)

    def survey(self, *, offset: int = 0, limit: int = 500) -> list[tuple[str, list[Mark]]]:
        """The keys with a marked bucket that is not over, those that end first first. Three round trips, O(what is live)."""
        now = int(self._connection.commands(("TIME",))[0][0])
        alive = int((now + AFTERLIFE.total_seconds()) * 1000)
        index = self._names.index(PRIMITIVE)
        found = self._connection.commands(("ZRANGEBYSCORE", index, f"({alive}", "+inf", "LIMIT", offset, limit))[0]
        keys = [to_text(key) for key in found]
        replies = self._connection.commands(*(("HGETALL", self._marks(key)) for key in keys)) if keys else []
        marked = [
            (key, [mark for mark in self._read(key, packed) if mark.ends_at > now])
            for key, packed in zip(keys, replies, strict=True)
        ]
        return [(key, marks) for key, marks in marked if marks]

    def free(self, key: str, bucket: str, by: str) -> bool:
        """For an operator: free a bucket, if the first success in it is still that one's. Who comes next finds it free."""
        return bool(self.send(self._asking(key, "free", bucket, to_bytes(by))))

    def _asking(self, key: str, mode: str, *more: Argument) -> Ask[int]:
        """A mode that may leave nothing marked."""
        beside = partial(self._forget_if_none, key)
        return Ask(PRIMITIVE, key, PERIOD, self._keys(key), [mode, to_bytes(key), *more], read=int, beside=beside)

    def _marks(self, key: str) -> bytes:
        return f"{self._names.tag(PRIMITIVE, key)}:marks".encode()

    def _keys(self, key: str) -> list[bytes]:
        is_cluster = self._connection.is_cluster
        index = self._names.slot_index(PRIMITIVE, key) if is_cluster else self._names.index(PRIMITIVE)
        return [self._marks(key), index]

    def _note(self, key: str, bucket: Bucket) -> None:
        """In a cluster the script cannot reach the index, so it is written beside it, for listing only."""
        self._connection.commands(
            ("ZADD", self._names.index(PRIMITIVE), _ms(bucket.ends_at + AFTERLIFE), to_bytes(key))
        )

    def _forget_if_none(self, key: str) -> None:
        """The other way, for a script that may have taken the last mark."""
        if not self._connection.commands(("EXISTS", self._marks(key)))[0]:
            self._connection.commands(("ZREM", self._names.index(PRIMITIVE), to_bytes(key)))


def _buckets(begin: datetime, end: datetime, every: str | float, timezone: str) -> list[Bucket] | None:
    """Those between two instants, one after the other. None where one changes its name before its end, as an hour in which the
    clocks shift by half of one."""
    found = [bucket_at(begin, every, timezone)]
    while found[-1].ends_at <= end:
        found.append(bucket_at(found[-1].ends_at, every, timezone))
    last = timedelta(milliseconds=1)
    is_sure = all(bucket_at(bucket.ends_at - last, every, timezone).name == bucket.name for bucket in found)
    return found if is_sure else None


def _looked(buckets: Sequence[Bucket], reply: Sequence[Any]) -> tuple[Bucket, Mark | None] | None:
    passed, number = int(reply[0]), int(reply[1])
    if not number:
        return None
    bucket = buckets[number - 1]
    return bucket, None if passed else _mark(bucket.name, reply[2])


def _ms(instant: datetime) -> int:
    return round(instant.timestamp() * 1000)


def _marks(packed: Any) -> list[Mark]:
    items = packed.items() if hasattr(packed, "items") else zip(packed[::2], packed[1::2], strict=True)
    return [_mark(to_text(name), value) for name, value in items]


def _mark(bucket: str, packed: bytes | str) -> Mark:
    data = json.loads(to_text(packed))
    runs = data["runs"] if "runs" in data else [data["by"]]
    return Mark(bucket, tuple(runs), float(data["at"]), float(data["ends_at"]))
