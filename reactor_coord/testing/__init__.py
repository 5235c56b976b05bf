"""What you test your reactors with.

    from reactor_coord import testing

    def test_a_charge_waits_for_its_account(db):
        with testing.hold("acct:1"):
            outcome = Payment.run(account_id=1, amount="9.50")
        testing.assert_contended(outcome, "charge", key="acct:1")

The names below are imported when they are first used: pytest loads this package in every project that has it installed,
before Django is set up. The pytest fixtures are in `plugin`; live workers, servers, the recorder, fault points and the
proxy in modules of their own.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reactor_coord.testing.assertions.endings import (
        assert_cancelled,
        assert_completed,
        assert_deadlock,
        assert_failed,
        assert_halted,
        assert_invalid,
        assert_paused,
        assert_reverted,
        assert_rollback_failed,
        assert_rolled_back,
    )
    from reactor_coord.testing.assertions.keys import (
        assert_free,
        assert_locked,
        assert_ordered_drained,
        assert_ordered_last,
        assert_ordered_next,
        assert_period_free,
        assert_period_marked,
        assert_slots_used,
        assert_starts_in_window,
    )
    from reactor_coord.testing.assertions.steps import (
        assert_compensated,
        assert_contended,
        assert_not_ran,
        assert_parked,
        assert_ran,
        assert_retried,
        assert_skipped,
        assert_undone,
    )
    from reactor_coord.testing.draining import drain
    from reactor_coord.testing.factories import ExecutionFactory, StepRunFactory, TraceEventFactory
    from reactor_coord.testing.holding import Held, hold
    from reactor_coord.testing.mocking import MockedStep, ToldToFail, failing_at, mock_step
    from reactor_coord.testing.unprotected import BareContext, bare
    from reactor_coord.testing.worker import LiveWorker

__all__ = [
    "BareContext",
    "ExecutionFactory",
    "Held",
    "LiveWorker",
    "MockedStep",
    "StepRunFactory",
    "ToldToFail",
    "TraceEventFactory",
    "assert_cancelled",
    "assert_compensated",
    "assert_completed",
    "assert_contended",
    "assert_deadlock",
    "assert_failed",
    "assert_free",
    "assert_halted",
    "assert_invalid",
    "assert_locked",
    "assert_not_ran",
    "assert_ordered_drained",
    "assert_ordered_last",
    "assert_ordered_next",
    "assert_parked",
    "assert_paused",
    "assert_period_free",
    "assert_period_marked",
    "assert_ran",
    "assert_retried",
    "assert_reverted",
    "assert_rollback_failed",
    "assert_rolled_back",
    "assert_skipped",
    "assert_slots_used",
    "assert_starts_in_window",
    "assert_undone",
    "bare",
    "drain",
    "failing_at",
    "hold",
    "mock_step",
]

_HOMES = {
    "assertions.endings": (
        "assert_cancelled",
        "assert_completed",
        "assert_deadlock",
        "assert_failed",
        "assert_halted",
        "assert_invalid",
        "assert_paused",
        "assert_reverted",
        "assert_rollback_failed",
        "assert_rolled_back",
    ),
    "assertions.keys": (
        "assert_free",
        "assert_locked",
        "assert_ordered_drained",
        "assert_ordered_last",
        "assert_ordered_next",
        "assert_period_free",
        "assert_period_marked",
        "assert_slots_used",
        "assert_starts_in_window",
    ),
    "assertions.steps": (
        "assert_compensated",
        "assert_contended",
        "assert_not_ran",
        "assert_parked",
        "assert_ran",
        "assert_retried",
        "assert_skipped",
        "assert_undone",
    ),
    "unprotected": ("BareContext", "bare"),
    "draining": ("drain",),
    "factories": ("ExecutionFactory", "StepRunFactory", "TraceEventFactory"),
    "holding": ("Held", "hold"),
    "mocking": ("MockedStep", "ToldToFail", "failing_at", "mock_step"),
    "worker": ("LiveWorker",),
}


def __getattr__(name: str) -> Any:
    """Import the name from its home."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"reactor_coord.testing.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
