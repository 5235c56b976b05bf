"""One step, from its guard to its checkpoint: the order of `semantics` 1, in one place.

Resolve, validate, guard; take what it declares; run the body; settle; write it all in one transaction; give back. A
retry goes through all of it again. What a nested reactor does instead of a body is in `nested`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, router, transaction

from reactor_coord import probes
from reactor_coord.engine import events, records, transitions
from reactor_coord.engine.plan import is_last
from reactor_coord.engine.records import HoldState
from reactor_coord.engine.settlement import Settlement, as_result, settle
from reactor_coord.engine.states import ExecutionStatus, ParkKind, StepStatus
from reactor_coord.engine.step_transitions import OUTCOMES, StepMove
from reactor_coord.errors import LeaseLost, ReactorCoordError, ReactorFailed
from reactor_coord.models import Execution
from reactor_coord.results import Decided, Failure, Result, Success
from reactor_coord.runtime import gates, losses, questions, surroundings, verdicts
from reactor_coord.runtime.arguments import place_of_step
from reactor_coord.runtime.context import StepContext
from reactor_coord.runtime.copies import private_values
from reactor_coord.runtime.parking import Park, Parked
from reactor_coord.runtime.recollection import Recollection
from reactor_coord.storage import clock, codec

if TYPE_CHECKING:
    from reactor_coord.declare.definition import StepDefinition
    from reactor_coord.declare.step import Step
    from reactor_coord.models import StepRun
    from reactor_coord.runtime.tree import Frame


class _TakeBack(Exception):
    """Undo the transaction of an atomic body that did not succeed."""

    def __init__(self, settlement: Settlement) -> None:
        super().__init__()
        self.settlement = settlement


def perform(frame: Frame, step: StepDefinition) -> None:
    """Run the step to its end; raises `StepFailed`, `Halted` or `Parked` where that is not a value."""
    while True:
        settlement = Attempt(frame, step).make()
        if settlement.retry_in is None:
            return conclude(frame, step, settlement)
        wait_to_retry(frame, step, settlement.retry_in)


def wait_to_retry(frame: Frame, step: StepDefinition, seconds: float) -> None:
    """Let the delay before the next attempt pass: parked in a worker, asleep in process."""
    if not frame.tree.parks:
        return time.sleep(seconds)
    resume_at = clock.present() + timedelta(seconds=seconds)
    waits_on = records.Wait(step=step.name, reactor=frame.definition.label)
    parked = Parked(Park(ParkKind.RETRY, resume_at, step.name, waits_on, is_timed=True))
    frame.emit(parked.event(step.name))
    raise parked


def conclude(frame: Frame, step: StepDefinition, settlement: Settlement) -> None:
    """Turn a settlement that is no value into its signal."""
    if settlement.status == StepStatus.FAILED and not settlement.contained:
        raise verdicts.StepFailed(frame, step.name, settlement)
    if settlement.halts:
        raise verdicts.Halted(settlement.value, settlement.reason)


def ending_of(settlement: Settlement) -> gates.Ending:
    """How a settled step's work ended, for what was held around it."""
    return gates.Ending.HALTED if settlement.halts else gates.Ending(settlement.status.value)


