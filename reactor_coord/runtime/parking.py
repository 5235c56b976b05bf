"""Stepping aside: the one signal by which contention, a retry's delay and every other wait leave the worker.

`Parked` unwinds to the top through every level; nothing on the way writes. The top keeps the tree's holds, writes the
park in one transaction and frees the worker.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from reactor_coord.engine.events import ExecutionParked
from reactor_coord.engine.records import ParkedHold, Wait
from reactor_coord.engine.states import ParkKind

NOTHING = Wait()


@dataclass(frozen=True, slots=True)
class Park:
    """Until when, and on what. `waiting_on` is what operators see; the next look at the same place reads it back."""

    kind: ParkKind
    resume_at: datetime
    step: str = ""
    waiting_on: Wait = NOTHING
    is_timed: bool = False
    """Whether only time ends it, and a message before then is a stray one."""


class Parked(BaseException):
    """Control signal: the execution steps aside. A `BaseException`, so that no body or hook can swallow it."""

    def __init__(self, park: Park) -> None:
        super().__init__(f"parked until {park.resume_at.isoformat()} ({park.kind})")
        self.park = park

    def event(self, step: str) -> ExecutionParked:
        """What is told of it at this step; at none, where the reactor's own declarations are waited for."""
        waits_on = self.park.waiting_on
        return ExecutionParked(
            step=step,
            primitive=waits_on.primitive,
            key=waits_on.key,
            park_kind=self.park.kind,
            held_by=waits_on.holder,
            attempt=waits_on.attempts,
            place=waits_on.place,
            until=self.park.resume_at,
        )

    def keep(self, turns: tuple[ParkedHold, ...]) -> None:
        """Note the turns that are kept while a later gate of the same place is waited for: who leaves that leaves these."""
        if turns:
            self.park = replace(self.park, waiting_on=replace(self.park.waiting_on, turns=turns))
