"""The period at a step and at a reactor: whose bucket it is after a failure, a rollback, a crash, a park; DST in `tests/unit`."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from reactor_coord import Input, compose, step, testing, with_lock, with_period, with_rate_limit
from reactor_coord.coordination import periods, rate_limits
from reactor_coord.runtime import deliver
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import at_once, forked, runs, told, trace
from tests.live.reactors import AtomicPosting, LockedWork, Named, Work

pytestmark = pytest.mark.django_db(transaction=True)

DECADE = 315_360_000
"""A bucket that no test sees the end of."""


@with_period("{key}:report", every=DECADE)
class Reported(Work):
    key = Input(str)


@with_period("{key}:report", every=DECADE)
class ReportedPosting(AtomicPosting):
    key = Input(str)


class Report(Named):
    key = Input(str)
    seconds = Input(float, default=0.0)
    report = step(Reported)
    behind = step(Work, seconds=0, after=report)


class Posting(Named):
    key = Input(str)
    report = step(ReportedPosting, account="a", amount=1)


@with_lock("{key}:once", ttl=5, wait=10)
@with_period("{key}:once", every=DECADE)
class Once(Named):
    key = Input(str)
    seconds = Input(float, default=0.0)
    report = step(Work)


@with_period("{key}:whole", every=DECADE)
@with_rate_limit("{key}:whole", limit=5, period=3600)
class Whole(Named):
    key = Input(str)
    first = step(Work)
    charge = step(LockedWork, after=first, seconds=0)


@with_lock("{key}:under", ttl=30)
@with_period("{key}:under", every=DECADE)
class ReportedUnderLock(Work):
    key = Input(str)


class UnderLock(Named):
    key = Input(str)
    locked = step(ReportedUnderLock)


class Around(Named):
    """The same, declared at the compose step."""

    key = Input(str)
    whole = compose(
        Whole,
        coordination=[
            with_period("{key}:around", every=DECADE),
            with_rate_limit("{key}:around", limit=5, period=3600),
        ],
    )


def charged(key: str) -> int:
    return sum(count for _, count in rate_limits().view(key).windows)


@pytest.mark.parametrize("how", ["raised", "returned", "taken back"])
def test_b071_a_failed_run_does_not_use_up_the_bucket(how: str, recorder: Recorder) -> None:
    reactor: type[Named] = Posting if how == "taken back" else Report
    assert reactor.run(key="k", fail_at="report").failed
    assert periods().marks("k:report") == []
    assert reactor.run(key="k").succeeded
    assert recorder.count("run report") == 2
    assert runs(reactor.run(key="k"))["report"].status == "skipped"
    assert recorder.count("run report") == 2


def test_b071_b075_killed_in_the_body_it_does_not_use_up_the_bucket(recorder: Recorder) -> None:
    with forked(lambda: Report.run(key="k", seconds=60)) as pid:
        recorder.wait_for("run report")
        assert not told(Report.run(key="other"), "refused")
        os.kill(pid, signal.SIGKILL)
    assert Report.run(key="k").succeeded
    assert recorder.count("run report") == 3


def test_b072_what_is_skipped_names_the_run_that_covered_it(recorder: Recorder) -> None:
    first = Report.run(key="k")
    again = Report.run(key="k")
    assert again.succeeded
    assert (runs(again)["report"].status, runs(again)["report"].reason) == ("skipped", "period")
    (refused,) = trace(again, "refused")
    assert refused.data["held_by"] == f"execution {first.execution.pk}"


def test_b074_several_schedulers_and_a_catch_up_make_one_body(reactor_dispatches: Any, recorder: Recorder) -> None:
    outcomes = at_once(*[partial(Once.run, key="k", seconds=0.05) for _ in range(3)])
    assert sorted(outcome.status for outcome in outcomes) == ["completed", "halted", "halted"]
    handles = [Once.enqueue(key="k") for _ in range(10)]
    testing.drain(timeout=5)
    assert {str(handle.status) for handle in handles} == {"halted"}
    assert recorder.count("run report") == 1


def test_d105_the_loser_of_a_race_halts_and_leaves_the_lock_free(recorder: Recorder) -> None:
    outcomes = at_once(*[partial(Once.run, key="k", seconds=0.1) for _ in range(2)])
    assert sorted(outcome.status for outcome in outcomes) == ["completed", "halted"]
    assert recorder.count("run report") == 1
    testing.assert_free("k:once")


@pytest.mark.parametrize(("reactor", "keys"), [(Whole, ["whole"]), (Around, ["whole", "around"])])
def test_d60_d65_gates_passed_once_are_asked_and_charged_once_for_any_number_of_parks(
    reactor: type[Named], keys: list[str], reactor_dispatches: Any, recorder: Recorder
) -> None:
    """Somebody else marks the bucket meanwhile: it has passed, and goes on."""
    with testing.hold("k"):
        handle = reactor.enqueue(key="k")
        testing.drain()
        for key in keys:
            bucket, mark = periods().look(f"k:{key}", DECADE, "UTC")
            assert mark is None
            periods().mark(f"k:{key}", bucket, "somebody")
        for _ in range(3):
            deliver(str(handle.id), "test")
            assert handle.status == "parked"
    testing.drain()
    assert handle.status == "completed"
    assert recorder.sequence() == ["run first", "run charge"]
    for key in keys:
        assert charged(f"k:{key}") == 1
        assert [each.by for each in periods().marks(f"k:{key}")] == ["somebody"]


@pytest.mark.parametrize(("reactor", "key"), [(Whole, "whole"), (Around, "around")])
def test_after_a_park_the_bucket_in_which_it_began_is_marked(
    reactor: type[Named], key: str, reactor_dispatches: Any, recorder: Recorder
) -> None:
    with testing.hold("k"):
        handle = reactor.enqueue(key="k")
        testing.drain()
    testing.drain()
    assert handle.status == "completed"
    (mark,) = periods().marks(f"k:{key}")
    assert mark.by == str(handle.id)
    assert reactor.run(key="k").status in {"halted", "completed"}
    assert recorder.count("run first") == 1


def test_d107_invalid_input_touches_neither_lock_nor_limit_nor_bucket(recorder: Recorder) -> None:
    @with_lock("valid:{key}", ttl=5)
    @with_rate_limit("valid:{key}", limit=1, period=3600)
    @with_period("valid:{key}", every=DECADE)
    class Checked(Work):
        key = Input(str)
        amount = Input(int, gt=0)

    class Checking(Named):
        key = Input(str)
        a = step(Work)
        b = step(Checked, amount=a.map(lambda value: 0), after=a)

    outcome = Checking.run(key="k")
    assert outcome.failed
    assert outcome.failure is not None
    assert (outcome.failure.step, outcome.failure.error_type) == ("b", "InputValidationError")
    assert charged("valid:k") == 0
    assert periods().marks("valid:k") == []
    assert told(outcome, "acquired", "refused") == []


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago", "Asia/Kathmandu", "Europe/Berlin"])
def test_b068_the_declared_zone_decides_whatever_the_projects_is(zone: str, settings: Any, recorder: Recorder) -> None:
    @with_period(f"zoned:{zone}", every="day", timezone=zone)
    class Zoned(Work):
        pass

    class Daily(Named):
        report = step(Zoned)

    settings.TIME_ZONE = "America/New_York"
    assert Daily.run().succeeded
    Daily.run()
    (mark,) = periods().marks(f"zoned:{zone}")
    assert mark.bucket.endswith(f"@{zone}")
    assert recorder.count("run report") == 1


def test_b063_a_clock_that_is_wrong_in_this_process_changes_nothing(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Buckets, windows and leases are the server's clock: 90 s either way, and a step backwards in between."""
    real: Callable[[], float] = time.time
    for skew in (90.0, -90.0, 0.0):
        monkeypatch.setattr(time, "time", lambda skew=skew: real() + skew)
        assert Report.run(key="k").succeeded
        assert Whole.run(key="k").status in {"completed", "halted"}
        assert UnderLock.run(key="k").succeeded
    assert recorder.count("run locked") == 1
    assert recorder.count("run report") == 1
    assert recorder.count("run first") == 1
    assert charged("k:whole") == 1
