"""B037: twenty thousand parked on one key. They take no worker's memory, and nothing from those who do not want that key."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any, cast

from django.db.models import QuerySet

from bench.passers import Passers, delay_figures, memory
from bench.reactors import Parked
from bench.result import Figure, Row, check
from bench.stage import Stage
from bench.timing import ms, quantile
from reactor_coord import testing
from reactor_coord.models import Execution, StepRun

KEY = "bench:parked"
AT_A_TIME = 1000
"""Started, then waited for: what is measured is those who are parked, not a queue of first messages."""

CALM_SECONDS = 90
"""Longer than `SNOOZE_MAX_DELAY`: every one of them has looked again meanwhile."""

MEMORY_MIB, GROWTH_MIB = 300.0, 20.0
PATIENCE = 1800.0
AIM_MEDIAN, AIM_WORST = 0.25, 3.0


def measure(stage: Stage) -> Row:
    """Park them, watch, start a second worker, let go of the key and see them all through."""
    count = stage.either(20_000, 400)
    with stage.workers(2) as first:
        with testing.hold(KEY, ttl=2 * PATIENCE) as held:
            began = time.monotonic()
            _park(count // 10)
            little = memory(first)
            _park(count)
            parking_took = time.monotonic() - began
            calm = Passers()
            until = time.monotonic() + stage.either(CALM_SECONDS, 10)
            calm.until(lambda: time.monotonic() > until, PATIENCE, "a calm while")
            delays_calm = calm.delays()
            much = memory(first)
            check(_all().filter(status="parked").count() == count, "not all are parked any more")
            with stage.workers(2) as second:
                draining = Passers()
                began = time.monotonic()
                held.release()
                done = _all().filter(status="completed")
                draining.until(lambda: done.count() == count, PATIENCE, "all completed")
                took = time.monotonic() - began
                most = max(*memory(first), *memory(second), *much)
                delays_draining = draining.delays()
                theirs = {f":{pid}" for pid in second.children()}
    growth = max(after - before for before, after in zip(little, much, strict=True))
    results = cast("list[dict[str, Any]]", list(_all().values_list("result", flat=True)))
    check(len({result["fence"] for result in results}) == count, "two bodies had one fence")
    runs = Counter(_all().values_list("worker", flat=True))
    share = sum(runs[name] for name in runs if any(name.endswith(pid) for pid in theirs)) / count
    attempts = StepRun.objects.filter(execution__in=_all()).exclude(attempts=1).count()
    check(not attempts, f"{attempts} of them ran more than once")
    check(most < MEMORY_MIB, f"a worker's process has {most:.0f} MiB")
    check(growth < GROWTH_MIB, f"a worker's process grew by {growth:.0f} MiB from {count // 10} parked to {count}")
    check(share > 0.2, f"the second worker ran {share:.0%} of them")
    return Row(
        name="parked-20k",
        title=f"{count:,} executions parked on one key",
        conditions="a worker with 2 processes, then a second; executions in a durable PostgreSQL",
        figures=(
            Figure("parking one", f"{parking_took / count * 1e3:,.1f} ms", None, True),
            Figure("largest process of a worker", f"{most:.0f} MiB", None, True),
            Figure("grown from a tenth parked to all", f"{growth:.1f} MiB", None, True),
            *delay_figures("all parked", delays_calm),
            *delay_figures("while they drain", delays_draining),
            Figure("all parked: one due in 8 s begins late by", ms(calm.lateness), None, True),
            Figure("while they drain: the same", ms(draining.lateness), None, True),
            Figure("run by the second worker", f"{share:.0%}", None, True),
            Figure("draining one", f"{took / count * 1e3:,.1f} ms", None, True),
        ),
        checked="all parked, all completed, one attempt and one fence each; memory; the second worker's share",
        aim=f"fresh executions begin within {AIM_MEDIAN:g} s (median) and {AIM_WORST:g} s (all)",
        is_met=max(calm.lateness, draining.lateness) < AIM_WORST
        and all(quantile(each, 0.5) < AIM_MEDIAN and max(each) < AIM_WORST for each in (delays_calm, delays_draining)),
    )


def _park(count: int) -> None:
    """Have that many parked."""
    while (there := _all().count()) < count:
        for _ in range(min(AT_A_TIME, count - there)):
            Parked.enqueue(key=KEY)
        deadline = time.monotonic() + PATIENCE
        while (waiting := _all().exclude(park_kind="contention").count()) > 0:
            check(time.monotonic() < deadline, f"{waiting} are not parked")
            time.sleep(0.1)


def _all() -> QuerySet[Execution]:
    return Execution.objects.filter(reactor=Parked.definition.name)
