"""Ending a tree as it stands: its root, its composed children and its open steps, in one transaction; nothing is undone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from reactor_coord.engine import transitions
from reactor_coord.engine.events import Event, ExecutionCancelled, StepCancelled
from reactor_coord.engine.states import TERMINAL, StepStatus
from reactor_coord.engine.step_transitions import OPEN, StepMove
from reactor_coord.models import Execution, StepRun
from reactor_coord.models.choices import values
from reactor_coord.storage import clock, journal
from reactor_coord.storage.checkpoint import insert_trace
from reactor_coord.storage.transitions import apply, apply_all, apply_to_steps

_BEGUN = [each.value for each in OPEN if each is not StepStatus.PENDING]


@dataclass(frozen=True, slots=True)
class Stopped:
    """What was ended: the notes to publish, and the steps that were open, each with its execution."""

    notes: list[journal.Note]
    steps: list[StepRun]


def stop_tree(
    row: Execution,
    reason: str,
    *,
    token: str = "",
    asked: Sequence[Event] = (),
    unchanged_since: datetime | None = None,
) -> Stopped | None:
    """End the tree of this root, and write that with what was `asked`; None when the row was claimed or written meanwhile.

    `token`: the lease under which the caller runs it; `unchanged_since` as of `apply`.
    """
    using, present = clock.alias(), clock.present()
    with transaction.atomic(using=using):
        stop = transitions.stop(present, reason)
        if not apply(row, stop, unchanged_since=unchanged_since, token=token):
            return None
        notes = [journal.note(row, event) for event in asked]
        steps = _close_steps(using, row, present)
        notes += [journal.note(run.execution, StepCancelled(step=run.step, reason=reason)) for run in steps]
        ended = ExecutionCancelled(reason=reason, as_it_stands=True)
        notes += [journal.note(each, ended) for each in (*_close_children(using, row, present), row)]
        insert_trace(using, [journal.row(note) for note in notes])
    return Stopped(notes, steps)


def _close_steps(using: str, root: Execution, present: datetime) -> list[StepRun]:
    begun = StepRun.objects.using(using).filter(execution__root=root.pk, status__in=_BEGUN)
    steps = list(begun.select_related("execution"))
    apply_to_steps(begun, StepMove.CLOSE_CANCELLED, finished_at=present)
    return steps


def _close_children(using: str, root: Execution, present: datetime) -> Iterator[Execution]:
    below = Execution.objects.using(using).filter(root=root.pk).exclude(pk=root.pk).exclude(status__in=values(TERMINAL))
    children = list(below.only(*journal.COLUMNS).order_by("-id"))
    apply_all(below, transitions.close(present, failed=False))
    return iter(children)
