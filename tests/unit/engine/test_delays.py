"""Every pause is a pure function: repeatable, never negative, bounded, and no shorter after more vain tries.

A look at a busy key is the net under a wake: it must not become a load of its own.
"""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactor_coord import Retry
from reactor_coord.conf import Settings
from reactor_coord.declare.options import MAX_SECONDS
from reactor_coord.engine import delays
from reactor_coord.engine.delays import Backoff, SnoozePolicy, Standing, retry_delay

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


# ---- all of them

seconds = st.floats(0.001, 1e6)
tries = st.integers(-3, 10**9)
chances = st.floats(0, 1)


@given(first=seconds, longest=seconds, factor=st.floats(1, 10), many=tries, more=st.integers(0, 10**6))
def test_a_backoff_grows_and_is_bounded(first: float, longest: float, factor: float, many: int, more: int) -> None:
    backoff = Backoff(first, longest, factor)
    assert min(first, longest) <= backoff.after(many) <= backoff.after(many + more) <= longest


def test_a_backoff_begins_with_its_first_pause_whatever_number_is_named() -> None:
    backoff = Backoff(0.5, 4.0)
    assert [backoff.after(each) for each in (-1, 0, 1, 2, 3, 4, 5, 10**9)] == [0.5, 0.5, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]


def test_a_backoff_without_growth_or_without_a_pause_stays_as_it_is() -> None:
    assert Backoff(3.0, 10.0, factor=1.0).after(50) == 3.0
    assert Backoff(0.0, 10.0).after(50) == 0.0
    assert Backoff(3.0, 2.0, factor=1.0).after(1) == 2.0


@given(
    backoff=st.sampled_from(["fixed", "linear", "exponential"]),
    base=seconds,
    over=st.none() | seconds,
    failures=st.integers(1, 10**6),
    chance=chances,
)
def test_a_retry_waits_longer_after_each_failure_and_within_its_bound(
    backoff: str, base: float, over: float | None, failures: int, chance: float
) -> None:
    longest = None if over is None else min(base + over, MAX_SECONDS)
    retry = Retry(10**7, backoff=backoff, base_delay=base, max_delay=longest)
    sooner, later = (retry_delay(retry, each, chance) for each in (failures, failures + 1))
    assert 0 <= sooner <= later <= (longest if longest is not None else MAX_SECONDS)


@given(jitter=st.floats(0, 1), failures=st.integers(1, 50), chance=chances)
def test_the_jitter_of_a_retry_is_a_share_of_its_delay_to_either_side(
    jitter: float, failures: int, chance: float
) -> None:
    plain = retry_delay(Retry(99), failures, chance)
    spread = retry_delay(Retry(99, jitter=jitter), failures, chance)
    assert plain * (1 - jitter) <= spread * (1 + 1e-9) and spread <= plain * (1 + jitter) * (1 + 1e-9)


@given(stuck=st.integers(0, 10**6), place=st.integers(0, 10**6), chance=chances)
def test_a_look_is_no_sooner_for_one_who_is_stuck_longer_or_stands_further_back(
    stuck: int, place: int, chance: float
) -> None:
    here = POLICY.delay(stuck, chance, place=place)
    assert POLICY.base_delay <= here <= POLICY.delay(stuck + 1, chance, place=place)
    assert here <= POLICY.delay(stuck, chance, place=place + 1)
    assert here <= max(POLICY.max_delay, delays.SECONDS_PER_PLACE * place) + POLICY.jitter


def test_a_seed_repeats_every_delay_that_is_left_to_chance() -> None:
    def some(seed: int) -> list[float]:
        chance = random.Random(seed).random
        retry = Retry(9, jitter=0.5)
        return [*(retry_delay(retry, each, chance()) for each in range(1, 9)), POLICY.delay(3, chance(), place=2)]

    assert some(7) == some(7) != some(8)


@pytest.mark.parametrize("stuck, is_exhausted", [(19, False), (20, False), (21, True)])
def test_the_ceiling_is_one_look_past_the_attempts_allowed(stuck: int, is_exhausted: bool) -> None:
    assert POLICY.is_exhausted(stuck) is is_exhausted


def test_without_a_ceiling_no_number_of_looks_is_too_many() -> None:
    assert not SnoozePolicy(5, 60, 5, None).is_exhausted(10**9)


