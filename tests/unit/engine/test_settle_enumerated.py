"""What an attempt's outcome means: every result, begun or not, with every kind of retry, on every attempt."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from reactor_coord import Failure, Halt, Retry, Skipped, Success
from reactor_coord.declare.retry import NEVER_RETRIED
from reactor_coord.engine.settlement import Settlement, as_result, losses_allowed, settle
from reactor_coord.engine.states import StepStatus
from reactor_coord.results import Result

RETRIES: list[Retry | None] = [
    None,
    Retry(1),
    Retry(3, backoff="fixed", base_delay=2.0),
    Retry(3, backoff="fixed", base_delay=2.0, on=(ConnectionError,)),
]
ERRORS: list[Any] = [ValueError("no"), ConnectionError("no"), "a text", *(kind("no") for kind in NEVER_RETRIED)]


def is_tried_again(failure: Failure, began: bool, retry: Retry | None, attempts: int) -> bool:
    """The rule in words, from the specification."""
    if retry is None or not began or attempts >= retry.max_attempts or not failure.retryable:
        return False
    if isinstance(failure.error, str):
        return retry.on == (Exception,)
    return isinstance(failure.error, retry.on) and not isinstance(failure.error, NEVER_RETRIED)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_every_failure(error: Any) -> None:
    combinations = itertools.product([False, True], [False, True], RETRIES, range(1, 6))
    for retryable, began, retry, attempts in combinations:
        failure = Failure(error, retryable=retryable)
        found = settle(failure, began=began, retry=retry, attempts=attempts, chance=0.5)
        if is_tried_again(failure, began, retry, attempts):
            assert found == Settlement(StepStatus.RETRYING, error=error, retry_in=2.0)
        else:
            assert found == Settlement(StepStatus.FAILED, error=error, began=began, retryable=retryable)


@pytest.mark.parametrize(
    "result, began, settlement",
    [
        (Success(7), True, Settlement(StepStatus.SUCCEEDED, value=7)),
        (Success(7), False, Settlement(StepStatus.SUCCEEDED, value=7, began=False)),
        (Skipped(7, "no need"), True, Settlement(StepStatus.SKIPPED, value=7, reason="no need")),
        (Skipped(), False, Settlement(StepStatus.SKIPPED, began=False)),
        (Halt(7, "enough"), True, Settlement(StepStatus.SUCCEEDED, value=7, reason="enough", halts=True)),
        (Halt(), False, Settlement(StepStatus.SKIPPED, began=False, halts=True)),
    ],
)
def test_every_result_that_is_no_failure(result: Result, began: bool, settlement: Settlement) -> None:
    for retry, attempts in itertools.product(RETRIES, range(1, 6)):
        assert settle(result, began=began, retry=retry, attempts=attempts, chance=0.5) == settlement


@pytest.mark.parametrize("result", [Success(1), Failure("no"), Skipped(), Halt()])
def test_a_result_is_itself(result: Result) -> None:
    assert as_result(result) is result


@pytest.mark.parametrize("value", [None, 7, "text", [1], {"a": 1}, ValueError("returned, not raised"), Success])
def test_a_plain_value_is_a_success(value: object) -> None:
    assert as_result(value) == Success(value)


@pytest.mark.parametrize("retry, floor, allowed", [(None, 3, 3), (None, 0, 1), (Retry(2), 3, 3), (Retry(9), 3, 9)])
def test_a_step_may_cost_as_many_workers_as_it_has_attempts_and_no_fewer_than_the_floor(
    retry: Retry | None, floor: int, allowed: int
) -> None:
    assert losses_allowed(retry, floor) == allowed
