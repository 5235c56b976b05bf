"""The words for states, written once. Columns, constraints, API, badges and log lines derive from them.

What a word allows is decided beside it (`CLAIMABLE`, `TERMINAL`, ...), so that no caller compares literals.
"""

from __future__ import annotations

from enum import StrEnum


class ExecutionStatus(StrEnum):
    """Where an execution stands."""

    READY = "ready"
    RUNNING = "running"
    PARKED = "parked"
    PAUSED = "paused"
    ROLLING_BACK = "rolling_back"
    COMPLETED = "completed"
    HALTED = "halted"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REVERTED = "reverted"
    ABORTED = "aborted"
    NEEDS_DEFINITION = "needs_definition"


class StepStatus(StrEnum):
    """Where one step of one execution stands."""

    PENDING = "pending"
    WAITING = "waiting"
    RUNNING = "running"
    RETRYING = "retrying"
    DISPATCHED = "dispatched"
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    FAILED = "failed"
    COMPENSATED = "compensated"
    UNDONE = "undone"
    UNDO_FAILED = "undo_failed"
    CANCELLED = "cancelled"


class Mode(StrEnum):
    """Who runs an execution: a Celery worker, or the process that called `run`."""

    WORKER = "worker"
    INLINE = "inline"


class ParkKind(StrEnum):
    """Why an execution stepped aside."""

    CONTENTION = "contention"
    RETRY = "retry"
    RESULT = "result"
    INTERRUPT = "interrupt"
    FAN_OUT = "fan_out"


class EventKind(StrEnum):
    """What a trace row, a signal and a log line tell."""

    STARTED = "started"
    WOKEN = "woken"
    ACQUIRED = "acquired"
    ADOPTED = "adopted"
    GRANTED = "granted"
    REFUSED = "refused"
    RELEASED = "released"
    LOST = "lock_lost"
    PARKED = "parked"
    DEADLOCK = "deadlock"
    STEP_STARTED = "step_started"
    STEP_SUCCEEDED = "step_succeeded"
    STEP_SKIPPED = "step_skipped"
    STEP_FAILED = "step_failed"
    STEP_HALTED = "step_halted"
    STEP_CANCELLED = "step_cancelled"
    RETRYING = "retrying"
    WORKER_LOST = "worker_lost"
    COMPENSATION_STARTED = "compensation_started"
    COMPENSATED = "compensated"
    UNDO_STARTED = "undo_started"
    UNDONE = "undone"
    UNDO_FAILED = "undo_failed"
    ROLLING_BACK = "rolling_back"
    COMPLETED = "completed"
    HALTED = "halted"
    FAILED = "failed"
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLED = "cancelled"
    REVERTED = "reverted"
    ABORTED = "aborted"
    NEEDS_DEFINITION = "needs_definition"
    HANDED_OVER = "handed_over"
    OPERATOR = "operator"
    PROGRESS = "progress"
    RAN_REACTOR = "ran_reactor"


TERMINAL = frozenset(
    {
        ExecutionStatus.COMPLETED,
        ExecutionStatus.HALTED,
        ExecutionStatus.FAILED,
        ExecutionStatus.CANCELLED,
        ExecutionStatus.REVERTED,
        ExecutionStatus.ABORTED,
    }
)
"""Over: no message, wake or sweep moves it again; only an operator's verb does."""

ROLLED_BACK = frozenset({ExecutionStatus.FAILED, ExecutionStatus.CANCELLED, ExecutionStatus.REVERTED})
"""Over, and rolled back: nothing of it stands but what its failure lists, or a cancellation as it stands has left."""

UNSUCCESSFUL = ROLLED_BACK | {ExecutionStatus.ABORTED}
"""Over, without a value for what waits for it."""

WAITING = frozenset({ExecutionStatus.READY, ExecutionStatus.PARKED})
"""May be claimed by whoever comes with a message."""

LEASED = frozenset({ExecutionStatus.RUNNING, ExecutionStatus.ROLLING_BACK})
"""A process works on it, under a lease."""

SETTLED_STEPS = frozenset({StepStatus.SUCCEEDED, StepStatus.SKIPPED})
"""A step that what comes after it need not wait for."""


def is_terminal(status: str) -> bool:
    """Whether an execution in this status is over."""
    return status in TERMINAL
