"""Where the wakes go that come up with nobody to hand them to: on the keeper's thread, or in the middle of a wait.

The runtime says once how an execution is woken; everywhere else an operation returns its wakes to its caller.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

logger = logging.getLogger("reactor_coord.coordination")

Waker = Callable[[Iterable[str]], None]

_waker: list[Waker] = []


def set_waker(waker: Waker | None) -> None:
    """Send background wakes through `waker`; `None` leaves them to the sweep."""
    _waker[:] = [] if waker is None else [waker]


def deliver(wakes: Iterable[str]) -> None:
    """Wake these; never raises. A wake that cannot be sent is the sweep's."""
    names = tuple(wakes)
    if not names or not _waker:
        return
    try:
        _waker[0](names)
    except Exception:
        logger.exception("event=reactor_coord.wake_failed wakes=%s", ",".join(names))
