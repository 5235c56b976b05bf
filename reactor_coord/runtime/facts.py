"""What of a tree's trace does not wait for a checkpoint, while a checkpoint may be under way, or be taken back.

The work's own thread and the one that tells of losses both write trace rows. Each row is in one of three places: still in
the trace, under way, recorded.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reactor_coord.models import TraceEvent


@dataclass(eq=False)
class Facts:
    """Rows are compared by identity: what is not written yet has no key."""

    _told: list[TraceEvent] = field(default_factory=list)
    _recorded: list[TraceEvent] = field(default_factory=list)
    _under_way: list[TraceEvent] = field(default_factory=list)
    _changing: threading.Lock = field(default_factory=threading.Lock)

    def add(self, row: TraceEvent) -> None:
        """Note a row that stands, whatever transaction is taken back."""
        self._told.append(row)

    def take(self, trace: deque[TraceEvent]) -> list[TraceEvent]:
        """Take all of the trace to be written beside the work."""
        rows: list[TraceEvent] = []
        with self._changing:
            while trace:
                rows.append(trace.popleft())
            self._under_way += rows
        return rows

    def settle(self, rows: list[TraceEvent], is_recorded: bool, trace: deque[TraceEvent]) -> None:
        """What was taken is recorded, or goes back into the trace."""
        with self._changing:
            self._under_way = [row for row in self._under_way if row not in rows]
            if is_recorded:
                self._recorded += rows
            else:
                trace.extendleft(reversed(rows))

    def go_back(self, trace: deque[TraceEvent], before: Iterable[TraceEvent]) -> None:
        """Have the trace go back to what it was, but for what is written of that; the facts since are still to be written."""
        with self._changing:
            known = list(before)
            known += [row for row in self._told if row not in known]
            trace.clear()
            trace.extend(row for row in known if row not in self._recorded and row not in self._under_way)
