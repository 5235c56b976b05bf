"""A backlog against a rate limit: it should drain at the limit, and never above it."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from typing import cast
from uuid import UUID

from bench.reactors import Limited
from bench.result import Figure, Row, check
from bench.rows.backlog import wait
from bench.stage import Stage
from reactor_coord.models import Execution, TraceEvent

KEY = "bench:limited"
PER_SECOND = 20
AIM = 0.98


def measure(stage: Stage) -> Row:
    """Enqueue them all at once."""
    count = stage.either(300, 100)
    with stage.workers(2) as worker:
        time.sleep(1 - time.time() % 1)
        ids: list[UUID] = [Limited.enqueue(key=KEY).id for _ in range(count)]
        wait("completed", ids, worker)
    results = Execution.objects.filter(id__in=ids, result__isnull=False).values_list("result", flat=True)
    starts = sorted(cast("float", result) for result in results)
    check(len(starts) == count, f"{len(starts)} of {count} starts are known")
    parks = TraceEvent.objects.filter(root_id__in=ids, kind="parked").count() / count
    most = max(Counter(int(start) for start in starts).values())  # by the bodies' clock, which is the server's too
    # From the first start on, so many windows of a second are needed; the last one is not waited out.
    ideal = (count - 1) // PER_SECOND
    share = ideal / max(int(starts[-1]) - int(starts[0]), ideal)
    gap = max(after - before for before, after in pairwise(starts))
    return Row(
        name="limited",
        title=f"{count} executions against {PER_SECOND} starts per second, fixed windows",
        conditions="a worker with 2 processes, executions in a durable PostgreSQL",
        figures=(
            Figure(
                "windows used of those needed", f"{ideal + 1} of {int(starts[-1]) - int(starts[0]) + 1}", share, True
            ),
            Figure("first start to last", f"{starts[-1] - starts[0]:.2f} s", None, True),
            Figure("most in one window", str(most), None, True),
            Figure("parks per execution", f"{parks:.2f}", None, True),
            Figure("longest pause between starts", f"{gap:.2f} s", None, True),
        ),
        floor="the limit",
        checked="all completed, and no window had more than its limit",
        aim=f"at least {AIM:.0%} of the limit, never above it",
        is_met=share >= AIM and most <= PER_SECOND,
    )
