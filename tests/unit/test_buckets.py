"""Which bucket of the calendar an instant lies in: over both changes of the clocks, in odd zones, over New Year."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from reactor_coord.coordination.period import bucket_at

QUARTER = timedelta(minutes=15)


def instants(start: datetime, count: int, pace: timedelta = QUARTER) -> Iterator[datetime]:
    return (start + number * pace for number in range(count))


def at(zone: str, *when: int, fold: int = 0) -> datetime:
    return datetime(*when, tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("zone", "start"),
    [
        ("Europe/Berlin", (2026, 3, 27)),
        ("Europe/Berlin", (2026, 10, 23)),
        ("America/New_York", (2026, 3, 6)),
        ("America/New_York", (2026, 10, 30)),
        ("America/Havana", (2026, 3, 6)),  # midnight itself is left out, and comes twice
        ("America/Havana", (2026, 10, 30)),
        ("America/Sao_Paulo", (2018, 11, 2)),
        ("America/Sao_Paulo", (2019, 2, 14)),  # from midnight back to 23:00 of the day before
        ("Australia/Lord_Howe", (2026, 4, 3)),  # by half an hour
        ("Australia/Lord_Howe", (2026, 10, 2)),
        ("Pacific/Kiritimati", (2026, 3, 27)),  # +14
        ("Pacific/Pago_Pago", (2026, 3, 27)),  # -11
        ("Asia/Kathmandu", (2026, 3, 27)),  # +5:45
        ("Pacific/Apia", (2011, 12, 27)),  # without a 30th
        ("UTC", (2026, 12, 30)),
    ],
)
def test_b068_family_14_one_bucket_for_each_local_day(zone: str, start: tuple[int, int, int]) -> None:
    days: dict[str, set[date]] = defaultdict(set)
    for instant in instants(at(zone, *start), 5 * 24 * 4):
        bucket = bucket_at(instant, "day", zone)
        local = instant.astimezone(ZoneInfo(zone)).date()
        days[bucket.name].add(local)
        assert instant < bucket.ends_at <= instant + timedelta(hours=25)
        assert bucket_at(bucket.ends_at, "day", zone).name != bucket.name
        assert bucket_at(bucket.ends_at - timedelta(seconds=1), "day", zone).name == bucket.name
        assert bucket.ends_at.astimezone(ZoneInfo(zone)).time() in {time(0), time(1)}
    assert all(len(each) == 1 for each in days.values())
    assert len({day for each in days.values() for day in each}) == len(days)


@pytest.mark.parametrize(
    ("zone", "start"),
    [
        ("Europe/Berlin", (2026, 10, 25)),
        ("Europe/Berlin", (2026, 3, 29)),
        ("America/New_York", (2026, 11, 1)),
        ("Asia/Kathmandu", (2026, 3, 29)),
        ("UTC", (2026, 3, 29)),
    ],
)
@pytest.mark.parametrize(("every", "length"), [("hour", 3600), ("minute", 60)])
def test_b066_each_real_hour_and_minute_is_a_bucket_through_the_fold(
    zone: str, start: tuple[int, int, int], every: str, length: int
) -> None:
    seconds: dict[str, set[datetime]] = defaultdict(set)
    pace = timedelta(minutes=10) if every == "hour" else timedelta(seconds=20)
    count = int(timedelta(hours=6) / pace)
    for instant in instants(at(zone, *start), count, pace):
        bucket = bucket_at(instant, every, zone)
        assert instant < bucket.ends_at <= instant + timedelta(seconds=length)
        seconds[bucket.name].add(bucket.ends_at)
    assert all(len(ends) == 1 for ends in seconds.values())
    assert len(seconds) == 6 * 3600 // length


def test_b066_the_hour_that_comes_twice_is_two_buckets_of_one_day() -> None:
    berlin = "Europe/Berlin"
    first, second = at(berlin, 2026, 10, 25, 2, 30), at(berlin, 2026, 10, 25, 2, 30, fold=1)
    assert second - first == timedelta(hours=1)
    for every in ("hour", "minute"):
        assert bucket_at(first, every, berlin).name != bucket_at(second, every, berlin).name
        assert bucket_at(first, every, berlin).ends_at < bucket_at(second, every, berlin).ends_at
    assert bucket_at(first, "day", berlin) == bucket_at(second, "day", berlin)


def test_b066_where_clocks_go_back_by_half_an_hour_no_bucket_is_over_before_its_time() -> None:
    howe = "Australia/Lord_Howe"
    names: dict[str, list[datetime]] = defaultdict(list)
    for instant in instants(at(howe, 2026, 4, 5), 6 * 12, timedelta(minutes=5)):
        bucket = bucket_at(instant, "hour", howe)
        assert instant < bucket.ends_at <= instant + timedelta(hours=1)
        names[bucket.name].append(instant)
    assert all(max(inside) - min(inside) < timedelta(hours=1) for inside in names.values())


@pytest.mark.parametrize("year", range(2020, 2033))
def test_b069_one_iso_week_over_new_year(year: int) -> None:
    weeks: dict[str, set[tuple[int, int]]] = defaultdict(set)
    for instant in instants(at("Europe/Berlin", year, 12, 22), 24 * 4, timedelta(hours=6)):
        local = instant.astimezone(ZoneInfo("Europe/Berlin"))
        bucket = bucket_at(instant, "week", "Europe/Berlin")
        weeks[bucket.name].add(local.isocalendar()[:2])
        assert instant < bucket.ends_at <= instant + timedelta(days=7)
        assert bucket.ends_at.astimezone(ZoneInfo("Europe/Berlin")).isoweekday() == 1
    assert all(len(each) == 1 for each in weeks.values())
    assert len({week for each in weeks.values() for week in each}) == len(weeks)


@pytest.mark.parametrize(
    ("every", "instant", "name", "ends_at"),
    [
        ("month", (2026, 1, 31, 23, 59), "month:2026-01@UTC", (2026, 2, 1)),
        ("month", (2028, 2, 29), "month:2028-02@UTC", (2028, 3, 1)),
        ("month", (2026, 12, 31), "month:2026-12@UTC", (2027, 1, 1)),
        ("year", (2026, 12, 31, 23, 59), "year:2026@UTC", (2027, 1, 1)),
        ("week", (2027, 1, 1), "week:2026-W53@UTC", (2027, 1, 4)),
    ],
)
def test_months_and_years(every: str, instant: tuple[int, ...], name: str, ends_at: tuple[int, ...]) -> None:
    bucket = bucket_at(at("UTC", *instant), every, "UTC")
    assert (bucket.name, bucket.ends_at) == (name, at("UTC", *ends_at))


def test_seconds_count_from_the_epoch_in_every_zone() -> None:
    instant = datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    buckets = {bucket_at(instant.astimezone(ZoneInfo(zone)), 90, zone) for zone in ("UTC", "Asia/Kathmandu")}
    assert len(buckets) == 1
    (bucket,) = buckets
    assert bucket.ends_at.timestamp() % 90 == 0
    assert instant < bucket.ends_at <= instant + timedelta(seconds=90)
