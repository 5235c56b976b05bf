"""`interrupt`: an execution pauses until somebody answers, for minutes or for days, and frees its worker and its holds.

Its question is a step run that waits under a correlation id; an answer is one conditional change of that row, validated
first, so that of two exactly one counts. What the reactor held is given back at the pause and competed for anew.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from reactor_coord.engine.delays import CLAIMS
from reactor_coord.engine.events import OperatorActed, StepStarted
from reactor_coord.engine.records import Wait
from reactor_coord.engine.states import ParkKind, StepStatus
from reactor_coord.engine.step_transitions import StepMove
from reactor_coord.errors import ExecutionConflict
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.results import Failure, Success
from reactor_coord.runtime import steps, units
from reactor_coord.runtime.dispatch import send
from reactor_coord.runtime.parking import Park, Parked
from reactor_coord.storage import clock, codec, journal, pauses, store

if TYPE_CHECKING:
    from reactor_coord.declare.definition import ReactorDefinition, StepDefinition
    from reactor_coord.runtime.tree import Frame

TAKEN_UP_SECONDS = 2.0
"""For how long an answer waits for an execution that was taken up in vain to pause again, before it is left for the next look."""

FAR = datetime(9999, 1, 1, tzinfo=UTC)
"""A pause without a timeout."""


def perform(frame: Frame, step: StepDefinition) -> None:
    """Ask, and pause; or take the answer, or find that it did not come in time."""
    attempt = steps.Attempt(frame, step)
    frame.tree.lease.check()
    run = attempt.run
    if run.status == StepStatus.RUNNING and run.correlation_id:
        given = run.result
        settlement = attempt.settle(Success(codec.decode(given) if given is not None else None))
        run.result = given  # as it was kept: with its redacted fields marked
        return steps.conclude(frame, step, attempt.close(settlement))
    if run.status != StepStatus.WAITING:
        early = attempt.prepare(guards=False)
        if early is not None:
            return steps.conclude(frame, step, attempt.close(early))
        refused = _refusal(frame, step, run)
        if refused is not None:
            failed = attempt.settle(Failure(refused, retryable=False), began=False)
            return steps.conclude(frame, step, attempt.close(failed))
        store.move_step(run, StepMove.WAIT)
        run.started_at = clock.present()
        run.arguments = steps.encode_arguments(attempt.arguments, step.redacted)
        frame.emit(StepStarted(step=step.name, attempt=1))
        frame.tree.write(run)  # here alone: an answer may come to the row while a worker looks at it
    ends_at = _ends_at(step, run)
    if clock.present() >= ends_at:
        late = f"nobody answered {run.correlation_id!r} within {step.options['timeout']:g} s"
        return steps.conclude(frame, step, attempt.close(attempt.settle(Failure(TimeoutError(late)), began=False)))
    asked = Wait(step=step.name, reactor=frame.definition.label, correlation_id=run.correlation_id)
    parked = Parked(Park(ParkKind.INTERRUPT, ends_at, step.name, asked))
    frame.emit(parked.event(step.name))
    raise parked


def _ends_at(step: StepDefinition, run: StepRun) -> datetime:
    timeout = step.options.get("timeout")
    return run.started_at + timedelta(seconds=timeout) if timeout is not None and run.started_at else FAR


def _refusal(frame: Frame, step: StepDefinition, run: StepRun) -> Exception | None:
    """Name the question; why it cannot be asked, if it cannot."""
    reference = step.options.get("correlation_id")
    try:
        name = str(reference.resolve(frame)) if reference is not None else str(frame.execution.id)
    except Exception as error:  # noqa: BLE001 - whatever the reference's map raises fails the step
        return error
    if not pauses.is_name(name):
        return ValueError(
            f"{frame.definition.label}.{step.name}: a correlation id has 1 to {pauses.LONGEST_NAME} characters, without NUL and "
            f"lone surrogates; this one has {len(name)}: {name[:60]!a}"
        )
    if pauses.is_waited_for(name, _root_reactor(frame)):
        return ExecutionConflict(
            f"{frame.definition.label}.{step.name} cannot wait for {name!r}: another execution does already",
            execution_id=str(frame.execution.id),
            status=frame.tree.root.status,
            verb="pause",
        )
    run.correlation_id = name
    return None


def _root_reactor(frame: Frame) -> str:
    return frame.tree.root.reactor


# ---- answering


def answer(definition: ReactorDefinition, correlation_id: str, step: str | None, payload: Any) -> Execution:
    """Answer the question of that name among the executions of this reactor; returns the root's row.

    Raises `ExecutionConflict` when nobody waits for it (any more, or yet), `InputValidationError` for a payload it does
    not accept; then nothing has changed.
    """
    run = pauses.find(correlation_id, definition.name, step) if pauses.is_name(correlation_id) else None
    if run is None:
        where = f" at step {step!r}" if step else ""
        raise ExecutionConflict(
            f"No execution of {definition.label} waits for {correlation_id!r}{where} now: it was answered, is over, or has "
            f"not come to its question yet",
            execution_id="",
            status="",
            verb="be resumed",
        )
    return answer_run(run, payload)


def answer_run(run: StepRun, payload: Any, *, reason: str = "", actor: str = "") -> Execution:
    """Answer one waiting question: validated, then claimed, then its execution made ready. One claim, one effect."""
    definition = units.definition_of(run.execution.reactor)
    step = definition.step(run.step)
    value = step.options["payload"].validate(payload, f"the answer to {definition.label}.{run.step}")
    root = store.load(run.execution.root_id or run.execution.id)
    assert root is not None
    told = OperatorActed(
        step=run.step, verb="resume", correlation_id=run.correlation_id or "", reason=reason, actor=actor
    )
    note = journal.note(root, told)
    encoded = codec.encode(value, step.options["payload"].redacted)
    if not _claim(run, encoded, root, journal.row(note), _ends_at(step, run)):
        raise ExecutionConflict(
            _why_refused(run),
            execution_id=str(root.id),
            status=root.status,
            verb="be resumed",
        )
    journal.publish(note)
    store.on_commit(lambda: send(str(root.id), root.queue))
    return root


def _why_refused(run: StepRun) -> str:
    if pauses.is_open(run):
        return f"{run.correlation_id!r} could not be answered while a worker looks at it: answer again, if it is still open"
    return f"{run.correlation_id!r} was answered already, or its execution is over"


def _claim(run: StepRun, value: Any, root: Execution, note: TraceEvent, ends_at: datetime) -> bool:
    """Claim the question; False when it is no longer open.

    A message too many (a unit that ended meanwhile, a repeated one) takes a paused execution up for a moment, which finds
    its question open and pauses again: an answer that falls into that moment comes again. Where that worker is dead, its
    lease runs for long still: the answer is left for the next look, unless that might find the question overdue first.
    """
    deadline, tries = time.monotonic() + TAKEN_UP_SECONDS, 0
    while not pauses.claim_answer(run, value, root.id, units.look_at(), note):
        if not pauses.is_open(run):
            return False
        if time.monotonic() > deadline:
            is_in_time = clock.present() + timedelta(seconds=TAKEN_UP_SECONDS) < ends_at
            return is_in_time and pauses.leave_answer(run, value, root.id, note)
        tries += 1
        time.sleep(CLAIMS.after(tries))
    return True
