"""What a caller gets back: the outcome of a run, the view of a failure, the handle of enqueued work.

Built by the runner from memory, and from a row for work that ran elsewhere; both read the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from django.db import connections

from reactor_coord.engine.states import ExecutionStatus, is_terminal
from reactor_coord.errors import ReactorFailed

if TYPE_CHECKING:
    from uuid import UUID

    from reactor_coord.models import Execution, StepRun


@dataclass(frozen=True, slots=True)
class RollbackFailure:
    """One cleanup that did not happen. `reason`: coordination_unavailable | raised | returned_failure."""

    step: str
    kind: str
    reason: str
    message: str
    key: str = ""
    reactor: str = ""


@dataclass(frozen=True, slots=True)
class FailureView:
    """Why an execution failed: the step that failed (empty for the reactor itself), what it said, what stayed undone."""

    step: str
    reactor: str
    error_type: str
    message: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    rollback_failures: tuple[RollbackFailure, ...] = ()
    error: BaseException | None = None
    """The exception itself, in the process where it was raised; None when read from a row."""

    @classmethod
    def from_json(cls, data: Mapping[str, Any], error: BaseException | None = None) -> Self:
        """Read what `Execution.failure` holds."""
        return cls(
            step=data.get("step", ""),
            reactor=data.get("reactor", ""),
            error_type=data.get("error_type", ""),
            message=data.get("message", ""),
            arguments=data.get("arguments") or {},
            rollback_failures=tuple(RollbackFailure(**entry) for entry in data.get("rollback_failures", ())),
            error=error,
        )

    def __str__(self) -> str:
        where = f"{self.reactor}.{self.step}" if self.step else self.reactor
        return f"{where}: {self.error_type}: {self.message}"


class Results(Mapping[str, Any]):
    """The results of an execution's completed steps by name, decoded when read. A skipped step reads as None."""

    def __init__(self, runs: Iterable[StepRun]) -> None:
        self._encoded = {run.step: run.result for run in runs if run.completion_order is not None}

    def __getitem__(self, name: str) -> Any:
        from reactor_coord.storage import codec

        encoded = self._encoded[name]
        return codec.decode(encoded) if encoded is not None else None

    def __iter__(self) -> Any:
        return iter(self._encoded)

    def __len__(self) -> int:
        return len(self._encoded)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended, or where it stands. `execution` is the model row."""

    status: ExecutionStatus
    execution: Execution
    value: Any = None
    failure: FailureView | None = None
    results: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""

    @property
    def succeeded(self) -> bool:
        """All steps are done."""
        return self.status == ExecutionStatus.COMPLETED

    @property
    def failed(self) -> bool:
        """A step failed for good; what was done is rolled back as far as `failure.rollback_failures` allows."""
        return self.status == ExecutionStatus.FAILED

    @property
    def halted(self) -> bool:
        """A step stopped the execution cleanly; nothing is undone."""
        return self.status == ExecutionStatus.HALTED

    @property
    def paused(self) -> bool:
        """It waits for somebody's answer."""
        return self.status == ExecutionStatus.PAUSED

    def unwrap(self) -> Any:
        """Return the value of a completed or halted execution; raises `ReactorFailed` for any other."""
        if self.succeeded or self.halted:
            return self.value
        cause = self.failure.error if self.failure else None
        message = str(self.failure) if self.failure else f"execution {self.execution.id} is {self.status}"
        raise ReactorFailed(message, failure=self.failure) from cause

    @classmethod
    def of_row(cls, row: Execution) -> Self:
        """Read where an execution stands from its row. One query for the step results."""
        from reactor_coord.storage import codec, store

        failure = FailureView.from_json(row.failure) if row.failure else None
        results = Results(store.step_runs([row.id]))
        value = codec.decode(row.result) if row.result is not None else None
        return cls(ExecutionStatus(row.status), row, value, failure, results, row.reason)


def _why_not(row: Execution) -> str:
    """What to look at first when an execution is not over in time."""
    if row.status != ExecutionStatus.READY:
        return f"; `manage.py executions {row.pk}` shows what it waits on"
    if any(each.in_atomic_block for each in connections.all(initialized_only=True)):
        return ": its message goes out when the transaction that is open here commits, so wait after that"
    return ": no worker has begun it. Is one running, on this broker and queue?"


@dataclass(frozen=True, slots=True)
class ExecutionHandle:
    """Enqueued work: its id at once, its state whenever asked."""

    id: UUID
    created: bool = True
    """False when the idempotency key met an execution that was there already."""

    @property
    def execution(self) -> Execution:
        """The row as it is now."""
        from reactor_coord.models import Execution

        return Execution.objects.get(pk=self.id)

    @property
    def status(self) -> ExecutionStatus:
        """The status as it is now."""
        return ExecutionStatus(self.execution.status)

    def wait(self, timeout: float = 30.0, interval: float = 0.02) -> Outcome:
        """Block until the execution is over or paused, and return its outcome; `TimeoutError` after `timeout` seconds.

        Looks at the row every `interval` seconds, growing to half a second: for commands and tests, not for a web view.
        """
        deadline = time.monotonic() + timeout
        while True:
            row = self.execution
            if is_terminal(row.status) or row.status in {ExecutionStatus.PAUSED, ExecutionStatus.NEEDS_DEFINITION}:
                return Outcome.of_row(row)
            if time.monotonic() >= deadline:
                raise TimeoutError(f"execution {self.id} is still {row.status} after {timeout:g} s{_why_not(row)}")
            time.sleep(interval)
            interval = min(interval * 1.3, 0.5)

    def cancel(self, reason: str = "") -> None:
        """Cancel it; what was done is rolled back."""
        self.execution.cancel(reason=reason)
