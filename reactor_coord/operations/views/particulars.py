"""What a sentence about one execution says beyond its row: looked up for that one alone, live where Redis can be asked.

Each kind of wait has its own: a slot's time and who comes before, a turn's position, how far the units are, which attempt
failed, what is asked. Where something cannot be had any more it is left out.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from uuid import UUID

from reactor_coord.engine.events import HoldRefused
from reactor_coord.engine.states import ParkKind, is_terminal
from reactor_coord.errors import NO_ANSWER
from reactor_coord.models import StepRun, TraceEvent
from reactor_coord.storage import elements

from . import live
from .shapes import WaitView, seconds_between
from .words import ordinal, span

PERIOD = "period"
"""The reason of whoever a period kept from beginning."""


def of_wait(wait: WaitView, now: dt.datetime) -> list[str]:
    """The phrases that belong to this wait, in their order."""
    find = BY_KIND.get(wait.kind) or BY_PRIMITIVE.get(wait.primitive)
    try:
        return find(wait, now) if find is not None else []
    except NO_ANSWER:
        return []


def of_running(root: str) -> str:
    """What its process blocks for, if it does."""
    return "".join(
        f"; its process stands in line for {primitive} {key}, held by {holder.name}"
        for primitive, key, holder in live.blocked(root)
    )


def of_reason(execution: str, reason: str) -> str:
    """Who had the bucket, of an execution that a period kept out; else nothing."""
    if reason != PERIOD:
        return ""
    refusals = TraceEvent.objects.filter(
        execution_id=execution, kind=HoldRefused.kind, primitive=PERIOD, step=""
    ).order_by("-pk")
    refused = refusals.first()
    if refused is None:
        return ""
    told = HoldRefused.from_data(refused.data, key=refused.key)
    return f"{told.key} has run in {told.bucket or 'this period'}, by {told.held_by}"


def _semaphore(wait: WaitView, now: dt.datetime) -> list[str]:
    hold = live.hold(wait.key, "semaphore")
    if hold is None or hold.slots_used is None:
        return []
    return [f"{hold.slots_used} of {hold.limit or hold.slots_used} slots are taken"]


def _rate_limit(wait: WaitView, now: dt.datetime) -> list[str]:
    limit = live.limit_of(wait.key)
    if limit is None:
        return []
    full = [f"{each.count} of {each.limit} in {span(each.seconds)}" for each in limit.windows]
    before = next((at for at, slot in enumerate(limit.planned) if slot.execution == wait.execution), None)
    counted = [f"the limit has counted {' and '.join(full)}"] if full else []
    after = f"after {before} other{'s' if before != 1 else ''}" if before else "the next"
    planned = "" if before is None else f"it has a slot of its own, {after}"
    return [*counted, *([planned] if planned else [])]


def _ordered_lock(wait: WaitView, now: dt.datetime) -> list[str]:
    line = live.ordered_line(wait.key)
    own = next((each for each in line.in_flight if each.execution == wait.execution), None) if line else None
    if line is None or own is None:
        return []
    head = line.in_flight[0]
    if own is head and own.state == "running":  # it waits: so that is an earlier claim of it
        return [f"it has position {own.position}, which its dead worker has until its lease is over"]
    if own is head:
        return [f"it has position {own.position}, and it is its turn"]
    words = f"it has position {own.position}, position {line.next} is next: {head.state}, {head.name}"
    over = seconds_between(now, head.passed_over)
    return [
        words,
        *([f"which is passed over in {span(over)} if it shows no sign of life"] if over and over > 0 else []),
    ]


def _results(wait: WaitView, now: dt.datetime) -> list[str]:
    counts = elements.counts(UUID(wait.execution), wait.step)
    total = sum(counts.values())
    if not total:
        return []
    done = sum(count for status, count in counts.items() if is_terminal(status))
    at_work = ", ".join(
        f"{count} {status.replace('_', ' ')}" for status, count in sorted(counts.items()) if not is_terminal(status)
    )
    return [f"{done} of {total} {'is' if total == 1 else 'are'} over" + (f" ({at_work})" if at_work else "")]


def _retry(wait: WaitView, now: dt.datetime) -> list[str]:
    run = _run_of(wait)
    error = run.why_failed if run is not None else None
    if run is None or error is None:
        return []
    message = error.message.strip().splitlines()
    said = f": {message[0].rstrip('.')}" if message else ""
    return [f"its {ordinal(run.attempts)} attempt failed with {error.type}{said}"]


def _question(wait: WaitView, now: dt.datetime) -> list[str]:
    run = _run_of(wait)
    if run is None:
        return []
    asked = f"asked {span(seconds_between(run.started_at, now))} ago under {run.correlation_id!r}"
    return [asked, *(["no time is set"] if wait.next_check is None else [])]


def _run_of(wait: WaitView) -> StepRun | None:
    found = StepRun.objects.filter(execution_id=wait.execution, step=wait.step)
    return found.only("attempts", "error", "started_at", "correlation_id", "execution_id", "step").first()


Find = Callable[[WaitView, dt.datetime], list[str]]

BY_KIND: Mapping[str, Find] = {
    ParkKind.RETRY: _retry,
    ParkKind.INTERRUPT: _question,
    ParkKind.RESULT: _results,
    ParkKind.FAN_OUT: _results,
}
BY_PRIMITIVE: Mapping[str, Find] = {
    "semaphore": _semaphore,
    "rate_limit": _rate_limit,
    "ordered_lock": _ordered_lock,
}
