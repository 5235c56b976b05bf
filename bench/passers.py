"""What a crowd costs those who have nothing to do with it: executions started meanwhile, and the memory of the workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, cast
from uuid import UUID

import psutil

from bench.reactors import Free, Locked
from bench.result import Figure, check
from bench.timing import ms, quantile
from reactor_coord.models import Execution
from reactor_coord.testing.worker import LiveWorker

EVERY = 0.25
LATER_SECONDS = 8
"""Further off than the sweep's interval, so that it is the sweep that has to find it in time."""

OTHER_KEY = "bench:another"
MIB = 2**20


class Passers:
    """Starts an uncoordinated execution and one on a key of its own, again and again; knows how long each waited to begin.

    And one that is due some seconds later; `lateness` is how much later it began than it should.
    """

    lateness = 0.0

    def __init__(self) -> None:
        self._sent: list[tuple[float, UUID]] = []
        self._late = (Free.options(countdown=LATER_SECONDS).enqueue().id, time.monotonic() + LATER_SECONDS)

    def until(self, is_over: Callable[[], bool], patience: float, what: str) -> None:
        """Go on until `is_over()`, asked as often as one is started."""
        deadline = time.monotonic() + patience
        while not is_over():
            check(time.monotonic() < deadline, f"not within {patience:g} s: {what}")
            self._sent.append((time.monotonic(), Free.enqueue().id))
            self._sent.append((time.monotonic(), Locked.enqueue(key=OTHER_KEY).id))
            time.sleep(EVERY)

    def delays(self, patience: float = 60.0) -> list[float]:
        """Seconds from start to body of all of them, which must all have completed."""
        ids = [each for _, each in self._sent]
        deadline = time.monotonic() + patience
        while (done := Execution.objects.filter(id__in=ids, status="completed")).count() < len(ids):
            check(time.monotonic() < deadline, f"{len(ids) - done.count()} of {len(ids)} that pass by never completed")
            time.sleep(0.1)
        results = dict(done.values_list("id", "result"))
        while not (late := Execution.objects.filter(id=self._late[0], status="completed").first()):
            check(time.monotonic() < deadline, f"what was due in {LATER_SECONDS} s never came")
            time.sleep(0.1)
        self.lateness = _began(late.result) - self._late[1]
        return [_began(results[each]) - sent for sent, each in self._sent]


def _began(result: object) -> float:
    return cast("float", cast("dict[str, Any]", result)["began"] if isinstance(result, dict) else result)


def delay_figures(when: str, delays: Sequence[float]) -> tuple[Figure, ...]:
    """The median and the worst of them."""
    return (
        Figure(f"{when}: a fresh execution begins after (median)", ms(quantile(delays, 0.5)), None, True),
        Figure(f"{when}: the same, the slowest of {len(delays)}", ms(max(delays)), None, True),
    )


def memory(*workers: LiveWorker) -> list[float]:
    """MiB resident of each process of these workers, what it shares with others counted in full."""
    pids = [pid for worker in workers for pid in (worker.pid, *worker.children())]
    return [cast("int", cast("Any", psutil.Process(pid)).memory_info().rss) / MIB for pid in pids]


def messages(*workers: LiveWorker) -> int:
    """How many messages they have received."""
    return sum(len(worker.log_lines(r"Task reactor_coord\.run\[\S+\] received")) for worker in workers)
