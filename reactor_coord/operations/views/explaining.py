"""One sentence that says how an execution stands: what an operator would ask first."""

from __future__ import annotations

import datetime as dt

from reactor_coord.engine.states import ExecutionStatus, ParkKind

from .shapes import ExecutionSummary, FailureView, RollbackFailureView, WaitView, seconds_between


def span(seconds: float | None) -> str:
    """A length of time as people say it: `0.4 s`, `12 s`, `3 min 5 s`, `2 h 4 min`, `5 d 1 h`."""
    if seconds is None:
        return "-"
    seconds = max(seconds, 0.0)
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for small, small_name, large, large_name in ((1, "s", 60, "min"), (60, "min", 3600, "h"), (3600, "h", 86400, "d")):
        following = {60: 3600, 3600: 86400, 86400: float("inf")}[large]
        if seconds < large:
            return f"{seconds / small:.0f} {small_name}"
        if seconds < following:
            whole, rest = divmod(int(seconds), large)
            return f"{whole} {large_name} {rest // small} {small_name}" if rest // small else f"{whole} {large_name}"
    return f"{seconds:.0f} s"


def ordinal(place: int) -> str:
    """`1st`, `2nd`, `3rd`, `11th`."""
    if 10 <= place % 100 <= 20:
        return f"{place}th"
    return f"{place}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(place % 10, 'th') }"


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
            return "Ready: it runs as soon as a worker takes its message."
        case ExecutionStatus.RUNNING:
            where = f" in step {' and '.join(running_steps)}" if running_steps else ""
            return f"Running{where} for {span(seconds_between(summary.started_at, now))}."
        case ExecutionStatus.PARKED | ExecutionStatus.PAUSED:
            return waiting_words(wait, now) if wait else "Parked."
        case ExecutionStatus.ROLLING_BACK:
            return f"Rolling back after {_failed_words(failure)}."
        case ExecutionStatus.COMPLETED:
            return f"Completed in {span(summary.duration)}."
        case ExecutionStatus.HALTED:
            return f"Halted cleanly, nothing undone{_because(summary.reason)}."
        case ExecutionStatus.FAILED:
            rest = (
                f"rollback incomplete: {', '.join(f'{each.step} ({each.reason or each.kind})' for each in rollback_failures)}"
                if rollback_failures
                else "what was done has been rolled back"
            )
            return f"Failed: {_failed_words(failure)}; {rest}."
        case ExecutionStatus.CANCELLED:
            return f"Cancelled{_because(summary.reason)}."
        case ExecutionStatus.ABORTED:
            return f"Aborted: the process that ran it died{_because(summary.reason)}. Resume it, or undo what it did."
        case ExecutionStatus.NEEDS_DEFINITION:
            return f"Its definition is missing: no reactor {summary.reactor} in this code. Deploy it, then retry."
        case _:
            return summary.status_label


def waiting_words(wait: WaitView, now: dt.datetime) -> str:
    """What a park waits for, who has it, how far in line, and when it looks again."""
    parts = [_waits_for(wait)]
    if _is_its_turn(wait):
        parts.append("it is its turn, as soon as a worker takes its message")
    elif wait.holder is not None:
        state = {"granted": "reserved for", "parked": "kept by"}.get(wait.holder.state, "held by")
        lasting = f" for {span(seconds_between(wait.holder.since, now))}" if wait.holder.since else ""
        parts.append(f"{state} {wait.holder.name}{lasting}")
    if wait.place:
        parts.append(f"{ordinal(wait.place)} in line" + (f" of {wait.waiting}" if wait.waiting else ""))
    if wait.attempts:
        parts.append(f"refused {wait.attempts} time{'s' if wait.attempts != 1 else ''}")
    if wait.next_check is not None:
        left = (wait.next_check - now).total_seconds()
        parts.append(_next_words(wait, left))
    return "; ".join(parts) + "."


def _next_words(wait: WaitView, left: float) -> str:
    if wait.primitive == "rate_limit" or wait.kind == ParkKind.RETRY:
        return f"its time comes in {span(left)}" if left > 0 else "its time has come"
    return f"looks again in {span(left)} unless woken" if left > 0 else "due to look again now"


def _is_its_turn(wait: WaitView) -> bool:
    holder = wait.holder
    return holder is not None and holder.state == "granted" and holder.execution == wait.execution


def _waits_for(wait: WaitView) -> str:
    where = f" at step {wait.path or wait.step}" if wait.step or wait.path else ""
    if wait.kind == ParkKind.RETRY:
        return f"Waiting to try again{where}"
    if wait.kind == ParkKind.INTERRUPT:
        return f"Waiting for an answer{where}"
    if wait.kind in (ParkKind.RESULT, ParkKind.FAN_OUT):
        return f"Waiting for results{where}"
    return f"Waiting for {wait.primitive.replace('_', ' ') or 'a hold'} {wait.key}{where}"


def _failed_words(failure: FailureView | None) -> str:
    if failure is None:
        return "a failure"
    message = failure.message.strip().splitlines()[0] if failure.message.strip() else "no message"
    where = f"step {failure.step}" if failure.step else "it"
    return f"{where} failed with {failure.type}: {message.rstrip('.')}"


def _because(reason: str) -> str:
    return f": {reason.rstrip('.')}" if reason else ""
