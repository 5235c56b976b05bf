"""The rows: executions, the runs of their steps, and the trace of what happened. Only `storage.store` writes them."""

from __future__ import annotations

from reactor_coord.models.execution import Execution
from reactor_coord.models.step_run import StepRun
from reactor_coord.models.trace_event import TraceEvent

__all__ = ["Execution", "StepRun", "TraceEvent"]
