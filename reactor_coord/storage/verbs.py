"""The port through which `Execution.retry()` and its like reach the operators' verbs, which live layers above.

`apps.py` binds the implementation (`reactor_coord.operations`) when Django is ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from reactor_coord.errors import ReactorCoordError

if TYPE_CHECKING:
    from reactor_coord.models import Execution


class Verbs(Protocol):
    """What an operator may do to one execution."""

    def resume(self, execution: Execution, *, payload: Any = None) -> Any:
        """Answer the interrupt that it is paused at, or take up again what was aborted."""

    def retry(self, execution: Execution, *, from_step: str | None = None) -> Any:
        """Run it again from its failed step, or from an earlier one."""

    def undo(self, execution: Execution) -> Any:
        """Undo what it did, or only what an earlier rollback could not."""

    def close(self, execution: Execution, *, reason: str) -> Any:
        """Count its incomplete rollback as dealt with by hand."""

    def cancel(self, execution: Execution, *, reason: str = "", rollback: bool = True) -> Any:
        """Stop it and roll it back, unless `rollback` is false."""


_bound: Verbs | None = None


def bind_verbs(implementation: Verbs) -> None:
    """Make these the verbs behind every row's methods. The last binding counts."""
    global _bound
    _bound = implementation


def verbs() -> Verbs:
    """The bound verbs. Raises when Django has not been set up."""
    if _bound is None:
        raise ReactorCoordError("An execution's verbs need Django set up: is 'reactor_coord' in INSTALLED_APPS?")
    return _bound
