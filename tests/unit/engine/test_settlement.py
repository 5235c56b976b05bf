"""What an attempt's outcome means for its step, and how long it is until the next."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reactor_coord import DefinitionError, Failure, Retry, Success
from reactor_coord.declare.options import MAX_SECONDS
from reactor_coord.engine.delays import retry_delay
from reactor_coord.engine.guard import refusal_of_guard, refusal_of_where
from reactor_coord.engine.settlement import as_result, settle
from reactor_coord.engine.states import StepStatus
from reactor_coord.errors import CodecError


def status_of(failure: Failure, retry: Retry) -> StepStatus:
    return settle(failure, began=True, retry=retry, attempts=1, chance=0.5).status


@pytest.mark.parametrize(
    ("error", "on", "status"),
    [
        ("no", None, StepStatus.RETRYING),
        ("no", (Exception,), StepStatus.RETRYING),
        ("no", (ConnectionError,), StepStatus.FAILED),
        ("no", (ConnectionError, Exception), StepStatus.RETRYING),
        (ConnectionError("no"), (ConnectionError,), StepStatus.RETRYING),
        (ValueError("no"), (ConnectionError,), StepStatus.FAILED),
        (ValueError("no"), None, StepStatus.RETRYING),
    ],
)
def test_u106_a_text_is_retried_only_where_on_was_not_narrowed(error: Any, on: Any, status: StepStatus) -> None:
    retry = Retry(3) if on is None else Retry(3, on=on)
    assert status_of(Failure(error), retry) == status
    assert status_of(Failure(error, retryable=False), retry) == StepStatus.FAILED


delays = st.floats(0, 1000)


@given(
    backoff=st.sampled_from(["fixed", "linear", "exponential"]),
    base_delay=delays,
    max_delay=delays,
    jitter=st.floats(0, 1),
    failures=st.integers(1, 10_000),
    chance=st.floats(0, 1),
)
def test_u106_max_delay_is_the_longest_wait_there_is(
    backoff: str, base_delay: float, max_delay: float, jitter: float, failures: int, chance: float
) -> None:
    base_delay = min(base_delay, max_delay)
    retry = Retry(20_000, backoff=backoff, base_delay=base_delay, max_delay=max_delay, jitter=jitter)
    assert 0 <= retry_delay(retry, failures, chance) <= max_delay


def test_waits_at_the_cap_are_still_left_to_chance() -> None:
    retry = Retry(100, base_delay=1, max_delay=60, jitter=0.5)
    assert [retry_delay(retry, 50, chance) for chance in (0.0, 0.25, 1.0)] == [30.0, 45.0, 60.0]


def test_a_wait_that_doubles_for_ever_still_has_a_date_at_its_end() -> None:
    assert retry_delay(Retry(10_000), 9_999, 0.5) == MAX_SECONDS


async def _charge() -> None: ...


def _charges() -> Iterator[int]:
    yield 1


async def _charges_later() -> AsyncIterator[int]:
    yield 1


def _future() -> asyncio.Future[int]:
    loop = asyncio.new_event_loop()
    loop.close()
    return asyncio.Future(loop=loop)


LATER = [_charge, _charges, _charges_later, _future]


@pytest.mark.parametrize("make", LATER)
def test_u58_work_that_has_not_been_done_is_no_success(make: Any) -> None:
    for returned in (make(), Success(make())):
        result = as_result(returned)
        assert isinstance(result, Failure)
        assert isinstance(result.error, DefinitionError | CodecError)
        assert "whose work has not been done" in str(result.error)
        assert status_of(result, Retry(5)) == StepStatus.FAILED


@pytest.mark.parametrize("make", LATER)
def test_a_where_that_answers_with_work_to_be_done_is_not_taken_for_true(make: Any) -> None:
    refusal = refusal_of_where(make(), "Charge.where")
    assert isinstance(refusal, Failure)
    assert isinstance(refusal.error, DefinitionError | CodecError)


@pytest.mark.parametrize("make", LATER)
def test_nor_is_a_guard_that_does(make: Any) -> None:
    refusal = refusal_of_guard(make(), "Charge.guard")
    assert isinstance(refusal, Failure)


def test_a_list_or_an_iterator_of_ones_own_is_a_value() -> None:
    values = iter([1])
    assert as_result(values) == Success(values)
