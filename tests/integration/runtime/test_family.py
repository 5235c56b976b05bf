"""Rate limit and period at a step, in process (family_03 to family_07, family_09, family_14)."""

from __future__ import annotations

import datetime as dt
import time
from contextlib import ExitStack
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from reactor_coord import Input, Retry, Step, step, testing, with_lock, with_period, with_rate_limit
from reactor_coord.coordination import periods, rate_limits
from reactor_coord.coordination.period import bucket_at
from reactor_coord.testing.recorder import Recorder, current
from tests.integration.runtime.support import at_once, failure, told, trace
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


@with_rate_limit("calls:{key}", limit=2, period=60)
class Limited(Work):
    key = Input(str)
    retry = Retry(max_attempts=3, base_delay=0.01)


class Limiting(Named):
    key = Input(str)
    a = step(Work)
    call = step(Limited, after=a)


def _away_from_the_minutes_end() -> None:
    """Two runs in one window need more than a moment of it."""
    left = 60 - time.time() % 60
    if left < 5:
        time.sleep(left + 0.1)


def test_family_03_the_third_start_fails_and_says_when_to_come_again(recorder: Recorder) -> None:
    _away_from_the_minutes_end()
    assert Limiting.run(key="k").succeeded
    assert Limiting.run(key="k").succeeded
    outcome = Limiting.run(key="k")
    assert failure(outcome).step == "call"
    assert failure(outcome).error_type == "RateLimitExceeded"
    assert 0 < failure(outcome).error.retry_after <= 60
    assert recorder.sequence()[-2:] == ["run a", "undo a"]
    assert Limiting.run(key="another").succeeded


@with_rate_limit(name="courier")
class _Named(Work):
    retry = Retry(max_attempts=3, base_delay=0.01)


class Naming(Named):
    a = step(Work)
    call = step(_Named, after=a)


def test_family_04_a_named_limit(reactor_settings: Any) -> None:
    reactor_settings(RATE_LIMITS={"courier": {"limits": {"minute": 1}, "algorithm": "sliding_window"}})
    assert Naming.run().succeeded
    assert failure(Naming.run()).error_type == "RateLimitExceeded"


def test_family_04_an_unknown_name_fails_at_once(
    reactor_settings: Any, reactor_dispatches: Any, recorder: Recorder
) -> None:
    reactor_settings(RATE_LIMITS={"couriers": {"limits": {"minute": 1}}})
    handle = Naming.enqueue()
    testing.drain()
    assert handle.status == "failed"
    assert told(handle, "parked", "retrying") == []
    assert recorder.sequence() == ["run a", "undo a"]
    failed = handle.execution.failure
    assert failed is not None
    assert failed["step"] == "call"
    assert "courier" in failed["message"]
    assert "couriers" in failed["message"]


@with_period("bucket:{key}", every="hour")
class Periodic(Work):
    key = Input(str)


class Hourly(Named):
    key = Input(str)
    report = step(Periodic)
    behind = step(Work, after=report)


def _away_from_the_hours_end() -> None:
    left = 3600 - time.time() % 3600
    if left < 10:
        time.sleep(left + 0.1)


def test_family_05_a_second_arrival_skips_the_step_and_goes_on(recorder: Recorder) -> None:
    _away_from_the_hours_end()
    assert Hourly.run(key="k").succeeded
    outcome = Hourly.run(key="k")
    assert outcome.succeeded
    assert recorder.sequence() == ["run report", "run behind", "run behind"]
    (skipped,) = trace(outcome, "step_skipped")
    assert (skipped.step, skipped.data["reason"]) == ("report", "period")
    assert outcome.results["report"] is None
    assert Hourly.run(key="another").succeeded
    assert recorder.count("run report") == 2


def test_family_06_a_failure_leaves_the_bucket_free(recorder: Recorder) -> None:
    _away_from_the_hours_end()
    assert Hourly.run(key="k", fail_at="report").failed
    assert Hourly.run(key="k").succeeded
    assert recorder.count("run report") == 2


