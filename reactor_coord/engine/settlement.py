"""What an attempt's outcome means for its step: the one place where it is decided.

A body may return a result, return a plain value, decide from any depth (`Decided`) or raise. Whether its failure is
tried again depends on `Retry` and on whether the body began; contention never comes through here as a failure to count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from reactor_coord.declare.retry import NEVER_RETRIED, Retry
from reactor_coord.engine import undone_work
from reactor_coord.engine.delays import retry_delay
from reactor_coord.engine.states import StepStatus
from reactor_coord.results import Failure, Halt, Result, Skipped, Success


@dataclass(frozen=True, slots=True)
class Settlement:
    """What becomes of the step. `retry_in` is seconds, set exactly when the status is `retrying`."""

    status: StepStatus
    value: Any = None
    reason: str = ""
    error: BaseException | str | None = None
    began: bool = True
    halts: bool = False
    contained: bool = False
    """It failed, and its execution goes on."""
    retryable: bool = True
    retry_in: float | None = None


def as_result(returned: object) -> Result:
    """Return what a body returned, or decided, as a result: a plain value is a success, work still to be done a failure."""
    result = returned if isinstance(returned, (Success, Failure, Skipped, Halt)) else Success(returned)
    undone = undone_work.failure_of(result.value) if isinstance(result, Success) else None
    return undone or result


def settle(result: Result, *, began: bool, retry: Retry | None, attempts: int, chance: float) -> Settlement:
    """Decide from one attempt's result.

    `attempts` counts the attempts so far, this one included, lost workers too; `chance` is uniform in 0..1. A halt before the
    body began (a guard's) leaves a skipped step: an operator's undo of the halted execution has nothing of it to take back.
    """
    if isinstance(result, Success):
        return Settlement(StepStatus.SUCCEEDED, value=result.value, began=began)
    if isinstance(result, Skipped):
        return Settlement(StepStatus.SKIPPED, value=result.value, reason=result.reason or "", began=began)
    if isinstance(result, Halt):
        status = StepStatus.SUCCEEDED if began else StepStatus.SKIPPED
        return Settlement(status, value=result.value, reason=result.reason or "", began=began, halts=True)
    if began and retry is not None and attempts < retry.max_attempts and _is_retryable(result, retry):
        delay = retry_delay(retry, attempts, chance)
        return Settlement(StepStatus.RETRYING, error=result.error, retry_in=delay)
    return Settlement(StepStatus.FAILED, error=result.error, began=began, retryable=result.retryable)


def _is_retryable(failure: Failure, retry: Retry) -> bool:
    return failure.retryable and not isinstance(failure.error, NEVER_RETRIED) and retry.covers(failure.error)


def losses_allowed(retry: Retry | None, floor: int) -> int:
    """How many workers a step may cost before it fails: its attempts, and no fewer than `floor` (a setting)."""
    return max(floor, retry.max_attempts if retry else 1)
