"""How things are timed: interleaved repetitions, medians, and client and server on one core for single operations."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

import psutil

PINNED = "client and server pinned to one core"
UNPINNED = "this system cannot pin processes to a core"


@contextlib.contextmanager
def pinned(*servers: int) -> Iterator[str]:
    """Have this thread and the servers' processes share one core for as long as the block lasts.

    Open connections inside the block: what a server forks for one inherits its core. Yields the words for the report.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield UNPINNED
        return
    allowed = os.sched_getaffinity(0)
    everybody = [0, *(pid for server in servers for pid in _tree(server))]
    core = {max(allowed)}
    _pin(everybody, core)
    try:
        yield PINNED
    finally:
        _pin([0, *(pid for server in servers for pid in _tree(server))], allowed)


def _pin(pids: Sequence[int], cores: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(pid, cores)


def _tree(pid: int) -> list[int]:
    top = psutil.Process(pid)
    return [pid, *(child.pid for child in top.children(recursive=True))]


def interleaved(
    contenders: Mapping[str, Callable[[], object]], *, repetitions: int, calls: int, warm_up: int = 20
) -> dict[str, float]:
    """Seconds one call of each takes: the median, over repetitions in which all take turns, of the mean of `calls`."""
    for act in contenders.values():
        for _ in range(warm_up):
            act()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for repetition in range(repetitions):
        # Who comes first changes, so that nobody always runs behind the same other.
        turn = repetition % len(names)
        for name in names[turn:] + names[:turn]:
            act = contenders[name]
            began = time.perf_counter()
            for _ in range(calls):
                act()
            seconds[name].append((time.perf_counter() - began) / calls)
    return {name: median(values) for name, values in seconds.items()}


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which that part of them lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def jain(shares: Sequence[float]) -> float:
    """Jain's index of fairness: 1 when all have the same, 1/n when one has everything."""
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 0.0


def us(seconds: float) -> str:
    """Microseconds, for a table."""
    return f"{seconds * 1e6:,.0f} us"


def ms(seconds: float) -> str:
    """Milliseconds, for a table."""
    return f"{seconds * 1e3:,.1f} ms"
