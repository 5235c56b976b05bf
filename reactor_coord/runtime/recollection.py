"""What this process believes of a tree, to go back to when a transaction that seemed done fails at its very commit.

Deferred constraints are checked there, after an atomic step's success has been noted in memory. The rows are rolled back by
the database; what is noted here would stand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reactor_coord.storage.store import Batch

if TYPE_CHECKING:
    from django.db.models import Model

    from reactor_coord.models import StepRun
    from reactor_coord.runtime.tree import Frame


class Recollection:
    """The state around one step: its run, its execution and those above, and what was still to be written."""

    def __init__(self, frame: Frame, run: StepRun) -> None:
        self._tree = frame.tree
        batch = frame.tree.batch
        self._batch = Batch(
            executions={key: dict(columns) for key, columns in batch.executions.items()},
            new_executions=list(batch.new_executions),
            step_runs=list(batch.step_runs),
            trace=list(batch.trace),
        )
        self._trace = list(frame.tree.trace)
        rows: list[Model] = [run, frame.execution]
        while frame.parent is not None:
            rows.append(frame.parent.runs[frame.execution.parent_step])
            frame = frame.parent
            rows.append(frame.execution)
        self._fields = [(row, dict(row.__dict__)) for row in rows]

    def restore(self) -> None:
        """Go back to it."""
        self._tree.batch = self._batch
        self._tree.facts.go_back(self._tree.trace, self._trace)
        for row, fields in self._fields:
            row.__dict__.clear()
            row.__dict__.update(fields)
