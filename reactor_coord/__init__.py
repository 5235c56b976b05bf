"""Step-coordinated workflows for Django, on Celery and Redis: the words an author needs.

Importing this imports no model and opens no connection. Every module below is private unless its docs page says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reactor_coord.declare.context import Context
from reactor_coord.declare.decorators import (
    with_lock,
    with_ordered_lock,
    with_period,
    with_rate_limit,
    with_semaphore,
)
from reactor_coord.declare.inputs import Input
from reactor_coord.declare.nodes import async_reactor, async_step, compose, interrupt, map_each, step
from reactor_coord.declare.reactor import Reactor
from reactor_coord.declare.references import element
from reactor_coord.declare.retry import Retry
from reactor_coord.declare.step import Step
from reactor_coord.errors import (
    CodecError,
    CompensationError,
    ContentionCeilingReached,
    ContentionError,
    CoordinationDamaged,
    CoordinationError,
    CoordinationKeyError,
    CoordinationUnavailable,
    DeadlockDetected,
    DefinitionError,
    ExecutionConflict,
    ExecutionPending,
    GuardError,
    HandOffRefused,
    InputValidationError,
    LeaseLost,
    LockContended,
    LockLost,
    NotRunnable,
    OutOfTurn,
    RateLimitExceeded,
    ReactorCoordError,
    ReactorFailed,
    SemaphoreContended,
    UnknownReactor,
    WorkerLost,
)
from reactor_coord.results import Failure, Halt, Skipped, Success

if TYPE_CHECKING:
    from reactor_coord.runtime.outcome import ExecutionHandle, FailureView, Outcome, RollbackFailure

__version__ = "0.1.0"

__all__ = [
    "CodecError",
    "CompensationError",
    "ContentionCeilingReached",
    "ContentionError",
    "Context",
    "CoordinationDamaged",
    "CoordinationError",
    "CoordinationKeyError",
    "CoordinationUnavailable",
    "DeadlockDetected",
    "DefinitionError",
    "ExecutionConflict",
    "ExecutionHandle",
    "ExecutionPending",
    "Failure",
    "FailureView",
    "GuardError",
    "Halt",
    "HandOffRefused",
    "Input",
    "InputValidationError",
    "LeaseLost",
    "LockContended",
    "LockLost",
    "NotRunnable",
    "OutOfTurn",
    "Outcome",
    "RateLimitExceeded",
    "Reactor",
    "ReactorCoordError",
    "ReactorFailed",
    "Retry",
    "RollbackFailure",
    "SemaphoreContended",
    "Skipped",
    "Step",
    "Success",
    "UnknownReactor",
    "WorkerLost",
    "async_reactor",
    "async_step",
    "compose",
    "element",
    "interrupt",
    "map_each",
    "step",
    "with_lock",
    "with_ordered_lock",
    "with_period",
    "with_rate_limit",
    "with_semaphore",
]

_OUTCOMES = frozenset({"ExecutionHandle", "FailureView", "Outcome", "RollbackFailure"})


def __getattr__(name: str) -> Any:
    # What comes out of a run is the runtime's, which may need Django set up: imported when it is asked for.
    if name in _OUTCOMES:
        from reactor_coord.runtime import outcome

        return getattr(outcome, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
