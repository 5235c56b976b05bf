"""`testing.hold` of each primitive: what meets it contends as with a real holder, and afterwards all is as before."""

from __future__ import annotations

import time
from typing import Any

import pytest

from reactor_coord import (
    Input,
    step,
    testing,
    with_lock,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)
from reactor_coord.coordination import Window, inspect, ordered_lines, periods, rate_limits
from reactor_coord.errors import CoordinationKeyError, DefinitionError
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.recorder import Recorder
from tests.integration.runtime.support import Background, eventually, failure, runs
from tests.live.reactors import Named, Work

pytestmark = pytest.mark.django_db(transaction=True)


@with_lock("{key}", ttl=5)
class Locked(Work):
    key = Input(str)


@with_semaphore("{key}", limit=2, ttl=5)
class Pooled(Work):
    key = Input(str)


@with_rate_limit("{key}", limit=2, period="minute")
class Limited(Work):
    key = Input(str)


@with_rate_limit("{key}", limits={"second": 5, "hour": 6}, algorithm="sliding_window")
class Sliding(Work):
    key = Input(str)


@with_rate_limit(name="courier")
class Couriered(Work):
    key = Input(str)


@with_period("{key}", every="month", timezone="Europe/Berlin")
class Monthly(Work):
    key = Input(str)


@with_ordered_lock("{key}")
class Posted(Work):
    key = Input(str)


class Lock(Named):
    key = Input(str)
    work = step(Locked)


class Pool(Named):
    key = Input(str)
    work = step(Pooled)


class Limit(Named):
    key = Input(str)
    work = step(Limited)


class Slide(Named):
    key = Input(str)
    work = step(Sliding)


class Courier(Named):
    key = Input(str)
    work = step(Couriered)


class Month(Named):
    key = Input(str)
    work = step(Monthly)


class Book(Named):
    key = Input(str)
    work = step(Posted)


REFUSING: list[tuple[Any, str, dict[str, Any], str]] = [
    (Lock, "lock", {}, "LockContended"),
    (Pool, "semaphore", {"limit": 2, "slots": 2}, "SemaphoreContended"),
    (Limit, "rate_limit", {"limit": 2, "period": "minute"}, "RateLimitExceeded"),
    (
        Slide,
        "rate_limit",
        {"limits": {"second": 5, "hour": 6}, "algorithm": "sliding_window"},
        "RateLimitExceeded",
    ),
    (Book, "ordered_lock", {}, "OutOfTurn"),
]


@pytest.mark.parametrize("reactor, primitive, options, error", REFUSING, ids=lambda value: str(value)[:20])
def test_u91_what_meets_a_hold_is_refused_and_afterwards_is_not(
    reactor: Any, primitive: str, options: dict[str, Any], error: str
) -> None:
    with testing.hold("k", primitive, **options) as held:
        assert failure(reactor.run(key="k")).error_type == error
        assert reactor.run(key="another").succeeded
        assert (held.key, held.primitive) == ("k", primitive)
    assert reactor.run(key="k").succeeded


def test_u91_a_marked_bucket_skips_the_step_and_afterwards_does_not(recorder: Recorder) -> None:
    with testing.hold("k", "period", every="month", timezone="Europe/Berlin"):
        outcome = Month.run(key="k")
        assert outcome.succeeded
        assert (runs(outcome)["work"].status, runs(outcome)["work"].reason) == ("skipped", "period")
        assert periods().marks("k") != []
    assert periods().marks("k") == []
    assert Month.run(key="k").succeeded
    assert recorder.count("run work") == 1


def test_u91_a_full_window_of_the_settings_limit_that_the_key_names(reactor_settings: Any) -> None:
    reactor_settings(RATE_LIMITS={"courier": {"limits": {"second": 3, "hour": 4}, "algorithm": "sliding_window"}})
    with testing.hold("courier", "rate_limit"):
        assert failure(Courier.run(key="k")).error_type == "RateLimitExceeded"
    assert Courier.run(key="k").succeeded
    with (
        pytest.raises(CoordinationKeyError, match=r"'curier'.*Did you mean 'courier'"),
        testing.hold("curier", "rate_limit"),
    ):
        pass


