"""One step, from its guard to its checkpoint: the order of `semantics` 1, in one place.

Resolve, validate, guard; take what it declares; run the body; settle; write it all in one transaction; give back. A
retry goes through all of it again. What a nested reactor does instead of a body is in `nested`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, router, transaction

from reactor_coord import conf, probes
from reactor_coord.engine.plan import is_last
from reactor_coord.engine.settlement import Settlement, as_result, losses_allowed, settle
from reactor_coord.engine.states import EventKind, ExecutionStatus, ParkKind, StepStatus
from reactor_coord.errors import LeaseLost, LockLost, ReactorCoordError, ReactorFailed, WorkerLost
from reactor_coord.models import Execution
from reactor_coord.results import Decided, Failure, Result, Success
from reactor_coord.runtime import gates, verdicts
from reactor_coord.runtime.arguments import declared_arguments, place_of_step, where_arguments
from reactor_coord.runtime.context import StepContext
from reactor_coord.runtime.parking import Park, Parked
from reactor_coord.runtime.recollection import Recollection
from reactor_coord.storage import clock, codec

if TYPE_CHECKING:
    from reactor_coord.declare.definition import StepDefinition
    from reactor_coord.declare.step import Step
    from reactor_coord.models import StepRun
    from reactor_coord.runtime.tree import Frame

EVENTS = {
    StepStatus.SUCCEEDED: EventKind.STEP_SUCCEEDED,
    StepStatus.SKIPPED: EventKind.STEP_SKIPPED,
    StepStatus.FAILED: EventKind.STEP_FAILED,
    StepStatus.RETRYING: EventKind.RETRYING,
}


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
    parked = Parked(Park(ParkKind.RETRY, resume_at, step.name, {"step": step.name}, is_timed=True))
    tell_parked(frame, step.name, parked)
    raise parked


def conclude(frame: Frame, step: StepDefinition, settlement: Settlement) -> None:
    """Turn a settlement that is no value into its signal."""
    if settlement.status == StepStatus.FAILED:
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

    def make(self) -> Settlement:
        """Make it, and leave its settlement written and nothing of its own held."""
        self.tree.lease.check()
        early = charge_lost_workers(self.frame, self.step, self.run) or self.prepare()
        if early is not None:
            return self.close(early)
        return self.run_protected(self._run_body)

    def prepare(self, *, guards: bool = True) -> Settlement | None:
        """Do what comes before coordination; a settlement when the step goes no further."""
        try:
            if not self.is_wanted():
                return Settlement(StepStatus.SKIPPED, reason="where", began=False)
            self.arguments = declared_arguments(self.frame, self.step)
            if guards and self.step.step_class is not None and self.step.step_class.has_guard:
                self._instance().guard()
        except Decided as decided:
            return self.settle(decided.result, began=False)
        except BaseException as error:
            if verdicts.is_interruption(error):
                raise
            return self.settle(Failure(error, retryable=False), began=False)
        return None

    def run_protected(self, body: Callable[[], Settlement]) -> Settlement:
        """Run `body` under what the step declares."""
        place = place_of_step(self.frame, self.step, self.arguments)
        try:
            holds = self.tree.hold(gates.acquire(place))
        except Parked as parked:
            self.wait(parked)
            raise
        except Decided as decided:
            return self.close(self.settle(decided.result, began=False))
        except ReactorCoordError as error:
            return self.close(self.settle(Failure(error, retryable=False), began=False))
        self._note_holds(holds)
        ending = gates.Ending.ABANDONED
        try:
            settlement = body()
            ending = ending_of(settlement)
            place.notes[gates.COMES_AGAIN_IN] = settlement.retry_in or 0.0
            return settlement
        finally:
            self.tree.give(holds, ending)

    def is_wanted(self) -> bool:
        """Whether `where` lets the step run."""
        if self.step.where is not None:
            return bool(self.step.where(**where_arguments(self.frame, self.step)))
        if self.step.step_class is not None and self.step.step_class.has_where:
            self.arguments = declared_arguments(self.frame, self.step)
            return bool(self._instance().where())
        return True

    def _instance(self) -> Step:
        assert self.step.step_class is not None
        context = StepContext(
            self.frame,
            self.step.name,
            attempt=self.run.attempts + 1,
            contention_attempts=self.run.contention_attempts,
        )
        return self.step.step_class.bind(self.arguments, context)

    @property
    def _is_atomic(self) -> bool:
        return bool(self.step.step_class and self.step.step_class.atomic)

    def _run_body(self) -> Settlement:
        instance = self._instance()
        self.run.attempts += 1
        self.run.started_at = self.run.started_at or clock.present()
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
            result = as_result(instance.run())
        except Decided as decided:
            result = decided.result
        except BaseException as error:
            if verdicts.is_interruption(error) or isinstance(error, (Parked, LeaseLost)):
                raise
            result = Failure(error)
        probes.reached("body.after")
        return self.settle(self._unless_lost(result))

    def _unless_lost(self, result: Result) -> Result:
        """A success under a lost hold is a failure; the error of a body that failed by itself stays."""
        lost = gates.lost_keys(self.tree.holds)
        for hold, key in lost:
            if key in hold.lost_and_told:
                continue
            hold.lost_and_told.add(key)
            self.frame.emit(
                EventKind.LOST,
                step=hold.place.step,
                primitive=hold.primitive,
                key=key,
                on_lost=getattr(hold.declaration, "on_lost", "fail"),
            )
        fatal = [key for hold, key in lost if getattr(hold.declaration, "on_lost", "fail") == "fail"]
        if not fatal or isinstance(result, Failure):
            return result
        return Failure(
            LockLost(
                f"{self.frame.definition.label}.{self.step.name} lost its hold on {', '.join(fatal)} before its body "
                f"returned: somebody else may have been inside. Raise ttl or keep auto_extend on",
                reactor=self.frame.definition.label,
                step=self.step.name,
                key=fatal[0],
            )
        )

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
        if settlement.halts:
            finish.fold_halt(self.frame, self.run.result, settlement.reason)
        elif self._ends_the_tree(settlement):
            finish.fold_completion(self.frame)
        self.tree.save()
        return settlement

    def _ends_the_tree(self, settlement: Settlement) -> bool:
        is_plain = settlement.status in {StepStatus.SUCCEEDED, StepStatus.SKIPPED}
        is_inside = self.frame.parent is not None or bool(self.tree.holds) or self._is_atomic
        if not is_plain or is_inside or self.tree.cancel_requested:
            return False
        return is_last(self.frame.definition, self.frame.statuses(), self.step.name)

    def wait(self, parked: Parked) -> None:
        """Note that the step waits; the park itself is written at the top."""
        self.run.status = StepStatus.WAITING
        self.run.contention_attempts += 1
        self.run.arguments = encode_arguments(self.arguments, self.step.redacted)
        self.tree.write(self.run)
        tell_parked(self.frame, self.step.name, parked)

    def _note_holds(self, holds: list[gates.Hold]) -> None:
        self.run.coordination = [{**entry, "state": "held"} for hold in holds for entry in hold.as_json()]


def record(
    frame: Frame, step: StepDefinition, run: StepRun, settlement: Settlement, arguments: Mapping[str, Any]
) -> None:
    """Put a settlement into the step run and the trace; a failure for good also turns the tree to rolling back."""
    tree = frame.tree
    run.status = settlement.status
    run.reason = settlement.reason
    run.arguments = encode_arguments(arguments, step.redacted)
    run.coordination = [{**entry, "state": "released"} for entry in run.coordination or []]
    told: dict[str, Any] = {"attempt": run.attempts}
    if settlement.reason:
        told["reason"] = settlement.reason
    if settlement.error is not None:
        secrets = verdicts.secrets_of(arguments, step.redacted) + verdicts.secrets_of(
            frame.legible_inputs, frame.definition.schema.redacted
        )
        run.error = verdicts.error_json(
            settlement.error, began=settlement.began, retryable=settlement.retryable, secrets=secrets
        )
        told |= {"error_type": run.error["type"], "message": run.error["message"]}
    else:
        run.error = None
    if settlement.retry_in is not None:
        told["retry_in"] = round(settlement.retry_in, 3)
    if settlement.status in {StepStatus.SUCCEEDED, StepStatus.SKIPPED}:
        run.completion_order = frame.next_completion()
    if settlement.status != StepStatus.RETRYING:
        run.finished_at = clock.present()
    frame.emit(EventKind.STEP_HALTED if settlement.halts else EVENTS[settlement.status], step=step.name, **told)
    tree.write(run)
    if settlement.status == StepStatus.FAILED:
        turn_back(frame, step.name, settlement, arguments, step.redacted)


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
    failure = {
        "step": step,
        "reactor": frame.definition.label,
        "error_type": verdicts.type_of(error),
        "message": verdicts.message_of(error, secrets),
        "arguments": verdicts.displayed(arguments, redacted),
        "rollback_failures": [],
    }
    if (
        isinstance(error, ReactorFailed) and error.failure is not None
    ):  # a unit's: it says where it failed, as a child does
        failure |= {name: getattr(error.failure, name) for name in ("step", "reactor", "arguments")}
    turned = retried_child(frame, settlement) or root_of(frame)
    tree.change(turned.execution, status=ExecutionStatus.ROLLING_BACK, failure=failure)
    frame.emit(EventKind.ROLLING_BACK, step=step)


def root_of(frame: Frame) -> Frame:
    """Return the outermost frame."""
    return frame if frame.parent is None else root_of(frame.parent)


def retried_child(frame: Frame, settlement: Settlement) -> Frame | None:
    """Return the innermost composed child around a failure that is undone alone and run afresh, if there is one."""
    child = frame
    while child.parent is not None:
        step = child.parent.definition.steps.get(child.execution.parent_step)
        if step is not None and step.kind == "compose" and step.retry is not None:
            result = Failure(settlement.error or "", retryable=settlement.retryable)
            attempts = child.parent.runs[step.name].attempts
            again = settle(result, began=True, retry=step.retry, attempts=attempts, chance=0.5)
            if again.status == StepStatus.RETRYING:
                return child
        child = child.parent
    return None


def tell_parked(frame: Frame, step: str, parked: Parked) -> None:
    """Tell of a park where it arose."""
    waiting = parked.park.waiting_on or {}
    frame.emit(
        EventKind.PARKED,
        step=step,
        primitive=waiting.get("primitive", ""),
        key=waiting.get("key", ""),
        holder=waiting.get("holder", ""),
        park_kind=parked.park.kind,
        held_by=waiting.get("holder", ""),
        attempt=waiting.get("attempts", 0),
        place=waiting.get("place", 0),
        until=parked.park.resume_at.isoformat(),
    )


def encode_arguments(arguments: Mapping[str, Any], redacted: frozenset[str]) -> Any:
    """Encode for the row; what cannot be encoded was refused at its source, or is not needed again."""
    try:
        return codec.encode(dict(arguments), redacted)
    except ReactorCoordError:
        return None


def charge_lost_workers(frame: Frame, step: StepDefinition, run: StepRun) -> Settlement | None:
    """Lay the deaths of earlier workers to the step they died in: one attempt each; too many fail the step."""
    tree = frame.tree
    if not tree.lost_workers:
        return None
    deaths, tree.lost_workers = tree.lost_workers, 0
    run.workers_lost += deaths
    run.attempts += deaths
    frame.emit(EventKind.WORKER_LOST, step=step.name, deaths=deaths, total=run.workers_lost)
    allowed = losses_allowed(step.retry, conf.settings().MAX_WORKER_LOSSES)
    if run.workers_lost < allowed:
        return None
    error = WorkerLost(
        f"{frame.definition.label}.{step.name} cost {run.workers_lost} workers their lives (killed, out of memory, or "
        f"exiting inside the body); it is not tried again",
        reactor=frame.definition.label,
        step=step.name,
    )
    return Settlement(StepStatus.FAILED, error=error, began=True, retryable=False)
