"""The one door for operators: what they may do (`verbs`, `coordinating`) and what they see (`views`).

Admin, API and commands call this and write no row themselves; the models' own verbs come here too.
"""

from __future__ import annotations

from reactor_coord.operations import verbs, views
from reactor_coord.operations.coordinating import (
    clear_period,
    drop_waiter,
    forget_slot,
    release_key,
    reset_line,
    skip_position,
)
from reactor_coord.operations.explaining import explain
from reactor_coord.operations.verbs import cancel, close, resume, retry, start, undo
from reactor_coord.storage.verbs import bind_verbs

__all__ = [
    "cancel",
    "clear_period",
    "close",
    "drop_waiter",
    "explain",
    "forget_slot",
    "release_key",
    "reset_line",
    "resume",
    "retry",
    "skip_position",
    "start",
    "undo",
    "views",
]

bind_verbs(verbs)
