"""One sentence that says how an execution stands: what an operator would ask first."""

from __future__ import annotations

import datetime as dt

from reactor_coord.engine.states import ExecutionStatus, ParkKind
from reactor_coord.runtime.contention import DEAD_WORKER

from . import particulars
from .shapes import ExecutionSummary, FailureView, HolderView, RollbackFailureView, WaitView, seconds_between
from .words import ordinal, span


def explain(
    summary: ExecutionSummary,
    *,
    wait: WaitView | None,
    failure: FailureView | None,
    rollback_failures: tuple[RollbackFailureView, ...],
    running_steps: tuple[str, ...],
    now: dt.datetime,
) -> str:
    """How this execution stands, in one sentence."""
    match summary.status:
        case ExecutionStatus.READY:
            return _ready_words(summary)
        case ExecutionStatus.RUNNING:
            where = f" in step {' and '.join(running_steps)}" if running_steps else ""
            blocks = particulars.of_running(summary.root)
            return f"Running{where} for {span(seconds_between(summary.started_at, now))}{blocks}."
        case ExecutionStatus.PARKED | ExecutionStatus.PAUSED:
            return waiting_words(wait, now) if wait else "Parked."
        case ExecutionStatus.ROLLING_BACK:
            return f"Rolling back after {_failed_words(failure)}."
        case ExecutionStatus.COMPLETED:
            return f"Completed in {span(summary.duration)}."
        case ExecutionStatus.HALTED:
            return f"Halted cleanly, nothing undone{_because(_reason(summary))}."
        case ExecutionStatus.FAILED:
            return f"Failed: {_failed_words(failure)}; {_state_of_rollback(failure, rollback_failures)}."
        case ExecutionStatus.CANCELLED:
            left = ", and nothing was undone" if summary.cancel_as_it_stands else ""
            return f"Cancelled{left}{_because(summary.reason)}."
        case ExecutionStatus.REVERTED:
            return f"Reverted: it had ended, and what it did was undone since{_because(summary.reason)}."
        case ExecutionStatus.ABORTED:
            return f"Aborted: the process that ran it died{_because(summary.reason)}. Resume it, or undo what it did."
        case ExecutionStatus.NEEDS_DEFINITION:
            return f"Its definition is missing: no reactor {summary.reactor} in this code. Deploy it, then resume."
        case _:
            return summary.status_label


def _state_of_rollback(failure: FailureView | None, left: tuple[RollbackFailureView, ...]) -> str:
    if not left:
        return "what was done has been rolled back"
    closed = failure.rollback_closed if failure is not None else ""
    state = f"rollback closed by hand ({closed}), left undone" if closed else "rollback incomplete"
    return f"{state}: {', '.join(f'{each.step} ({each.reason or each.kind})' for each in left)}"


def _ready_words(summary: ExecutionSummary) -> str:
    if summary.element_index is not None and summary.started_at is None:
        return "Ready: it begins when its fan-out lets it, or as soon as a worker takes its message."
    return "Ready: it runs as soon as a worker takes its message."


def _reason(summary: ExecutionSummary) -> str:
    more = particulars.of_reason(summary.id, summary.reason)
    return f"{summary.reason}: {more}" if more else summary.reason


def waiting_words(wait: WaitView, now: dt.datetime) -> str:
    """What a park waits for, who has it, how far in line, and when it looks again."""
    parts = [_waits_for(wait)]
    if _is_its_turn(wait):
        parts.append("it is its turn, as soon as a worker takes its message")
    elif _is_left_by_a_dead_worker(wait):
        parts.append(f"{DEAD_WORKER} has it until its lease is over")
    elif wait.holder is not None and wait.primitive in HELD:
        parts.append(_holder_words(wait.holder, now))
    elif wait.live and wait.primitive in HELD:
        parts.append("nobody has it now")
    parts += particulars.of_wait(wait, now)
    if wait.place and wait.primitive in HELD:
        parts.append(f"{ordinal(wait.place)} in line" + (f" of {wait.waiting}" if wait.waiting else ""))
    if wait.attempts and wait.primitive in HELD:
        parts.append(f"refused {wait.attempts} time{'s' if wait.attempts != 1 else ''}")
    if wait.next_check is not None:
        left = (wait.next_check - now).total_seconds()
        parts.append(_next_words(wait, left))
    return "; ".join(parts) + "."


HELD = frozenset({"lock", "semaphore"})
"""What has holders and a line."""


def _holder_words(holder: HolderView, now: dt.datetime) -> str:
    state = {"granted": "reserved for", "parked": "kept by"}.get(holder.state, "held by")
    lasting = f" for {span(seconds_between(holder.since, now))}" if holder.since else ""
    fence = f" (fence {holder.fence})" if holder.fence else ""
    return f"{state} {holder.name}{lasting}{fence}"


def _next_words(wait: WaitView, left: float) -> str:
    if wait.primitive == "rate_limit" or wait.kind == ParkKind.RETRY:
        return f"its time comes in {span(left)}" if left > 0 else "its time has come"
    if wait.kind == ParkKind.INTERRUPT:
        return f"given up in {span(left)} if nobody answers" if left > 0 else "nobody answered in time"
    return f"looks again in {span(left)} unless woken" if left > 0 else "due to look again now"


def _is_its_turn(wait: WaitView) -> bool:
    holder = wait.holder
    return holder is not None and holder.state == "granted" and holder.execution == wait.execution


def _is_left_by_a_dead_worker(wait: WaitView) -> bool:
    """Whether the execution itself holds the key: it waits, so an earlier claim of it does."""
    holder = wait.holder
    return (
        holder is not None and holder.state == "held" and bool(holder.execution) and holder.execution == wait.execution
    )


def _waits_for(wait: WaitView) -> str:
    where = f" at step {wait.path or wait.step}" if wait.step or wait.path else ""
    if wait.kind == ParkKind.RETRY:
        return f"Waiting to try again{where}{_because(wait.holder.name if wait.holder is not None else '')}"
    if wait.kind == ParkKind.INTERRUPT:
        return f"Waiting for an answer{where}"
    if wait.kind in (ParkKind.RESULT, ParkKind.FAN_OUT):
        return f"Waiting for results{where}"
    if wait.primitive == "ordered_lock":
        return f"Waiting for its turn in {wait.key}{where}"
    return f"Waiting for {wait.primitive.replace('_', ' ') or 'a hold'} {wait.key}{where}"


def _failed_words(failure: FailureView | None) -> str:
    if failure is None:
        return "a failure"
    message = failure.message.strip().splitlines()[0] if failure.message.strip() else "no message"
    where = f"step {failure.step}" if failure.step else "it"
    return f"{where} failed with {failure.type}: {message.rstrip('.')}"


def _because(reason: str) -> str:
    return f": {reason.rstrip('.')}" if reason else ""
