"""In which order a reactor's steps are rolled back, from nothing but their states.

The same question is asked when a failure has just happened and when a worker takes up a rollback that another one
began: what is done already does not come again, so that an undo happens once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from reactor_coord.engine.states import StepStatus
from reactor_coord.engine.step_transitions import OPEN


class Cleanup(StrEnum):
    """What is done to one step."""

    COMPENSATE = "compensate"
    UNDO = "undo"
    DESCEND = "descend"


@dataclass(frozen=True, slots=True)
class StepState:
    """What the order depends on. `began`: a body of it has begun, or may have; `is_nested`: its work is a child execution's."""

    name: str
    status: StepStatus
    completion_order: int | None = None
    began: bool = False
    is_nested: bool = False
    is_reported: bool = False


UNFINISHED = frozenset(
    {StepStatus.RUNNING, StepStatus.WAITING, StepStatus.RETRYING, StepStatus.FAILED, StepStatus.DISPATCHED}
)


def rollback_order(states: Iterable[StepState]) -> list[tuple[str, Cleanup]]:
    """Return what is still to be cleaned up: the failing step first, then completed steps, newest first."""
    states = list(states)
    unfinished = sorted(
        (s for s in states if _needs_cleanup(s)), key=lambda s: s.is_nested
    )  # what failed before what waits
    first = [(s.name, _cleanup_of_unfinished(s)) for s in unfinished]
    done = [s for s in states if s.status == StepStatus.SUCCEEDED]
    done.sort(key=lambda s: s.completion_order or 0, reverse=True)
    return first + [(s.name, Cleanup.DESCEND if s.is_nested else Cleanup.UNDO) for s in done]


def _needs_cleanup(state: StepState) -> bool:
    if state.is_nested:
        return state.status in UNFINISHED
    return state.began and not state.is_reported and state.status in {*OPEN, StepStatus.FAILED}


def _cleanup_of_unfinished(state: StepState) -> Cleanup:
    return Cleanup.DESCEND if state.is_nested else Cleanup.COMPENSATE