@pytest.mark.parametrize("verdict", ["skip", "halt"])
def test_family_06_a_skip_or_a_halt_leaves_it_free_too(verdict: str) -> None:
    @with_period("bucket:{key}", every="hour")
    class Deciding(Step):
        key = Input(str)
        verdict = Input(str)

        def run(self) -> str:
            if self.verdict == "skip":
                self.skip(reason="mine")
            if self.verdict == "halt":
                self.halt(reason="mine")
            return "ran"

    class Decided(Named):
        key = Input(str)
        verdict = Input(str)
        report = step(Deciding)

    _away_from_the_hours_end()
    Decided.run(key="k", verdict=verdict)
    assert Decided.run(key="k", verdict="").results["report"] == "ran"


@with_lock("once:{key}", ttl=5, wait=10)
@with_period("once:{key}", every="hour")
class Once(Work):
    key = Input(str)


class Racing(Named):
    key = Input(str)
    seconds = Input(float, default=0.0)
    report = step(Once)


def test_family_07_of_two_that_race_for_a_bucket_one_runs(recorder: Recorder) -> None:
    _away_from_the_hours_end()
    for number in range(10):
        both = at_once(*[partial(Racing.run, key=f"k{number}", seconds=0.02) for _ in range(2)])
        assert all(outcome.succeeded for outcome in both)
        assert recorder.count("run report") == number + 1


def test_a_success_that_a_later_failure_undoes_is_taken_back(recorder: Recorder) -> None:
    _away_from_the_hours_end()
    outcome = Hourly.run(key="k", fail_at="behind")
    assert recorder.sequence() == ["run report", "run behind", "comp behind", "undo report"]
    assert outcome.failed
    assert periods().marks("bucket:k") == []


@with_rate_limit("slots:{key}", limit=1, period=60)
@with_lock("slots:{key}", ttl=5)
class Both(Work):
    key = Input(str)


class LimitedAndLocked(Named):
    key = Input(str)
    call = step(Both)


def test_family_09_contention_spends_no_slot(recorder: Recorder) -> None:
    _away_from_the_minutes_end()
    with testing.hold("slots:k"):
        for _ in range(5):
            assert failure(LimitedAndLocked.run(key="k")).error_type == "LockContended"
    assert LimitedAndLocked.run(key="k").succeeded
    assert failure(LimitedAndLocked.run(key="k")).error_type == "RateLimitExceeded"
    assert recorder.count("run call") == 1


def test_family_09_a_refused_start_leaves_the_lock_free() -> None:
    _away_from_the_minutes_end()
    assert LimitedAndLocked.run(key="k").succeeded
    assert LimitedAndLocked.run(key="k").failed
    testing.assert_free("slots:k")


@with_rate_limit("spent:{key}", limit=1, period="day")
@with_period("spent:{key}", every="month")
class Spent(Work):
    """Its own start uses the quota up; its bucket is marked by another while its body runs."""

    key = Input(str)

    def run(self) -> dict[str, Any]:
        """Then the body; both stay used up until the test ends."""
        OUTSIDERS.enter_context(testing.hold(f"spent:{self.key}", "period", every="month"))
        return super().run()


class Spending(Named):
    key = Input(str)
    a = step(Work)
    call = step(Spent, after=a)
    z = step(Work, after=call)


OUTSIDERS = ExitStack()
CLEANED = [
    ("call", ["run a", "run call", "comp call", "undo a"]),
    ("z", ["run a", "run call", "run z", "comp z", "undo call", "undo a"]),
]


