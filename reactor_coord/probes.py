"""Fault points: named places in the code where a test may stop, kill or delay the process.

Free of cost and effect unless a listener is set. The names are called by the rooms that own the places; what to do there
is the listener's, see `reactor_coord.testing`.
"""

from __future__ import annotations

from collections.abc import Callable

listener: Callable[[str], None] | None = None
"""Called with the name of every point that is reached, in the thread that reaches it; `None` in production."""


def reached(point: str) -> None:
    """Tell the listener, if there is one, that this thread has come to `point` (such as `"checkpoint.after"`)."""
    if listener is not None:
        listener(point)
