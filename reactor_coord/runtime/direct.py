"""`Charge.call(...)`: one step class by itself, coordinated like inside a reactor, with no row and no rollback.

Without a context it is its own owner and contends with everybody. With one it is part of that execution: it enters what
the tree holds and contends for any other key. Either way it waits and never parks: a body is not the place to step aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import uuid4

from django.db import router, transaction
from django.utils import timezone

from reactor_coord.coordination import Requester
from reactor_coord.engine.events import Event
from reactor_coord.engine.guard import ask_guard, ask_where
from reactor_coord.engine.settlement import as_result
from reactor_coord.errors import CoordinationError, NotRunnable, ReactorFailed
from reactor_coord.models import Execution
from reactor_coord.results import Decided, Failure, Halt, Result, Skipped, Success
from reactor_coord.runtime import gates, losses, surroundings, transactions
from reactor_coord.runtime.context import BodyContext, HeldViews, StepContext
from reactor_coord.runtime.deadlocks import is_awaited
from reactor_coord.runtime.gates import Emit, Hold, Place
from reactor_coord.storage import journal

if TYPE_CHECKING:
    from reactor_coord.declare.step import Step


class CallContext(BodyContext):
    """The context of a call of its own: no execution behind it. A call inside its body is part of it."""

    execution_id = ""
    reactor = ""
    attempt = 1
    contention_attempts = 0

    def __init__(self, owner: str, step: str, *, idempotency_key: str = "", held: list[Hold] | None = None) -> None:
        self.root_id = owner
        self.step = step
        self.idempotency_key = idempotency_key or owner
        self.results: Mapping[str, Any] = {}
        self.held: list[Hold] = [] if held is None else held

    @property
    def holds(self) -> HeldViews:
        """What the call holds, by primitive and key."""
        return HeldViews(lambda: self.held)

    def progress(self, done: int, total: int | None = None, message: str = "") -> None:
        """Nobody watches a call of its own."""

    def emit(self, event: Event, *, at: datetime | None = None, at_once: bool = False) -> None:
        """Tell by signal alone: there is no execution to trace."""
        journal.publish(journal.Note(event, at or timezone.now()))


def refuse_open_transaction(what: str, remedy: str) -> None:
    """Refuse coordinated work inside an open transaction: its lock would be free before its writes are seen."""
    if transactions.is_open():
        raise NotRunnable(
            f"{what} inside transaction.atomic(): what it takes would be given back before the work it protects is "
            f"committed. Do it after the transaction, {remedy}"
        )


def call(step_class: type[Step], inputs: Mapping[str, Any], context: Any = None) -> Any:
    """Run one step class and return its value; raises what its body raises, or the contention error."""
    arguments = step_class.inputs_schema.validate(inputs)
    context = context if context is not None else surroundings.current()
    if isinstance(context, StepContext):
        return _inside(step_class, arguments, context)
    name = step_class.__name__
    if isinstance(context, CallContext):
        owner = context.root_id
        own = CallContext(owner, name, idempotency_key=context.key_of_call(name), held=context.held)
    else:
        if step_class.coordination and not step_class.allow_in_atomic:
            refuse_open_transaction(f"{step_class.__name__}.call()", "or set allow_in_atomic = True on the step")
        owner = f"call:{uuid4().hex}"
        own = CallContext(owner, name)
    requester = Requester(owner=owner, claim=owner, reactor="", step=name)
    place = _place(step_class, arguments, requester, own.emit)
    return _call(step_class, arguments, own, place, own.held, context)


def _inside(step_class: type[Step], arguments: Mapping[str, Any], context: StepContext) -> Any:
    frame = context._frame
    name = step_class.__name__
    inner = StepContext(
        frame,
        context.step,
        attempt=context.attempt,
        contention_attempts=context.contention_attempts,
        idempotency_key=context.key_of_call(name),
    )
    requester = Requester(
        owner=frame.tree.id,
        claim=frame.tree.lease.token,
        execution=str(frame.execution.id),
        reactor=frame.definition.label,
        step=name,
    )
    place = _place(step_class, arguments, requester, frame.emit, requester.reactor, keeps=is_awaited(frame.tree))
    return _call(step_class, arguments, inner, place, frame.tree.holds, context)


def _place(
    step_class: type[Step],
    arguments: Mapping[str, Any],
    requester: Requester,
    emit: Emit,
    reactor: str = "",
    *,
    keeps: bool = False,
) -> Place:
    gates.refuse_unknown(step_class.coordination, step_class.__name__)
    return Place(
        requester=requester,
        reactor=reactor,
        step=step_class.__name__,
        arguments=arguments,
        redacted=step_class.inputs_schema.redacted,
        declarations=step_class.coordination,
        emit=emit,
        parks=False,
        keeps=keeps,
    )


def _call(
    step_class: type[Step],
    arguments: Mapping[str, Any],
    context: BodyContext,
    place: Place,
    held: list[Hold],
    around: BodyContext | None,
) -> Any:
    try:
        return _perform(step_class, step_class.bind(arguments, context), place, held, context, around)
    except CoordinationError as error:  # a call of its own has no reactor: the class stands for it
        error.fill(reactor=place.reactor or step_class.__name__, step=step_class.__name__)
        raise


def _perform(
    step_class: type[Step],
    instance: Step,
    place: Place,
    held: list[Hold],
    context: BodyContext,
    around: BodyContext | None,
) -> Any:
    ask = partial(_ask, step_class, instance)
    answer = partial(_value_of, step_class, is_inside=around is not None)
    refusal = ask()
    if refusal is not None:
        return answer(refusal)
    try:
        asks = step_class.has_where or step_class.has_guard
        holds = gates.acquire(replace(place, ask_again=ask if asks else None))
    except Decided as decided:
        return answer(decided.result)
    held.extend(holds)
    ending = gates.Ending.FAILED
    try:
        _refuse_lost(step_class, held, place, began=False)
        result = _run(step_class, instance, holds, place)
        ending = _ENDINGS[type(result)]
        return answer(result)
    finally:
        _give(holds + context.kept, held, ending, around)


def _give(holds: list[Hold], held: list[Hold], ending: gates.Ending, around: BodyContext | None) -> None:
    """Give back what a call took; its locks by the body around it, where the transaction of that has the call's writes.

    A slot, a turn and a mark are given at once: the next call in that body would wait for them.
    """
    if around is not None and transactions.is_open():
        around.kept += [hold for hold in holds if hold.guards_writes]
        holds = [hold for hold in holds if not hold.guards_writes]
    held[:] = [hold for hold in held if hold not in holds]
    gates.release(holds, ending)


def _ask(step_class: type[Step], instance: Step) -> Result | None:
    """Ask whether it runs; `None`: the body follows."""
    name = step_class.__name__
    return ask_where(instance.where, f"{name}.where") or ask_guard(instance.guard, f"{name}.guard")


def _run(step_class: type[Step], instance: Step, holds: list[Hold], place: Place) -> Result:
    """Run the body; a failure returned from an atomic one, or a hold that was lost, undoes its writes like one raised."""
    using = router.db_for_write(Execution)
    with transaction.atomic(using=using) if step_class.atomic else nullcontext():
        try:
            result = as_result(instance.run())
        except Decided as decided:
            result = as_result(decided.result)
        if isinstance(result, Failure):
            _raise(result, step_class)
        _refuse_lost(step_class, holds, place, began=True)
    return result


def _refuse_lost(step_class: type[Step], holds: list[Hold], place: Place, *, began: bool) -> None:
    """Raise `LockLost` for a lost hold, unless it only warns."""
    lost = losses.fatal(holds)
    if lost:
        raise losses.error(lost, place.reactor, step_class.__name__, began=began)


_ENDINGS = {Success: gates.Ending.SUCCEEDED, Skipped: gates.Ending.SKIPPED, Halt: gates.Ending.HALTED}


def _value_of(step_class: type[Step], result: Result, *, is_inside: bool) -> Any:
    """Its value. What fails raises; a halt inside a body stops what that body is part of, as from any depth of it."""
    if isinstance(result, Failure):
        _raise(result, step_class)
    if is_inside and isinstance(result, Halt):
        raise Decided(result)
    return result.value


def _raise(failure: Failure, step_class: type[Step]) -> NoReturn:
    if isinstance(failure.error, BaseException):
        raise failure.error
    raise ReactorFailed(f"{step_class.__name__}: {failure.error}")