@pytest.mark.parametrize(
    "fence, place, early, stuck",
    [
        (7, 3, False, 5),  # nothing moved
        (7, 3, True, 4),  # nothing moved, and a message for another brought the look about
        (8, 3, False, 1),  # another holder
        (8, 3, True, 1),
        (7, 2, False, 1),  # nearer by one
        (7, 4, False, 5),  # further back: others with a higher priority came
        (7, 0, False, 5),  # out of the line: no place to compare
    ],
)
def test_a_line_has_moved_when_another_has_the_key_or_the_waiter_stands_nearer(
    fence: int, place: int, early: bool, stuck: int
) -> None:
    assert Standing(7, 3, 4).next(fence, place, early=early) == Standing(fence, place, stuck)


@given(delay=st.floats(0, 1e6), ends_in=st.none() | st.floats(-1e6, 1e6), place=st.integers(0, 10**6))
def test_a_look_is_never_past_the_end_of_a_hold_that_is_not_prolonged_but_a_moment_a_place(
    delay: float, ends_in: float | None, place: int
) -> None:
    found = delays.look_in(delay, ends_in, place)
    assert 0 <= found <= delay
    if ends_in is None:
        assert found == delay
    else:
        moment = delays.AFTER_THE_END + delays.SECONDS_PER_PLACE * max(place - 1, 0)
        assert found == pytest.approx(min(delay, max(ends_in, 0) + moment))


# ---- one by one


def test_a_message_without_effect_is_sent_again_after_ten_seconds_and_at_most_every_five_minutes() -> None:
    assert [delays.RESENDS.after(each) for each in (1, 2, 3, 5, 6, 7, 1000)] == [10, 20, 40, 160, 300, 300, 300]


def test_all_reconnects_together_end_before_a_lease_of_the_default_length_does() -> None:
    assert delays.RECONNECTS == (0.0, 0.5, 1.0, 2.0, 4.0)
    assert sum(delays.RECONNECTS) < Settings().LEASE_TTL / 3


def test_a_renewal_that_redis_did_not_answer_is_tried_again_soon_and_then_every_second() -> None:
    pauses = [delays.RENEWALS.after(each) for each in range(1, 8)]
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@given(ttl=st.floats(0.1, 1e6))
def test_several_renewals_of_a_lease_fit_into_what_is_left_after_the_first_failed(ttl: float) -> None:
    assert 0 < delays.lease_retry(ttl) <= 1.0
    assert 6 * delays.lease_retry(ttl) <= ttl - ttl / 3 + 1e-9


@given(waited=st.floats(0, 1e6), more=st.floats(0, 1e6))
def test_a_process_looks_less_often_at_units_the_longer_it_has_waited(waited: float, more: float) -> None:
    assert 0.02 <= delays.result_poll(waited) <= delays.result_poll(waited + more) <= 0.5


@given(patience=st.floats(0, 1e6))
def test_a_rollback_asks_redis_several_times_within_its_patience(patience: float) -> None:
    assert 0.01 <= delays.redis_poll(patience) <= 0.2
    assert patience < 0.1 or delays.redis_poll(patience) <= patience / 10


@given(interval=st.floats(0.001, 60), looks=st.integers(1, 1000))
def test_a_handle_is_looked_at_no_more_often_than_asked_and_at_least_twice_a_second_or_as_asked(
    interval: float, looks: int
) -> None:
    pause = delays.handle_polls(interval).after(looks)
    assert interval <= pause <= max(interval, 0.5)


def test_a_handle_that_is_to_be_looked_at_every_two_seconds_is_not_looked_at_more_often_later() -> None:
    """A member of the kind: the second look came after half a second."""
    assert [delays.handle_polls(2.0).after(each) for each in (1, 2, 3)] == [2.0, 2.0, 2.0]


def test_a_parked_execution_looks_at_its_units_as_at_a_key_but_without_chance() -> None:
    looks = delays.result_looks(POLICY.base_delay, POLICY.max_delay)
    for stuck in (1, 2, 3, 4, 5, 500):
        assert looks.after(stuck) == POLICY.delay(stuck, 0.0)


@pytest.mark.parametrize("backoff", [delays.UNWINDS, delays.CLAIMS])
def test_a_poll_of_the_database_slows_down(backoff: Backoff) -> None:
    pauses = [backoff.after(each) for each in range(1, 30)]
    assert pauses[0] == backoff.first and pauses[-1] == backoff.longest
    assert all(sooner <= later for sooner, later in itertools.pairwise(pauses))


def test_the_sweep_looks_at_a_row_two_intervals_after_its_message_was_sent() -> None:
    assert delays.message_grace(5) == 10.0