class Attempt:
    """One attempt at one step."""

    def __init__(self, frame: Frame, step: StepDefinition) -> None:
        self.frame = frame
        self.step = step
        self.tree = frame.tree
        self.run: StepRun = frame.run(step)
        self.arguments: dict[str, Any] = {}
        self.kept: list[gates.Hold] = []
        """What calls inside the body leave to be given back with what the step holds."""

    def make(self) -> Settlement:
        """Make it, and leave its settlement written and nothing of its own held."""
        self.tree.lease.check()
        early = self.prepare()
        if early is not None:
            return self.close(early)
        return self.run_protected(self._run_body)

    def prepare(self, *, guards: bool = True) -> Settlement | None:
        """Do what comes before coordination; a settlement when the step goes no further."""
        refusal = questions.ask_first(self, guards=guards)
        return self.refuse(refusal) if refusal is not None else None

    def refuse(self, refusal: Result) -> Settlement:
        """Settle an attempt that may not begin. Where an earlier one began, the step fails: what that did is cleaned up."""
        if not self.may_have_begun:
            return self.settle(refusal, began=False)
        return self.settle(Failure(not_tried_again(self.frame, self.run, refusal), retryable=False))

    @property
    def may_have_begun(self) -> bool:
        """Whether a body of this step has begun, or may have: a process died in it."""
        return self.step.kind == "step" and self.run.attempts > 0

    @property
    def has_begun(self) -> bool:
        """Whether a body of this step is known to have begun; of a death it is not known."""
        return self.run.attempts > self.run.workers_lost

    @property
    def is_first_look(self) -> bool:
        """Whether nothing has been asked yet, or waited for."""
        return not self.has_begun and self.run.contention_attempts == 0

    def place(self) -> gates.Place:
        """Where the step asks for what it declares; there it is asked once more whether it runs, if it waits."""
        place = place_of_step(self.frame, self.step, self.arguments)
        if self.has_begun or not questions.asks_anything(self.step):
            return place
        has_waited = self.run.contention_attempts > 0
        return replace(place, ask_again=lambda: questions.ask_again(self), waited=has_waited)

    def run_protected(self, body: Callable[[], Settlement]) -> Settlement:
        """Run `body` under what the step declares."""
        place = self.place()
        try:
            holds = self.tree.hold(gates.acquire(place))
        except Parked as parked:
            self.wait(parked)
            raise
        except Decided as decided:
            return self.close(self.refuse(decided.result))
        except ReactorCoordError as error:
            return self.close(self.refuse(Failure(error, retryable=False)))
        self._note_holds(holds, place)
        ending = gates.Ending.ABANDONED
        try:
            refusal = self.refusal_of_lost()
            settlement = body() if refusal is None else self.close(self.settle(refusal, began=self.has_begun))
            ending = ending_of(settlement)
            place.notes[gates.COMES_AGAIN_IN] = settlement.retry_in or 0.0
            holds += self.kept
            self.kept = []
            if self._is_compensated_after(settlement):
                self.tree.held_for_cleanup[(self.frame.execution.id, self.step.name)] = holds
                holds = []
            return settlement
        finally:
            self.tree.give(holds + self.kept, ending)

    def _is_compensated_after(self, settlement: Settlement) -> bool:
        """Whether a cleanup of this very step follows, under what it holds."""
        step_class = self.step.step_class
        has_failed = settlement.status == StepStatus.FAILED and settlement.began
        return has_failed and step_class is not None and step_class.has_compensate

    def instance(
        self, arguments: Mapping[str, Any] | None = None, unresolved: Mapping[str, Exception] | None = None
    ) -> Step:
        """The step's object with its arguments, or with these."""
        assert self.step.step_class is not None
        context = StepContext(
            self.frame,
            self.step.name,
            attempt=self.run.attempts + 1,
            contention_attempts=self.run.contention_attempts,
        )
        context.kept = self.kept
        given = private_values(self.arguments if arguments is None else arguments)
        return self.step.step_class.bind(given, context, unresolved)

    @property
    def _is_atomic(self) -> bool:
        return bool(self.step.step_class and self.step.step_class.atomic)

    def _run_body(self) -> Settlement:
        instance = self.instance()
        self.tree.announce(self.frame, self.step)
        self.run.attempts += 1
        self.run.started_at = self.run.started_at or clock.present()
        self.frame.emit(events.StepStarted(step=self.step.name, attempt=self.run.attempts))
        return self._run_atomic(instance) if self._is_atomic else self.close(self._call(instance))

    def _run_atomic(self, instance: Step) -> Settlement:
        before = Recollection(self.frame, self.run)
        try:
            with transaction.atomic(using=router.db_for_write(Execution)):
                settlement = self._call(instance)
                if settlement.status not in {StepStatus.SUCCEEDED, StepStatus.SKIPPED}:
                    raise _TakeBack(settlement)
                return self.close(settlement)
        except _TakeBack as back:
            return self.close(back.settlement)
        except DatabaseError as error:  # the body broke its transaction, or a deferred constraint its commit
            before.restore()
            return self.close(self.settle(Failure(error)))

    def _call(self, instance: Step) -> Settlement:
        probes.reached("body.before")
        result: Result
        try:
            with surroundings.of_body(instance.context):
                result = as_result(instance.run())
        except Decided as decided:
            result = as_result(decided.result)
        except BaseException as error:
            if verdicts.ends_the_process(error, in_worker=self.tree.parks) or isinstance(error, (Parked, LeaseLost)):
                raise
            result = Failure(error, retryable=not verdicts.is_interruption(error))
        probes.reached("body.after")
        return self.settle(self._unless_lost(result))

    def _unless_lost(self, result: Result) -> Result:
        """A success under a lost hold is a failure; the error of a body that failed by itself stays."""
        lost = self.refusal_of_lost(began=True)
        return result if lost is None or isinstance(result, Failure) else lost

    def refusal_of_lost(self, *, began: bool = False) -> Failure | None:
        """Refuse to begin, or to succeed, under a hold that is known to be lost. A retry takes only the step's own again."""
        lost = losses.fatal(self.tree.holds)
        if not lost:
            return None
        error = losses.error(lost, self.frame.definition.label, self.step.name, began=began)
        path = f"{self.frame.execution.id}/{self.step.name}"
        return Failure(error, retryable=began and losses.is_kept_by(lost, path))

    def settle(self, result: Result, *, began: bool = True) -> Settlement:
        """Decide what a result means; a value that cannot be stored is a failure."""
        attempts = self.run.attempts
        settlement = settle(result, began=began, retry=self.step.retry, attempts=attempts, chance=random.random())
        if settlement.status not in {StepStatus.SUCCEEDED, StepStatus.SKIPPED} or settlement.value is None:
            return settlement
        try:
            self.run.result = codec.encode(settlement.value)
        except ReactorCoordError as error:
            return settle(Failure(error, retryable=False), began=began, retry=None, attempts=attempts, chance=0)
        return settlement

    def settle_value(self, value: Any) -> Settlement:
        """Decide on a nested reactor's value: lost holds around it count as for a body."""
        return self.settle(self._unless_lost(Success(value)))

    def close(self, settlement: Settlement) -> Settlement:
        """Write the settlement: step run, trace, and the execution's end where nothing follows. One transaction."""
        from reactor_coord.runtime import finish

        record(self.frame, self.step, self.run, settlement, self.arguments)
        self._point_at_next(settlement)
        if settlement.halts:
            finish.fold_halt(self.frame, self.run.result, settlement.reason)
        elif self._ends_the_tree(settlement):
            finish.fold_completion(self.frame)
        self.tree.save()
        if not settlement.began:  # a grant that it waited for is the next one's, at once
            finish.leave_lines(self.tree)
        return settlement

    def _point_at_next(self, settlement: Settlement) -> None:
        if settlement.status == StepStatus.RETRYING:
            self.tree.point_at((self.frame, self.step))
        elif (settlement.status == StepStatus.FAILED and not settlement.contained) or settlement.halts:
            self.tree.point_at(None)
        else:
            self.frame.point_at_next()

    def _ends_the_tree(self, settlement: Settlement) -> bool:
        is_plain = settlement.status in {StepStatus.SUCCEEDED, StepStatus.SKIPPED}
        is_inside = self.frame.parent is not None or bool(self.tree.holds) or self._is_atomic
        if not is_plain or is_inside or self.tree.cancel_requested:
            return False
        return is_last(self.frame.definition, self.frame.statuses(), self.step.name)

    def wait(self, parked: Parked) -> None:
        """Note that the step waits; the park itself is written at the top."""
        self.run.contention_attempts += 1
        self.run.arguments = encode_arguments(self.arguments, self.step.redacted)
        self.tree.move_step(self.run, StepMove.WAIT)
        self.tree.point_at((self.frame, self.step))
        self.frame.emit(parked.event(self.step.name))

    def _note_holds(self, holds: list[gates.Hold], place: gates.Place) -> None:
        self.run.keys = place.texts_by_primitive()
        self.run.coordination = [each.to_json() for hold in holds for each in hold.recorded(HoldState.HELD)]


