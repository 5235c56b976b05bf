"""Very many executions parked on one key, and what it takes two worker processes to run them all when it comes free."""

from __future__ import annotations

import bisect
import time
from typing import Any, cast
from uuid import UUID

from django.db.models import Count

from bench.reactors import Locked
from bench.result import Figure, Row, check
from bench.stage import Stage
from bench.timing import ms
from reactor_coord import testing
from reactor_coord.coordination import inspect
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.testing.worker import LiveWorker

KEY = "bench:backlog"
PATIENCE = 300.0
AIM_PARKS, AIM_MESSAGES = 1.1, 2.2


def measure(stage: Stage) -> Row:
    """Park them all while somebody else holds the key, then let go of it."""
    count = stage.either(1000, 100)
    with stage.workers(2, options=["--prefetch-multiplier=1"]) as worker:
        with testing.hold(KEY, ttl=PATIENCE) as held:
            ids = [Locked.enqueue(key=KEY).id for _ in range(count)]
            wait("parked", ids, worker)
            line = [UUID(waiter.execution) for waiter in inspect.line(KEY)]
            check(len(line) == count, f"{len(line)} of {count} stand in line")
            began = time.monotonic()
            held.release()
        wait("completed", ids, worker)
        took = time.monotonic() - began
        messages = len(worker.log_lines(r"Task reactor_coord\.run\[\S+\] received")) / count
    rows = Execution.objects.filter(id__in=ids)
    values = {row.id: cast("dict[str, Any]", row.result) for row in rows}
    ran = sorted(ids, key=lambda each: values[each]["fence"])
    check(len({value["fence"] for value in values.values()}) == count, "two bodies had one fence")
    parks = TraceEvent.objects.filter(root_id__in=ids, kind="parked").aggregate(all=Count("id"))["all"] / count
    places = {each: place for place, each in enumerate(line)}
    out_of_order = count - _in_order([places[each] for each in ran])
    return Row(
        name="backlog",
        title=f"{count:,} executions parked on one key, drained by 2 worker processes",
        conditions="executions in a durable PostgreSQL, broker and locks in one Valkey",
        figures=(
            Figure("from release to the last completed", f"{took:.1f} s", None, True),
            Figure("one execution", ms(took / count), None, True),
            Figure("parks per execution", f"{parks:.2f}", None, True),
            Figure("messages per execution", f"{messages:.2f}", None, True),
            Figure("ran out of their place in the line", str(out_of_order), None, True),
        ),
        checked="all were parked, all completed, each under a fence of its own",
        aim=f"at most {AIM_PARKS} parks and {AIM_MESSAGES} messages each, order kept",
        is_met=parks <= AIM_PARKS and messages <= AIM_MESSAGES and not out_of_order,
    )


def wait(status: str, ids: list[UUID], worker: LiveWorker) -> None:
    """Wait until all of them have that status."""
    deadline = time.monotonic() + PATIENCE
    while (found := Execution.objects.filter(id__in=ids, status=status).count()) < len(ids):
        if time.monotonic() > deadline:
            check(False, f"only {found} of {len(ids)} are {status}; the worker says:\n{worker.log()[-3000:]}")
        time.sleep(0.05)


def _in_order(places: list[int]) -> int:
    """How many of them rise: the longest increasing subsequence, so that one who came late counts once."""
    ends: list[int] = []
    for place in places:
        at = bisect.bisect_left(ends, place)
        ends[at : at + 1] = [place]
    return len(ends)
