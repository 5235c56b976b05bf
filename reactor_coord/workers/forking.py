"""Keep a fork and a thread's database connection apart.

A worker's main process forks its children at any time, also while the sweep's thread has a connection open. A child that
inherits an open SQLite connection inherits its locks and its shared memory with it, and reads and writes beside the file:
rows vanish. So a fork waits for the thread to close what it has opened.
"""

from __future__ import annotations

import logging
import os
import threading
from types import TracebackType

logger = logging.getLogger("reactor_coord.sweep")

PATIENCE = 10.0
"""Seconds a fork waits: a worker without its child is worse off than one with a database that hangs."""


class Unforked:
    """`with unforked:` nothing forks inside the block, by one thread at a time. The block closes what it opens."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._has_waited = False
        os.register_at_fork(before=self._wait, after_in_parent=self._go_on, after_in_child=self._begin_anew)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def _wait(self) -> None:
        self._has_waited = self._lock.acquire(timeout=PATIENCE)
        if not self._has_waited:
            logger.warning("event=reactor_coord.forked_during_a_sweep waited=%s", PATIENCE)

    def _go_on(self) -> None:
        if self._has_waited:
            self._lock.release()

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()