def record(
    frame: Frame, step: StepDefinition, run: StepRun, settlement: Settlement, arguments: Mapping[str, Any]
) -> None:
    """Put a settlement into the step run and the trace; a failure for good also turns the tree to rolling back."""
    tree = frame.tree
    tree.move_step(run, OUTCOMES[settlement.status])
    run.reason = settlement.reason
    if arguments or not _takes_arguments(step):  # else it was settled before it had any: an earlier attempt's stay
        run.arguments = encode_arguments(arguments, step.redacted)
    run.coordination = [replace(each, state=HoldState.RELEASED).to_json() for each in run.recorded_holds]
    if settlement.error is not None:
        secrets = verdicts.secrets_of(arguments, step.redacted) + verdicts.secrets_of(
            frame.legible_inputs, frame.definition.schema.redacted
        )
        error = verdicts.described(
            settlement.error, began=settlement.began, retryable=settlement.retryable, secrets=secrets
        )
        run.error = error.to_json()
    else:
        run.error = None
    if settlement.status in {StepStatus.SUCCEEDED, StepStatus.SKIPPED} or settlement.contained:
        run.completion_order = frame.next_completion()
    if settlement.status != StepStatus.RETRYING:
        run.finished_at = clock.present()
    frame.emit(settled(step.name, run, settlement))
    if settlement.status == StepStatus.FAILED and not settlement.contained:
        turn_back(frame, step.name, settlement, arguments, step.redacted)


