"""Holds and lines in Redis: one primitive a file, one atomic operation a Lua file.

It knows owners, claims and keys as strings, and says whom to wake; what an execution is, and how it is woken, is left to
the runtime. Importing it opens no connection and starts no thread.
"""

from __future__ import annotations

from reactor_coord.coordination.asking import Ask
from reactor_coord.coordination.deadlock import Blocker, Deadlocks, Ring, Wait
from reactor_coord.coordination.holding import HIGHEST_PRIORITY, Holdings
from reactor_coord.coordination.lock import Locks
from reactor_coord.coordination.ordered import NotYet, OrderedLines, Turn
from reactor_coord.coordination.process import (
    deadlocks,
    leadership,
    locks,
    ordered_lines,
    periods,
    rate_limits,
    semaphores,
    together,
)
from reactor_coord.coordination.rate_limit import Admission, RateLimits, Slot, Window
from reactor_coord.coordination.semaphore import Semaphores
from reactor_coord.coordination.types import HeldKey, Holder, Refused, Requester, Taken
from reactor_coord.coordination.wakes import set_waker

__all__ = [
    "HIGHEST_PRIORITY",
    "Admission",
    "Ask",
    "Blocker",
    "Deadlocks",
    "HeldKey",
    "Holder",
    "Holdings",
    "Locks",
    "NotYet",
    "OrderedLines",
    "RateLimits",
    "Refused",
    "Requester",
    "Ring",
    "Semaphores",
    "Slot",
    "Taken",
    "Turn",
    "Wait",
    "Window",
    "deadlocks",
    "leadership",
    "locks",
    "ordered_lines",
    "periods",
    "rate_limits",
    "semaphores",
    "set_waker",
    "together",
]
