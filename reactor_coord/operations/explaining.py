"""`explain`: one sentence about one execution, from anywhere: why it does not run, or how it ended.

The same words stand on its admin page, in the API and in the command; here they cost a look at what it waits on alone, not a
page's survey of everything that is held.
"""

from __future__ import annotations

from uuid import UUID

from django.utils import timezone

from reactor_coord.engine.states import StepStatus
from reactor_coord.models import Execution, StepRun
from reactor_coord.operations.views import details, explaining, live, outlines, steps, summaries
from reactor_coord.operations.views.shapes import WaitView


def explain(execution: Execution | UUID | str) -> str:
    """Say why an execution is not running: what it waits on, who has it since when and with which fence, when it looks again.

    An execution that is over says how it ended; one that runs, in which step. Raises `Execution.DoesNotExist`.
    """
    row = Execution.objects.get(pk=execution.pk if isinstance(execution, Execution) else execution)
    failure = row.why_failed
    return explaining.explain(
        summaries.summary(row),
        wait=_wait(row),
        failure=details.failure_view(failure),
        rollback_failures=details.rollback_failure_views(failure),
        running_steps=_running(row),
        now=timezone.now(),
    )


def _wait(row: Execution) -> WaitView | None:
    """What it waits on now. The root records it, for whichever execution of its tree it is."""
    root = row if row.is_root else Execution.objects.get(pk=row.root_id or row.pk)
    wait = summaries.wait_of(root)
    if wait is None or (root is not row and wait.execution != str(row.pk)):
        return None
    if wait.primitive in live.PRIMITIVES:
        wait = summaries.with_live_holder(wait, live.holds_of(wait.key, wait.primitive))
    return summaries.with_live_place(wait, str(root.pk))


def _running(row: Execution) -> tuple[str, ...]:
    definition = outlines.definition_of(row.reactor)
    runs = StepRun.objects.filter(execution_id=row.pk).only("step", "status", "execution_id")
    by_name = {run.step: run for run in runs}
    current = steps.current(definition, by_name)
    begun = [name for name, run in by_name.items() if run.status == StepStatus.RUNNING]
    return tuple(dict.fromkeys([*begun, *([current] if current else [])]))