@pytest.mark.parametrize("fail_at, sequence", CLEANED, ids=["compensate", "undo"])
def test_u92_rollback_05_a_used_up_quota_and_bucket_stop_no_cleanup(
    fail_at: str, sequence: list[str], recorder: Recorder
) -> None:
    with OUTSIDERS:
        outcome = Spending.run(key="k", fail_at=fail_at)
        assert failure(outcome).rollback_failures == ()
        assert recorder.sequence() == sequence
        assert told(outcome, "refused", "undo_failed") == []
        testing.assert_rolled_back(outcome, "call", "a")
        assert [mark.by for mark in periods().marks("spent:k")] != [str(outcome.execution.pk)]
        (window,) = rate_limits().view("spent:k").windows
        assert window[1] == 1, "a cleanup is no start"
    skipped = Spending.run(key="k")  # the bucket is another's no more, the quota is still used up
    assert failure(skipped).error_type == "RateLimitExceeded"


@pytest.mark.parametrize("first", [dt.date(2040, 3, 23), dt.date(2040, 10, 26)], ids=["spring", "autumn"])
def test_family_14_one_run_per_local_day_over_both_changes(first: dt.date) -> None:
    """An arrival every half hour of five days; the server's clock is not asked, its marks are."""
    berlin = ZoneInfo("Europe/Berlin")
    instant = dt.datetime.combine(first, dt.time(), berlin).astimezone(dt.UTC)
    end = dt.datetime.combine(first + dt.timedelta(days=5), dt.time(), berlin).astimezone(dt.UTC)
    assert (end - instant) % dt.timedelta(days=1) != dt.timedelta(0), "the clocks change in between"
    ran: list[dt.datetime] = []
    while instant < end:
        bucket = bucket_at(instant, "day", "Europe/Berlin")
        if bucket.name not in {mark.bucket for mark in periods().marks("k")}:
            periods().mark("k", bucket, "somebody")
            ran.append(instant.astimezone(berlin))
        instant += dt.timedelta(minutes=30)
    assert ran == [dt.datetime.combine(first + dt.timedelta(days=day), dt.time(), berlin) for day in range(5)]


def test_family_14_one_bucket_for_each_local_day_over_both_changes() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    for first in (dt.date(2026, 3, 27), dt.date(2026, 10, 23)):
        days: dict[str, set[dt.date]] = {}
        instant = dt.datetime.combine(first, dt.time(), berlin).astimezone(dt.UTC)
        for _ in range(5 * 24 * 4):
            bucket = bucket_at(instant, "day", "Europe/Berlin")
            days.setdefault(bucket.name, set()).add(instant.astimezone(berlin).date())
            assert bucket.ends_at > instant
            assert bucket.ends_at.astimezone(berlin).time() == dt.time()
            instant += dt.timedelta(minutes=15)
        assert all(len(local) == 1 for local in days.values())
        assert len(days) in {5, 6}


def test_b111_a_retry_is_not_blocked_by_its_own_lock_and_period(recorder: Recorder) -> None:
    @with_lock("own:{key}", ttl=5)
    @with_period("own:{key}", every="hour")
    class Stubborn(Work):
        key = Input(str)
        retry = Retry(max_attempts=4, backoff="fixed", base_delay=0.02)

    class Trying(Named):
        key = Input(str)
        charge = step(Stubborn)

    _away_from_the_hours_end()
    outcome = Trying.run(key="k", fail_at="charge", fails=2)
    assert outcome.succeeded, outcome.failure
    assert recorder.count("run charge") == 3
    assert told(outcome, "refused") == []
    assert [row[0] for row in told(outcome, "acquired", "released")] == ["acquired", "released"] * 3


def test_a_reactor_with_a_period_halts_a_second_time(recorder: Recorder) -> None:
    @with_period("whole:{key}", every="day", timezone="Europe/Berlin")
    class Daily(Named):
        key = Input(str)
        a = step(Work)

    assert Daily.run(key="k").succeeded
    again = Daily.run(key="k")
    assert again.halted
    assert recorder.count("run a") == 1
    assert Daily.run(key="other").succeeded
    current().clear()
