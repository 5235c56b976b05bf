"""What is put into a span, and under which name. Spans are made by `reactor_coord.spans`, if the project traces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from reactor_coord import spans
from reactor_coord.engine.states import ExecutionStatus
from reactor_coord.models import Execution
from reactor_coord.runtime import verdicts
from reactor_coord.spans import Span

if TYPE_CHECKING:
    from reactor_coord.engine.rollback import Cleanup
    from reactor_coord.runtime.tree import Frame


@contextmanager
def of_execution(row: Execution, label: str) -> Iterator[Span]:
    """From where a process takes a root up to its park or its end, in the trace that its start was part of."""
    link = spans.received_carrier()
    with spans.span(f"execute {label}", _about(row, label), parent=row.trace_context or {}, link=link) as span:
        yield span


def mark_end(span: Span, row: Execution) -> None:
    """Mark the span of an execution that has failed."""
    failure = row.why_failed
    if row.status == ExecutionStatus.FAILED and failure is not None:
        span.fail(failure.error_type)


@contextmanager
def of_child(child: Frame) -> Iterator[None]:
    """The way forward of a composed child, or of an element that runs in process."""
    label = child.definition.label
    with spans.span(f"execute {label}", _about(child.execution, label)) as span, _failing(span):
        yield


@contextmanager
def of_step(frame: Frame, step: str) -> Iterator[None]:
    """One step for as long as this process is at it: until it is settled, handed off, or parks."""
    label = frame.definition.label
    attributes = {**_about(frame.execution, label), "step": step}
    with spans.span(f"step {label}.{step}", attributes) as span, _failing(span):
        yield


@contextmanager
def of_cleanup(frame: Frame, step: str, cleanup: Cleanup) -> Iterator[Span]:
    """One compensation or undo, under its locks."""
    label = frame.definition.label
    attributes = {**_about(frame.execution, label), "step": step}
    with spans.span(f"{cleanup.value} {label}.{step}", attributes) as span:
        yield span


@contextmanager
def _failing(span: Span) -> Iterator[None]:
    try:
        yield
    except verdicts.StepFailed as failed:
        span.fail(verdicts.type_of(failed.settlement.error))
        raise
    except Exception as error:
        span.fail(type(error).__name__)
        raise


def _about(row: Execution, label: str) -> dict[str, str]:
    return {"reactor": label, "execution": str(row.id), "root": str(row.root_id or row.id)}
