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
    from reactor_coord.testing.assertions import (
        assert_contended,
        assert_free,
        assert_locked,
        assert_ran,
        assert_rolled_back,
    )
    from reactor_coord.testing.draining import drain
    from reactor_coord.testing.factories import ExecutionFactory, StepRunFactory, TraceEventFactory
    from reactor_coord.testing.holding import Held, hold
    from reactor_coord.testing.unprotected import BareContext, bare
    from reactor_coord.testing.worker import LiveWorker

__all__ = [
    "BareContext",
    "ExecutionFactory",
    "Held",
    "LiveWorker",
    "StepRunFactory",
    "TraceEventFactory",
    "assert_contended",
    "assert_free",
    "assert_locked",
    "assert_ran",
    "assert_rolled_back",
    "bare",
    "drain",
    "hold",
]

_HOMES = {
    "assertions": ("assert_contended", "assert_free", "assert_locked", "assert_ran", "assert_rolled_back"),
    "unprotected": ("BareContext", "bare"),
    "draining": ("drain",),
    "factories": ("ExecutionFactory", "StepRunFactory", "TraceEventFactory"),
    "holding": ("Held", "hold"),
    "worker": ("LiveWorker",),
}


def __getattr__(name: str) -> Any:
    """Import the name from its home."""
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"reactor_coord.testing.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
