"""Time-ordered identifiers (UUID version 7, RFC 9562): inserts stay at the right end of the index, and a list by id is a
list by time."""

from __future__ import annotations

import os
import threading
import time
import uuid

_guard = threading.Lock()
_last = 0


def uuid7() -> uuid.UUID:
    """A new id: 48 bits of milliseconds, then 12 bits that grow within a millisecond, then 62 random bits.

    Ids of one process only ever grow. Over a millisecond's 4,096 ids the clock of the ids runs ahead of the real one.
    """
    global _last
    now = time.time_ns()
    # Milliseconds and their fraction in 1/4096: method 3 of RFC 9562, section 6.2.
    stamp = (now // 1_000_000) << 12 | (now % 1_000_000) * 4096 // 1_000_000
    with _guard:
        stamp = _last = max(stamp, _last + 1)
    value = (stamp >> 12) << 80 | 0x7 << 76 | (stamp & 0xFFF) << 64 | 0b10 << 62
    return uuid.UUID(int=value | int.from_bytes(os.urandom(8)) >> 2)


def _fresh_guard() -> None:
    """A child of a fork must not inherit a guard that another thread of its parent held."""
    global _guard
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_fresh_guard)
