"""The process's own primitives, built from the project's settings when first asked for, and anew when those change."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reactor_coord.coordination import asking
from reactor_coord.coordination.connection import Connection
from reactor_coord.coordination.deadlock import Deadlocks
from reactor_coord.coordination.keys import Names
from reactor_coord.coordination.leader import Leadership
from reactor_coord.coordination.lock import Locks
from reactor_coord.coordination.ordered import OrderedLines
from reactor_coord.coordination.period import Periods
from reactor_coord.coordination.rate_limit import RateLimits
from reactor_coord.coordination.semaphore import Semaphores

_lock = threading.Lock()
_built: list[Primitives] = []
_listening: list[bool] = []


@dataclass(frozen=True, slots=True)
class Primitives:
    """Every primitive over one connection, under one prefix."""

    connection: Connection
    names: Names
    locks: Locks
    semaphores: Semaphores
    rate_limits: RateLimits
    periods: Periods
    ordered_lines: OrderedLines
    leadership: Leadership
    deadlocks: Deadlocks


def primitives() -> Primitives:
    """The primitives of `REACTOR_COORD` (`REDIS_ALIAS`, `KEY_PREFIX`, `HANDOFF_GRACE`): one set for the whole process."""
    if _built:
        return _built[0]
    with _lock:
        if not _built:
            _built.append(_build())
        return _built[0]


def locks() -> Locks:
    """The process's locks."""
    return primitives().locks


def semaphores() -> Semaphores:
    """The process's semaphores."""
    return primitives().semaphores


def rate_limits() -> RateLimits:
    """The process's rate limits."""
    return primitives().rate_limits


def periods() -> Periods:
    """The process's periods."""
    return primitives().periods


def ordered_lines() -> OrderedLines:
    """The process's ordered lines."""
    return primitives().ordered_lines


def together(asks: Sequence[asking.Ask[Any]], *, until_refused: bool) -> list[Any] | None:
    """Several operations in one round trip; see `asking.together`."""
    return asking.together(primitives().connection, asks, until_refused=until_refused)


def leadership() -> Leadership:
    """Who leads this project's sweep."""
    return primitives().leadership


def deadlocks() -> Deadlocks:
    """The walk over who waits for whom."""
    return primitives().deadlocks


def _build() -> Primitives:
    from django.core.signals import setting_changed

    from reactor_coord import conf

    if not _listening:
        setting_changed.connect(_on_setting_changed, dispatch_uid="reactor_coord.coordination")
        _listening.append(True)
    found = conf.settings()
    connection, names = Connection(found.REDIS_ALIAS), Names(found.KEY_PREFIX)
    locks = Locks(connection, names, handoff_grace=found.HANDOFF_GRACE)
    return Primitives(
        connection,
        names,
        locks,
        Semaphores(connection, names, handoff_grace=found.HANDOFF_GRACE, keeper=locks.keeper),
        RateLimits(connection, names, grace=found.HANDOFF_GRACE),
        Periods(connection, names, locks.keeper),
        OrderedLines(connection, names, locks.keeper),
        Leadership(connection, names),
        Deadlocks(connection, names),
    )


def _on_setting_changed(*, setting: str, **_: Any) -> None:
    if setting in {"REACTOR_COORD", "CACHES"}:
        with _lock:
            for replaced in _built:
                replaced.connection.retire()  # or a test suite that changes settings would use up the pool
            _built.clear()
