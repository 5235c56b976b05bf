"""The admin pages of operators: executions, one execution, coordination.

They show `operations` and call its verbs; they write no row.
"""

from __future__ import annotations

from .executions import ExecutionAdmin

__all__ = ["ExecutionAdmin"]
