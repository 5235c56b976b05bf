"""What a caller gets back: the outcome of a run, the view of a failure, the handle of enqueued work.

Built by the runner from memory, and from a row for work that ran elsewhere; both read the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from django.db import connections

from reactor_coord.engine import records
from reactor_coord.engine.delays import handle_polls
from reactor_coord.engine.records import RollbackFailure as RollbackFailure  # what the package's root names
from reactor_coord.engine.states import ExecutionStatus, is_terminal
from reactor_coord.errors import CompensationError, ExecutionPending, ReactorFailed

if TYPE_CHECKING:
    from uuid import UUID

    from reactor_coord.models import Execution, StepRun


@dataclass(frozen=True, slots=True)
class FailureView(records.Failure):
    """Why an execution failed: the step that failed (empty for the reactor itself), what it said, what stayed undone.

    Attributes: `step`, `reactor`, `error_type`, `message`, `arguments`, `rollback_failures` (each a `RollbackFailure`) and
    `error`.
    """

    error: BaseException | None = field(default=None, metadata=records.NOT_STORED)
    """The exception itself, in the process where it was raised; None when read from a row."""

    def __str__(self) -> str:
        return f"{self.where}: {self.error_type}: {self.message}"


def failure_of(row: Execution, error: BaseException | None = None) -> FailureView | None:
    """Why the execution failed; None of one that did not. `error`: the exception itself, where it is at hand."""
    return replace(FailureView.from_json(row.failure), error=error) if row.failure else None


class Results(Mapping[str, Any]):
    """The results of an execution's completed steps by name, decoded when read. A skipped step reads as None."""

    def __init__(self, runs: Iterable[StepRun]) -> None:
        self._encoded = {
            run.step: run.result for run in runs if run.completion_order is not None and not run.is_contained
        }

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

    @property
    def pending(self) -> bool:
        """It is not over, and needs nothing: a worker goes on with it (`background_after`, or it was enqueued before)."""
        waits = (ExecutionStatus.PAUSED, ExecutionStatus.NEEDS_DEFINITION)
        return not is_terminal(self.status) and self.status not in waits

    @property
    def handle(self) -> ExecutionHandle:
        """The handle of the execution, to wait for its end or to look at it later."""
        return ExecutionHandle(self.execution.id, created=False)

    def unwrap(self) -> Any:
        """Return the value of a completed or halted execution.

        Raises `ExecutionPending` for one that is not over, `ReactorFailed` for one that failed or was cancelled: from the error
        that failed it, or from the `CompensationError` of a cleanup that could not have its key.
        """
        if self.succeeded or self.halted:
            return self.value
        if not is_terminal(self.status):
            raise ExecutionPending(execution_id=str(self.execution.id), status=self.status.value)
        raise ReactorFailed(str(self.failure or self._stands()), failure=self.failure) from self._cause()

    def _cause(self) -> BaseException | None:
        """The cleanup that could not have its key, in its turn from the error that failed the step; else that error."""
        failed = self.failure
        if failed is None or not failed.is_incomplete:
            return failed.error if failed is not None else None
        for left in failed.rollback_failures:
            if left.error_type == CompensationError.__name__:
                error = CompensationError(
                    reactor=left.reactor, step=left.step, kind=left.kind, key=left.key, problem=left.message
                )
                error.__cause__ = failed.error
                return error
        return failed.error

    def _stands(self) -> str:
        return f"execution {self.execution.id} is {self.status}{': ' + self.reason if self.reason else ''}"

    @classmethod
    def of_row(cls, row: Execution) -> Self:
        """Read where an execution stands from its row. One query for the step results."""
        from reactor_coord.storage import codec, store

        failure = failure_of(row)
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
        deadline, polls, looks = time.monotonic() + timeout, handle_polls(interval), 0
        while True:
            row = self.execution
            if is_terminal(row.status) or row.status in {ExecutionStatus.PAUSED, ExecutionStatus.NEEDS_DEFINITION}:
                return Outcome.of_row(row)
            if time.monotonic() >= deadline:
                raise TimeoutError(f"execution {self.id} is still {row.status} after {timeout:g} s{_why_not(row)}")
            looks += 1
            time.sleep(polls.after(looks))

    def cancel(self, reason: str = "", *, rollback: bool = True) -> None:
        """Cancel it; what was done is rolled back, unless `rollback` is false."""
        self.execution.cancel(reason=reason, rollback=rollback)
