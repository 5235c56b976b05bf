"""Django signals, one for every kind of event: what happens to an execution, told to whoever listens.

Every trace row has its signal; that a step, a compensation or an undo begins is a signal alone.

Every signal is sent with the same keyword arguments: `kind` (an `EventKind`), `reactor`, `step`, `primitive`, `key`,
`holder` (strings, empty where they do not apply), `execution` and `root` (ids as strings), `data` (a dict) and `at` (an
aware datetime). The sender is the reactor's class, or nothing. A receiver that raises is logged and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.dispatch import Signal

from reactor_coord.engine.states import EventKind

execution_started = Signal()
execution_parked = Signal()
execution_woken = Signal()
execution_rolling_back = Signal()
execution_completed = Signal()
execution_halted = Signal()
execution_failed = Signal()
execution_cancel_requested = Signal()
execution_cancelled = Signal()
execution_reverted = Signal()
execution_aborted = Signal()
execution_needs_definition = Signal()
execution_handed_over = Signal()
worker_lost = Signal()
operator_acted = Signal()

hold_acquired = Signal()
hold_adopted = Signal()
hold_granted = Signal()
hold_refused = Signal()
hold_released = Signal()
hold_lost = Signal()
deadlock_found = Signal()

step_started = Signal()
step_succeeded = Signal()
step_skipped = Signal()
step_failed = Signal()
step_halted = Signal()
step_cancelled = Signal()
step_retrying = Signal()
compensation_started = Signal()
step_compensated = Signal()
undo_started = Signal()
step_undone = Signal()
step_undo_failed = Signal()
step_progress = Signal()
step_ran_reactor = Signal()

SIGNALS: Mapping[EventKind, Signal] = {
    EventKind.STARTED: execution_started,
    EventKind.WOKEN: execution_woken,
    EventKind.ACQUIRED: hold_acquired,
    EventKind.ADOPTED: hold_adopted,
    EventKind.GRANTED: hold_granted,
    EventKind.REFUSED: hold_refused,
    EventKind.RELEASED: hold_released,
    EventKind.LOST: hold_lost,
    EventKind.PARKED: execution_parked,
    EventKind.DEADLOCK: deadlock_found,
    EventKind.STEP_STARTED: step_started,
    EventKind.STEP_SUCCEEDED: step_succeeded,
    EventKind.STEP_SKIPPED: step_skipped,
    EventKind.STEP_FAILED: step_failed,
    EventKind.STEP_HALTED: step_halted,
    EventKind.STEP_CANCELLED: step_cancelled,
    EventKind.RETRYING: step_retrying,
    EventKind.WORKER_LOST: worker_lost,
    EventKind.COMPENSATION_STARTED: compensation_started,
    EventKind.COMPENSATED: step_compensated,
    EventKind.UNDO_STARTED: undo_started,
    EventKind.UNDONE: step_undone,
    EventKind.UNDO_FAILED: step_undo_failed,
    EventKind.ROLLING_BACK: execution_rolling_back,
    EventKind.COMPLETED: execution_completed,
    EventKind.HALTED: execution_halted,
    EventKind.FAILED: execution_failed,
    EventKind.CANCEL_REQUESTED: execution_cancel_requested,
    EventKind.CANCELLED: execution_cancelled,
    EventKind.REVERTED: execution_reverted,
    EventKind.ABORTED: execution_aborted,
    EventKind.NEEDS_DEFINITION: execution_needs_definition,
    EventKind.HANDED_OVER: execution_handed_over,
    EventKind.OPERATOR: operator_acted,
    EventKind.PROGRESS: step_progress,
    EventKind.RAN_REACTOR: step_ran_reactor,
}