def _takes_arguments(step: StepDefinition) -> bool:
    return bool(step.arguments) or (step.schema is not None and bool(step.schema.fields))


def settled(step: str, run: StepRun, settlement: Settlement) -> events.Event:
    """The event of a settled attempt, from the step run as it is written."""
    attempt, reason = run.attempts, settlement.reason
    if settlement.halts:
        return events.StepHalted(step=step, attempt=attempt, reason=reason)
    if settlement.status == StepStatus.SUCCEEDED:
        return events.StepSucceeded(step=step, attempt=attempt)
    if settlement.status == StepStatus.SKIPPED:
        return events.StepSkipped(step=step, attempt=attempt, reason=reason)
    error = run.why_failed or records.StepError()
    error_type, message = error.type, error.message
    if settlement.retry_in is None:
        contained = settlement.contained
        return events.StepFailed(
            step=step, attempt=attempt, error_type=error_type, message=message, contained=contained
        )
    seconds = round(settlement.retry_in, 3)
    return events.StepRetrying(
        step=step, attempt=attempt, error_type=error_type, message=message, retry_in_seconds=seconds
    )


def turn_back(
    frame: Frame, step: str, settlement: Settlement, arguments: Mapping[str, Any], redacted: frozenset[str]
) -> None:
    """Note the failure on the root and set it rolling back, with the transaction that records the failed step."""
    tree = frame.tree
    if tree.root.status == ExecutionStatus.ROLLING_BACK:
        return
    error = settlement.error
    tree.error = error if isinstance(error, BaseException) else None
    secrets = verdicts.secrets_of(arguments, redacted) + verdicts.secrets_of(
        frame.legible_inputs, frame.definition.schema.redacted
    )
    failure = records.Failure(
        step,
        frame.definition.label,
        verdicts.type_of(error),
        verdicts.message_of(error, secrets),
        verdicts.displayed(arguments, redacted),
        cause=verdicts.cause_of(error, secrets),
    )
    inner = error.failure if isinstance(error, ReactorFailed) else None
    if inner is not None:  # a unit's: it says where it failed, as a child does
        failure = replace(failure, step=inner.step, reactor=inner.reactor, arguments=inner.arguments)
    turned = undone_alone(frame, settlement) or root_of(frame)
    tree.move(turned.execution, transitions.begin_rollback(failure))
    frame.emit(events.ExecutionRollingBack(step=step))


def root_of(frame: Frame) -> Frame:
    """Return the outermost frame."""
    return frame if frame.parent is None else root_of(frame.parent)


def undone_alone(frame: Frame, settlement: Settlement) -> Frame | None:
    """Return the innermost child around a failure that is undone alone: composed and run afresh, or of a map that goes on."""
    child = frame
    while child.parent is not None:
        step = child.parent.definition.steps.get(child.execution.parent_step)
        if step is not None and (_is_run_afresh(child.parent, step, settlement) or _goes_on_without(step)):
            return child
        child = child.parent
    return None


def _is_run_afresh(parent: Frame, step: StepDefinition, settlement: Settlement) -> bool:
    if step.kind != "compose" or step.retry is None:
        return False
    result = Failure(settlement.error or "", retryable=settlement.retryable)
    attempts = parent.runs[step.name].attempts
    return settle(result, began=True, retry=step.retry, attempts=attempts, chance=0.5).status == StepStatus.RETRYING


def _goes_on_without(step: StepDefinition) -> bool:
    return step.kind == "map" and not step.options["fail_fast"]


def encode_arguments(arguments: Mapping[str, Any], redacted: frozenset[str]) -> Any:
    """Encode for the row; what cannot be encoded was refused at its source, or is not needed again."""
    try:
        return codec.encode(dict(arguments), redacted)
    except ReactorCoordError:
        return None


def not_tried_again(frame: Frame, run: StepRun, refusal: Result) -> BaseException:
    """Return the error of a step of which an attempt began, and whose next one may not; its cause is the earlier attempt's."""
    before = run.why_failed
    if isinstance(refusal, Failure):
        error = refusal.error if isinstance(refusal.error, BaseException) else ReactorFailed(str(refusal.error))
    else:
        why = getattr(refusal, "reason", None) or type(refusal).__name__
        error = ReactorFailed(
            f"{frame.definition.label}.{run.step} has begun and may not be tried again: it would be left out ({why})"
        )
    if error.__cause__ is None:
        error.__cause__ = ReactorFailed(str(before) if before is not None else "its process died in an earlier attempt")
    return error
