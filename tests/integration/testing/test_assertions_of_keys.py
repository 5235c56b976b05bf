"""Assertions about keys: slots, windows, buckets, turns. What holds passes, what does not is told in plain words."""

from __future__ import annotations

import pytest

from reactor_coord import testing
from reactor_coord.testing.dispatches import Dispatches
from tests.integration.testing.shapes import Family, Order

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("reactor_dispatches")]


def test_u91_slots_that_are_used() -> None:
    testing.assert_slots_used("k:pool", 0)
    with testing.hold("k:pool", "semaphore", limit=3, slots=2):
        testing.assert_slots_used("k:pool", 2, limit=3)
        with pytest.raises(
            AssertionError, match=r"1 slots of 'k:pool' to be used; 2 are, of 3: held by testing-\w+ \(test"
        ):
            testing.assert_slots_used("k:pool", 1)
        with pytest.raises(AssertionError, match=r"the limit of 'k:pool' to be 5; it is 3"):
            testing.assert_slots_used("k:pool", 2, limit=5)
        with pytest.raises(
            AssertionError, match=r"the semaphore 'k:pool' to be free; it is held by testing-\w+ .*; held by"
        ):
            testing.assert_free("k:pool", "semaphore")
    testing.assert_free("k:pool", "semaphore")
    with pytest.raises(AssertionError, match=r"2 slots of 'k:pool' to be used; 0 are, of .*: none"):
        testing.assert_slots_used("k:pool", 2)


def test_u91_starts_in_a_window() -> None:
    testing.assert_starts_in_window("k:rate", 0)
    testing.assert_completed(Family.run())
    testing.assert_starts_in_window("k:rate", 1, "hour")
    testing.assert_starts_in_window("k:rate", 1, 86400)
    with pytest.raises(
        AssertionError, match=r"2 starts in the window of 'k:rate'; there are 1 of 5 per 3600 s, and 0 are pl"
    ):
        testing.assert_starts_in_window("k:rate", 2, "hour")
    with pytest.raises(AssertionError, match=r"which window of 'k:rate'\? It has: 5 per 3600 s, 50 per 86400 s"):
        testing.assert_starts_in_window("k:rate", 1)
    with pytest.raises(AssertionError, match=r"3 starts in the window of 'other'; no start of it is known"):
        testing.assert_starts_in_window("other", 3)


@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_window"])
def test_u91_planned_starts_are_not_made_yet(reactor_dispatches: Dispatches, algorithm: str) -> None:
    from reactor_coord import Reactor, step, with_rate_limit

    class Sent(Reactor):
        @step
        @with_rate_limit("letters", limit=2, period="day", algorithm=algorithm)
        def send() -> None:
            """Nothing."""

    handles = [Sent.enqueue() for _ in range(4)]
    testing.drain()
    testing.assert_starts_in_window("letters", 2)
    testing.assert_parked(handles[2], "send", key="letters", primitive="rate_limit")
    with pytest.raises(AssertionError, match=r"4 starts .* there are 2 of 2 per 86400 s, and 2 are planned"):
        testing.assert_starts_in_window("letters", 4)


def test_u91_a_marked_bucket_and_by_whom() -> None:
    testing.assert_period_free("k:once")
    with pytest.raises(AssertionError, match=r"a bucket of 'k:once' to be marked; none is"):
        testing.assert_period_marked("k:once")
    first, other = Family.run(), Order.run()
    testing.assert_period_marked("k:once", by=first)
    with pytest.raises(AssertionError, match=r"'k:once' to be marked by \S+; marked are: month:\S+ by execution \S+"):
        testing.assert_period_marked("k:once", by=other)
    with pytest.raises(AssertionError, match=r"no bucket of 'k:once' to be marked; marked are: month:"):
        testing.assert_period_free("k:once")


def test_u91_next_last_and_drained_of_an_ordered_line(reactor_dispatches: Dispatches) -> None:
    testing.assert_ordered_drained("k:line")
    with testing.hold("k:line", "ordered_lock") as held:
        first, second = Family.enqueue(), Family.enqueue()
        testing.drain()
        testing.assert_ordered_next("k:line", 1)
        testing.assert_ordered_last("k:line", 0)
        testing.assert_parked(first, "work", key="k:line", primitive="ordered_lock")
        with pytest.raises(
            AssertionError, match=r"execution \S+ to be next in 'k:line'; next is position 1 \(running, test"
        ):
            testing.assert_ordered_next("k:line", first)
        with pytest.raises(
            AssertionError, match=r"the line 'k:line' to be drained; the last that passed is 0; in line: "
        ):
            testing.assert_ordered_drained("k:line")
        held.release()
        testing.assert_ordered_next("k:line", first)
        testing.assert_ordered_last("k:line", 1)
        with pytest.raises(
            AssertionError, match=r"position 2 to be the last that passed in 'k:line'; the last that passed is 1"
        ):
            testing.assert_ordered_last("k:line", 2)
        with pytest.raises(
            AssertionError, match=r"next in 'k:line'; next is position 2 \(waiting, Family\.work of execution"
        ):
            testing.assert_ordered_next("k:line", second)
    testing.drain()
    testing.assert_ordered_drained("k:line")
    for check in (testing.assert_ordered_next, testing.assert_ordered_last):
        with pytest.raises(AssertionError, match="the line is drained"):
            check("k:line", 3)
