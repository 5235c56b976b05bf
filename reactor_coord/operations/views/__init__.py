"""The read models behind the admin, the API and the commands: one answer, shown three ways.

They read rows (`models`), declarations (`declare.registry`) and what Redis says now (`coordination.inspect`), and change nothing.
"""

from __future__ import annotations

from .coordination import hold, holds, parks, waiters
from .details import allowed_verbs, detail, trace_of, trace_rows, trace_views
from .explaining import explain, span
from .masking import mask_secrets
from .outlines import definition_of, outline, reactors
from .shapes import (
    BranchView,
    CoordinationView,
    ErrorView,
    ExecutionDetail,
    ExecutionSummary,
    FailureView,
    HolderView,
    HoldRow,
    Live,
    ParkRow,
    ReactorOutline,
    RollbackFailureView,
    StepOutline,
    StepView,
    TraceView,
    WaiterRow,
    WaitView,
    in_words,
    short,
)
from .summaries import listing, listing_one, status_label, summary, wait_of

__all__ = [
    "BranchView",
    "CoordinationView",
    "ErrorView",
    "ExecutionDetail",
    "ExecutionSummary",
    "FailureView",
    "HoldRow",
    "HolderView",
    "Live",
    "ParkRow",
    "ReactorOutline",
    "RollbackFailureView",
    "StepOutline",
    "StepView",
    "TraceView",
    "WaitView",
    "WaiterRow",
    "allowed_verbs",
    "definition_of",
    "detail",
    "explain",
    "hold",
    "holds",
    "in_words",
    "listing",
    "listing_one",
    "mask_secrets",
    "outline",
    "parks",
    "reactors",
    "short",
    "span",
    "status_label",
    "summary",
    "trace_of",
    "trace_rows",
    "trace_views",
    "wait_of",
    "waiters",
]
