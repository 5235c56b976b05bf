"""What escapes the runner outside a body is settled by the process that met it: told as what it was, never as a dead worker.

An outage of the database or of Redis gives the row back, to be tried again. Any other error fails the step under way, or the
reactor, with that error as its cause. The tree is read anew from its rows first: what this process believed of it, and could
not write, is forgotten.
"""

from __future__ import annotations

import logging
from datetime import timedelta

from django.db import InterfaceError, OperationalError
from django.db.models import F

from reactor_coord.engine import transitions
from reactor_coord.engine.delays import OUTAGES as OUTAGE_LOOKS
from reactor_coord.engine.records import Wait
from reactor_coord.engine.settlement import Settlement
from reactor_coord.engine.states import ExecutionStatus, StepStatus
from reactor_coord.errors import CoordinationUnavailable
from reactor_coord.models import Execution
from reactor_coord.runtime import deaths, steps
from reactor_coord.runtime.gates import Ending
from reactor_coord.runtime.lease import Lease
from reactor_coord.runtime.tree import Frame, Tree, is_rolling_back, root_frame
from reactor_coord.storage import clock, store

logger = logging.getLogger("reactor_coord")

OUTAGES = (OperationalError, InterfaceError, CoordinationUnavailable)
"""The infrastructure could not be reached: no fault of the work."""


def give_back(frame: Frame, error: BaseException) -> bool:
    """After an outage have another process, or this one later, take the row up. False: not possible.

    A body whose end could not be written counts as cut off, as if its process had died: it may have had its effect.
    """
    tree = frame.tree
    if not tree.parks and not is_rolling_back(tree):
        return False  # an in-process run has no worker that would go on: its caller gets the error
    now, before = clock.present(), tree.waited or Wait()
    looks = before.outage_looks + 1
    look_at = now + timedelta(seconds=OUTAGE_LOOKS.after(looks))
    waits_on = Wait(
        reactor=frame.definition.label,
        holder=f"{type(error).__name__}: {error}",
        until=look_at,
        outage_since=before.outage_since or now,
        outage_looks=looks,
    )
    cut_off = F("workers_lost") + int(tree.is_body_unwritten)
    try:
        return store.give_back(
            tree.root, tree.lease.token, transitions.defer(look_at, waits_on, cut_off), waits_on.holder
        )
    except OUTAGES as still:
        logger.warning("event=reactor_coord.outage_not_noted execution=%s error=%s", tree.id, still)
        return False


def leave_unread(row: Execution, lease: Lease, label: str, error: Exception) -> None:
    """An error before the tree was read: after an outage the row waits on as it did, else it is aborted, saying why.

    Nothing of it has run in this process, so nothing is charged to it.
    """
    logger.error("event=reactor_coord.not_taken_up execution=%s error=%s", row.id, type(error).__name__, exc_info=error)
    why = f"{type(error).__name__}: {error}"
    look_at = clock.present() + timedelta(seconds=OUTAGE_LOOKS.after(1))
    try:
        if not isinstance(error, OUTAGES):
            store.give_up(row, lease.token, aborting=True, reason=why, died=False)
        elif row.status == ExecutionStatus.ROLLING_BACK:
            waits_on = Wait(reactor=label, holder=why, until=look_at)
            store.give_back(row, lease.token, transitions.defer(look_at, waits_on, F("workers_lost")), why)
        else:
            store.give_back(row, lease.token, transitions.put_back(look_at), why)
    except OUTAGES as still:
        logger.warning("event=reactor_coord.outage_not_noted execution=%s error=%s", row.id, still)


def abort(frame: Frame, error: Exception) -> None:
    """Leave to an operator what cannot be settled: an error while another one is. What is held is given back."""
    tree = frame.tree
    tree.give(list(tree.holds), Ending.ABANDONED)
    try:
        why = f"{type(error).__name__}: {error}"
        store.give_up(tree.root, tree.lease.token, aborting=True, reason=why, trace=list(tree.trace), died=False)
    except OUTAGES as still:
        logger.warning("event=reactor_coord.outage_not_noted execution=%s error=%s", tree.id, still)


def fail(frame: Frame, error: Exception) -> Frame | None:
    """Turn the tree to rolling back over an error outside every body; returns its frame, or None where it is another's by now.

    The transaction that writes this is the first since the error, so nothing of what could not be written stands in it.
    """
    fresh = _read_anew(frame)
    if fresh is None or is_rolling_back(fresh.tree):
        return fresh
    at_work = deaths.at_work(fresh)
    settlement = Settlement(StepStatus.FAILED, error=error, began=False, retryable=False)
    if at_work is None:
        steps.turn_back(fresh, "", settlement, fresh.legible_inputs, fresh.definition.schema.redacted)
        fresh.tree.save()
        return fresh
    below, step = at_work
    deaths.go_on_down_to(below)
    attempt = steps.Attempt(below, step)
    known = frame.tree.runs.get(below.execution.id, {}).get(step.name)
    if known is not None:  # an attempt that began, and whose end could not be written
        attempt.run.attempts = max(attempt.run.attempts, known.attempts)
        attempt.run.arguments = attempt.run.arguments or known.arguments
    attempt.close(settlement)
    return fresh


def _read_anew(frame: Frame) -> Frame | None:
    tree = frame.tree
    row = store.load(tree.root.id)
    if row is None or row.lease_token != tree.lease.token:
        return None
    fresh = Tree.load(row, tree.lease, frame.definition)
    fresh.holds, tree.holds = tree.holds, []
    return root_frame(fresh, frame.definition)
