"""Rate limits on a real server: what a window counts, and that each who is refused gets a slot of its own."""

from __future__ import annotations

import threading
import time

import pytest

from reactor_coord.coordination import RateLimits, Slot, Window
from reactor_coord.coordination.connection import Connection
from reactor_coord.coordination.keys import Names


@pytest.fixture
def limits(reactor_prefix: str) -> RateLimits:
    return RateLimits(Connection("default"), Names(reactor_prefix), grace=2.0)


def charge(
    limits: RateLimits, who: str, windows: list[Window], algorithm: str = "fixed_window", plans: bool = False
) -> Slot | None:
    return limits.charge("k", who, f"{who}-{time.monotonic_ns()}", windows, algorithm, plans=plans)


@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_window"])
def test_n_threads_and_exactly_the_limit_pass(limits: RateLimits, algorithm: str) -> None:
    passed: list[int] = []

    def one(number: int) -> None:
        if charge(limits, f"w{number}", [Window(5, 3600)], algorithm) is None:
            passed.append(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(passed) == 5


@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_window"])
def test_the_same_token_is_charged_once(limits: RateLimits, algorithm: str) -> None:
    windows = [Window(1, 3600)]
    assert limits.charge("k", "a", "t", windows, algorithm, plans=False) is None
    assert limits.charge("k", "a", "t", windows, algorithm, plans=False) is None
    assert limits.charge("k", "a", "u", windows, algorithm, plans=False) is not None


@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_window"])
def test_each_refused_one_gets_a_slot_of_its_own_in_order_of_arrival(limits: RateLimits, algorithm: str) -> None:
    windows = [Window(2, 100)]
    slots = [charge(limits, f"w{number}", windows, algorithm, plans=True) for number in range(7)]
    assert slots[0] is None
    assert slots[1] is None
    times = [slot.at for slot in slots[2:] if slot is not None]
    assert times == sorted(times)
    assert times[0] == pytest.approx(times[1], abs=0.2)
    assert times[2] - times[0] == pytest.approx(100, abs=0.2)
    again = charge(limits, "w3", windows, algorithm, plans=True)
    assert again is not None
    assert again.at == times[1]


def test_b058_fixed_windows_count_by_bucket_and_the_wait_is_exact(limits: RateLimits) -> None:
    windows = [Window(1, 0.5)]
    assert charge(limits, "a", windows) is None
    slot = charge(limits, "b", windows, plans=True)
    assert slot is not None
    assert (slot.at * 1000) % 500 == pytest.approx(0, abs=1)
    time.sleep(slot.in_seconds)
    assert charge(limits, "b", windows, plans=True) is None
    assert charge(limits, "c", windows, plans=True) is not None


def test_family_12_a_full_tight_window_leaves_the_wide_one_uncharged(limits: RateLimits) -> None:
    windows = [Window(1, 1000), Window(3, 100_000)]
    assert charge(limits, "a", windows) is None
    for number in range(5):
        assert charge(limits, f"b{number}", windows) is not None
    assert (
        dict(limits.view("k").windows)[next(n for n, _ in limits.view("k").windows if n.startswith("100000000:"))] == 1
    )


def test_family_13_a_sliding_window_allows_no_burst_over_a_boundary(limits: RateLimits) -> None:
    starts: list[float] = []
    until = time.monotonic() + 2.2
    number = 0
    while time.monotonic() < until:
        number += 1
        if charge(limits, f"w{number}", [Window(10, 1.0)], "sliding_window") is None:
            starts.append(time.monotonic())
    worst = max(sum(1 for other in starts if start <= other < start + 0.99) for start in starts)
    assert worst <= 10
    assert len(starts) >= 20


@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_window"])
def test_a_slot_given_back_is_forgotten(limits: RateLimits, algorithm: str) -> None:
    windows = [Window(1, 100)]
    charge(limits, "a", windows, algorithm)
    charge(limits, "b", windows, algorithm, plans=True)
    assert [who for who, _ in limits.view("k").planned] == ["b"]
    limits.cancel("k", "b")
    assert limits.view("k").planned == ()


@pytest.mark.parametrize("algorithm", ["fixed_window", "sliding_window"])
def test_who_comes_too_late_asks_anew(limits: RateLimits, reactor_prefix: str, algorithm: str) -> None:
    impatient = RateLimits(Connection("default"), Names(reactor_prefix), grace=0.05)
    windows = [Window(1, 0.3)]
    assert charge(impatient, "a", windows, algorithm) is None
    slot = charge(impatient, "b", windows, algorithm, plans=True)
    assert slot is not None
    time.sleep(slot.in_seconds + 0.4)
    assert charge(impatient, "b", windows, algorithm, plans=True) is None