@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_window"])
def test_u91_starts_of_others_stay_when_a_full_window_is_given_back(algorithm: str) -> None:
    class Rated(Named):
        key = Input(str)
        work = step(Limited, coordination=[with_rate_limit("{key}", limit=3, period="hour", algorithm=algorithm)])

    assert Rated.run(key="k").succeeded
    with testing.hold("k", "rate_limit", limit=3, period="hour", algorithm=algorithm):
        assert Rated.run(key="k").failed
    assert [Rated.run(key="k").succeeded for _ in range(3)] == [True, True, False]


def test_u91_a_full_window_stands_a_moment_even_if_its_end_is_near() -> None:
    for _ in range(3):
        with testing.hold("k", "rate_limit", limit=2, period=2):
            slot = rate_limits().look("k", "me", [Window(2, 2)], "fixed_window", plans=False)
            assert slot is not None
            assert slot.in_seconds > 0.05  # half a second, less what a busy machine takes to ask
        time.sleep(0.7)  # to begin elsewhere in the window


def test_u91_what_stands_behind_a_turn_is_woken_by_its_end(reactor_dispatches: Dispatches, recorder: Recorder) -> None:
    with testing.hold("k", "ordered_lock") as held:
        handle = Book.enqueue(key="k")
        testing.drain()
        assert handle.status == "parked"
        assert held.position == 1
    testing.drain()
    assert handle.status == "completed"
    assert ordered_lines().view("k").is_drained


def test_u91_a_turn_that_ends_as_failed_makes_the_later_ones_skip(reactor_dispatches: Dispatches) -> None:
    with testing.hold("k", "ordered_lock") as held:
        handle = Book.enqueue(key="k")
        testing.drain()
        held.fail()
        held.release()  # too late to change anything
    testing.drain()
    assert handle.status == "completed"
    assert runs(handle)["work"].reason == "ordered_lock_chain_failed"


@pytest.mark.parametrize("primitive", ["lock", "semaphore"])
def test_u91_a_hold_stands_in_line_for_as_long_as_it_is_told(primitive: str) -> None:
    second_had_it: list[bool] = []

    def second() -> None:
        with testing.hold("k", primitive, wait=10):
            second_had_it.append(True)

    with testing.hold("k", primitive) as held:
        waiting = Background(second)
        eventually(lambda: inspect.look("k", primitive=primitive).waiting == 1)
        assert second_had_it == []
        held.release()
        waiting.result()
    assert second_had_it == [True]


HELD_TWICE: list[tuple[str, dict[str, Any], str]] = [
    ("lock", {}, r"the lock 'k': it is held by testing\.hold of owner testing-"),
    ("semaphore", {"limit": 1}, r"the semaphore 'k': it is held by testing\.hold of owner testing-"),
    ("period", {"every": "hour"}, r"the bucket hour:\S+ of the period 'k': it is marked by testing-"),
    ("ordered_lock", {}, r"the turn in the ordered line 'k': 1 before it, first is testing\.hold"),
]


@pytest.mark.parametrize("primitive, options, message", HELD_TWICE, ids=[each[0] for each in HELD_TWICE])
def test_u91_what_cannot_be_had_is_told_with_its_holder(primitive: str, options: dict[str, Any], message: str) -> None:
    with testing.hold("k", primitive, **options), pytest.raises(AssertionError, match=message):
        with testing.hold("k", primitive, **options):
            pass
    with testing.hold("k", primitive, **options):
        """Neither is left behind."""


def test_u91_too_many_slots_leave_none_taken() -> None:
    with pytest.raises(AssertionError, match="semaphore 'k'"), testing.hold("k", "semaphore", limit=2, slots=3):
        pass
    assert inspect.look("k", primitive="semaphore").holds == ()


def test_u91_an_unknown_primitive_or_option_is_named_with_what_was_meant() -> None:
    with pytest.raises(ValueError, match=r"'rate_limits'.*Did you mean 'rate_limit'"), testing.hold("k", "rate_limits"):
        pass
    with pytest.raises(TypeError, match=r"lock has no option 'tll'.*Did you mean 'ttl'"), testing.hold("k", tll=3):
        pass
    with pytest.raises(DefinitionError, match="fortnight"), testing.hold("k", "period", every="fortnight"):
        pass
