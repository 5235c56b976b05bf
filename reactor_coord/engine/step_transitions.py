"""How a step run's status changes: the one table of (status, move) -> status.

A step run is moved by the process that runs its tree, or by an operator's verb on a tree that no process runs.
`storage.transitions` writes what the table says; a pair that is not in it is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from reactor_coord.engine.states import StepStatus
from reactor_coord.engine.transitions import ImpossibleMove

S = StepStatus


class StepMove(StrEnum):
    """What happens to a step run."""

    WAIT = "wait"
    """The step waits for a key, or for an answer."""
    BEGIN = "begin"
    """Its work has begun and its end is a later write: a composed child, a map's elements."""
    DISPATCH = "dispatch"
    """Its work is out with another worker."""
    ANSWER = "answer"
    """The question it waited with has its answer."""
    SUCCEED = "succeed"
    SKIP = "skip"
    FAIL = "fail"
    RETRY = "retry"
    """An attempt failed; another one follows."""
    COMPENSATE = "compensate"
    UNDO = "undo"
    UNDO_FAIL = "undo_fail"
    """Its undo could not be done, or what ran below it cannot be undone since the code has it no more."""
    CLOSE_FAILED = "close_failed"
    """What ran below a step that was not done is rolled back, after a failure."""
    CLOSE_CANCELLED = "close_cancelled"
    """Its execution ended before the step did."""
    REOPEN = "reopen"
    """What an earlier rollback could not do is to be tried again."""


OPEN = (S.PENDING, S.WAITING, S.RUNNING, S.RETRYING, S.DISPATCHED)
"""The statuses of a step that has no outcome."""


def _to(target: S, *sources: S) -> Mapping[S, S]:
    return MappingProxyType(dict.fromkeys(sources, target))


STEP_TABLE: Mapping[StepMove, Mapping[S, S]] = MappingProxyType(
    {
        StepMove.WAIT: _to(S.WAITING, S.PENDING, S.WAITING, S.RUNNING, S.RETRYING),
        StepMove.BEGIN: _to(S.RUNNING, S.PENDING, S.WAITING, S.RUNNING, S.RETRYING),
        StepMove.DISPATCH: _to(S.DISPATCHED, S.PENDING, S.WAITING, S.RUNNING, S.RETRYING),
        StepMove.ANSWER: _to(S.RUNNING, S.WAITING),
        StepMove.SUCCEED: _to(S.SUCCEEDED, *OPEN),
        StepMove.SKIP: _to(S.SKIPPED, *OPEN),
        StepMove.FAIL: _to(S.FAILED, *OPEN),
        StepMove.RETRY: _to(S.RETRYING, *OPEN),
        StepMove.COMPENSATE: _to(S.COMPENSATED, *OPEN, S.FAILED),
        StepMove.UNDO: _to(S.UNDONE, S.SUCCEEDED),
        StepMove.UNDO_FAIL: _to(S.UNDO_FAILED, *OPEN, S.SUCCEEDED, S.FAILED),
        StepMove.CLOSE_FAILED: _to(S.FAILED, *OPEN, S.FAILED),
        StepMove.CLOSE_CANCELLED: _to(S.CANCELLED, *OPEN, S.FAILED),
        StepMove.REOPEN: {S.UNDO_FAILED: S.SUCCEEDED, S.CANCELLED: S.FAILED},
    }
)
"""Where each move leads from each status in which it is possible."""

OUTCOMES: Mapping[StepStatus, StepMove] = MappingProxyType(
    {
        S.SUCCEEDED: StepMove.SUCCEED,
        S.SKIPPED: StepMove.SKIP,
        S.FAILED: StepMove.FAIL,
        S.RETRYING: StepMove.RETRY,
    }
)
"""The move for each status that the settlement of an attempt may have."""


def step_target_of(status: str, move: StepMove) -> StepStatus:
    """Return the status that the move leads to; raises `ImpossibleMove`."""
    try:
        return STEP_TABLE[move][StepStatus(status)]
    except KeyError:
        raise ImpossibleMove(f"A step that is {status} cannot {move.value}") from None
