"""The rows of the report, in its order. A new row is a new module and a line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.result import Row
from bench.rows import backlog, crowd, elements, family, limited, lock, parked, rate_limit, semaphore, steps, wake
from bench.stage import Stage

ROWS: Mapping[str, Callable[[Stage], Row]] = {
    "lock": lock.measure,
    "wake": wake.measure,
    "steps-postgresql": steps.measure_postgresql,
    "steps-sqlite": steps.measure_sqlite,
    "rate-limit": rate_limit.measure,
    "semaphore": semaphore.measure,
    "family": family.measure,
    "crowd-8": crowd.measure_8,
    "crowd-48": crowd.measure_48,
    "backlog": backlog.measure,
    "limited": limited.measure,
}

BY_HAND: Mapping[str, Callable[[Stage], Row]] = {
    "parked-20k": parked.measure,
    "elements-5000": elements.measure,
}
"""Rows that take many minutes: measured only when named."""
