"""The one door for operators: what they may do (`verbs`) and what they see (`views`).

Admin, API and commands call this and write no row themselves; the models' own verbs come here too.
"""

from __future__ import annotations

from reactor_coord.operations import verbs
from reactor_coord.operations.verbs import cancel, release_key, resume, retry, start, undo
from reactor_coord.storage.verbs import bind_verbs

__all__ = ["cancel", "release_key", "resume", "retry", "start", "undo"]

bind_verbs(verbs)
