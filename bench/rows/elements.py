"""B156: a map of five thousand under a semaphore of five. Never above it, and little of it is felt by anybody else."""

from __future__ import annotations

import contextlib
import time
from typing import cast

from bench.passers import Passers, delay_figures, memory, messages
from bench.reactors import Elements
from bench.result import Figure, Row, check
from bench.stage import Stage
from bench.timing import ms, quantile
from reactor_coord.models import Execution

KEY = "bench:elements"
LIMIT, WORKERS, PROCESSES = 5, 4, 2
PATIENCE = 1800.0
AIM_MEDIAN, AIM_WORST, AIM_MESSAGES, AIM_SLOWDOWN = 0.25, 3.0, 3.5, 1.25


def measure(stage: Stage) -> Row:
    """One execution with all of them, more processes than slots, and passers-by."""
    count = stage.either(5000, 200)
    passers = Passers()
    with contextlib.ExitStack() as all_of_it:
        workers = [all_of_it.enter_context(stage.workers(PROCESSES)) for _ in range(WORKERS)]
        sent = time.monotonic()
        handle = Elements.enqueue(key=KEY, items=list(range(count)))
        passers.until(lambda: handle.status in {"completed", "failed"}, PATIENCE, "all elements run")
        took = time.monotonic() - sent
        delays = passers.delays()
        each = (messages(*workers) - len(delays)) / count
        most_memory = max(memory(*workers))
    check(handle.status == "completed", f"it is {handle.status}")
    bodies = sorted(cast("list[tuple[float, float]]", handle.execution.result))
    check(len(bodies) == count, f"{len(bodies)} of {count} elements have a value")
    elements = Execution.objects.filter(parent_id=handle.id)
    check(elements.filter(status="completed").count() == count, "not every element is completed")
    most = _most_at_once(bodies)
    check(most <= LIMIT, f"{most} were inside at once")
    check(most == LIMIT, f"never more than {most} were inside: the limit was not tried")
    fifth = count // 5
    early, late = _span(bodies[:fifth]), _span(bodies[-fifth:])
    return Row(
        name="elements-5000",
        title=f"a map of {count:,} elements under a semaphore of {LIMIT}",
        conditions=f"{WORKERS} workers with {PROCESSES} processes each; executions in a durable PostgreSQL",
        figures=(
            Figure("from enqueue to completed", f"{took:.1f} s", None, True),
            Figure("one element", ms(took / count), None, True),
            Figure("one of the last fifth, to one of the first", f"{late / early:.2f} x", None, True),
            Figure("most inside at once", str(most), None, True),
            Figure("messages per element", f"{each:.2f}", None, True),
            Figure("largest process of a worker", f"{most_memory:.0f} MiB", None, True),
            *delay_figures("meanwhile", delays),
        ),
        checked="every element completed once, the semaphore was filled and never above its limit",
        aim=f"at most {AIM_MESSAGES} messages an element, the last as quick as the first, fresh executions begin within "
        f"{AIM_MEDIAN:g} s (median) and {AIM_WORST:g} s (all)",
        is_met=each <= AIM_MESSAGES
        and late / early <= AIM_SLOWDOWN
        and quantile(delays, 0.5) < AIM_MEDIAN
        and max(delays) < AIM_WORST,
    )


def _most_at_once(bodies: list[tuple[float, float]]) -> int:
    """A slot given back is taken in the same instant: ends come before beginnings."""
    edges = sorted([(began, 1) for began, _ in bodies] + [(ended, -1) for _, ended in bodies])
    inside = most = 0
    for _, change in edges:
        inside += change
        most = max(most, inside)
    return most


def _span(bodies: list[tuple[float, float]]) -> float:
    return bodies[-1][0] - bodies[0][0]
