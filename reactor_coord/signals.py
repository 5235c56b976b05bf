"""Django signals, one for every kind of trace row: what happens to an execution, told to whoever listens.

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
execution_aborted = Signal()
worker_lost = Signal()
operator_acted = Signal()

hold_acquired = Signal()
hold_adopted = Signal()
hold_granted = Signal()
hold_refused = Signal()
hold_released = Signal()
hold_lost = Signal()
deadlock_found = Signal()

step_succeeded = Signal()
step_skipped = Signal()
step_failed = Signal()
step_halted = Signal()
step_retrying = Signal()
step_compensated = Signal()
step_undone = Signal()
step_undo_failed = Signal()
step_progress = Signal()

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
    EventKind.STEP_SUCCEEDED: step_succeeded,
    EventKind.STEP_SKIPPED: step_skipped,
    EventKind.STEP_FAILED: step_failed,
    EventKind.STEP_HALTED: step_halted,
    EventKind.RETRYING: step_retrying,
    EventKind.WORKER_LOST: worker_lost,
    EventKind.COMPENSATED: step_compensated,
    EventKind.UNDONE: step_undone,
    EventKind.UNDO_FAILED: step_undo_failed,
    EventKind.ROLLING_BACK: execution_rolling_back,
    EventKind.COMPLETED: execution_completed,
    EventKind.HALTED: execution_halted,
    EventKind.FAILED: execution_failed,
    EventKind.CANCEL_REQUESTED: execution_cancel_requested,
    EventKind.CANCELLED: execution_cancelled,
    EventKind.ABORTED: execution_aborted,
    EventKind.OPERATOR: operator_acted,
    EventKind.PROGRESS: step_progress,
}
