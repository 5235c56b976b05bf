"""How long until the next look at a busy key: the net under a wake, which must not become a load of its own."""

from __future__ import annotations

import pytest

from reactor_coord.engine.delays import SnoozePolicy

POLICY = SnoozePolicy(base_delay=5, max_delay=60, jitter=5, max_attempts=20)


@pytest.mark.parametrize("stuck, seconds", [(0, 5), (1, 5), (2, 10), (4, 40), (5, 60), (1000, 60)])
def test_a_look_that_finds_nothing_new_waits_longer_for_the_next(stuck: int, seconds: float) -> None:
    assert POLICY.delay(stuck, 0.0, place=1) == seconds


@pytest.mark.parametrize("place, seconds", [(0, 5), (1, 5), (2, 10), (12, 60), (600, 60), (20_000, 2000)])
def test_who_stands_further_back_looks_less_often(place: int, seconds: float) -> None:
    assert POLICY.delay(1, 0.0, place=place) == seconds


def test_the_jitter_comes_on_top() -> None:
    assert POLICY.delay(1000, 1.0, place=600) == 65


def test_b037_the_looks_of_a_line_of_any_length_are_some_tens_a_second() -> None:
    """The sweep sends at most a hundred a second, and other things are due as well."""
    for length in (1000, 20_000, 200_000):
        assert sum(1 / POLICY.delay(1, 0.0, place=place) for place in range(1, length + 1)) < 75
