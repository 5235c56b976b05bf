"""`Charge.call(...)`: one step class by itself, coordinated like inside a reactor, with no row and no rollback.

Without a context it is its own owner and contends with everybody. With one it is part of that execution: it enters what
the tree holds and contends for any other key. Either way it waits and never parks: a body is not the place to step aside.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import uuid4

from django.db import connections, router, transaction
from django.utils import timezone

from reactor_coord.coordination import Requester
from reactor_coord.engine.settlement import as_result
from reactor_coord.engine.states import EventKind
from reactor_coord.errors import LockLost, NotRunnable, ReactorFailed
from reactor_coord.models import Execution, TraceEvent
from reactor_coord.results import Decided, Failure, Result, Success
from reactor_coord.runtime import events, gates
from reactor_coord.runtime.context import BodyContext, HeldView, StepContext
from reactor_coord.runtime.deadlocks import is_awaited
from reactor_coord.runtime.gates import Hold, Place

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
    def holds(self) -> Mapping[str, HeldView]:
        """What the call holds, by key."""
        return {
            key.key: HeldView(key.key, hold.primitive, key.fence, hold) for hold in self.held for key in hold.taken.keys
        }

    def fence(self, key: str) -> int:
        """Return the fencing token of the hold on `key`."""
        return self.holds[key].fencing_token

    def progress(self, done: int, total: int | None = None, message: str = "") -> None:
        """Nobody watches a call of its own."""

    def emit(self, kind: EventKind, **told: Any) -> None:
        """Tell by signal alone: there is no execution to trace."""
        row = TraceEvent(kind=kind, step=told.pop("step", ""), at=told.pop("at", None) or timezone.now())
        row.primitive, row.key = told.pop("primitive", ""), told.pop("key", "")
        holder = told.pop("holder", "")
        row.data = told
        events.publish(row, None, holder)


def refuse_open_transaction(what: str, remedy: str) -> None:
    """Refuse coordinated work inside an open transaction: its lock would be free before its writes are seen.

    The transactions of Django's test cases do not count.
    """
    for alias in connections:
        blocks = getattr(connections[alias], "atomic_blocks", ())
        if any(not getattr(block, "_from_testcase", False) for block in blocks):
            raise NotRunnable(
                f"{what} inside transaction.atomic(): what it takes would be given back before the work it protects is "
                f"committed. Do it after the transaction, {remedy}"
            )


def call(step_class: type[Step], inputs: Mapping[str, Any], context: Any = None) -> Any:
    """Run one step class and return its value; raises what its body raises, or the contention error."""
    arguments = step_class.inputs_schema.validate(inputs)
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
    return _call(step_class, arguments, own, _place(step_class, arguments, requester, own.emit), own.held)


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
    place = _place(step_class, arguments, requester, frame.emit, keeps=is_awaited(frame.tree))
    return _call(step_class, arguments, inner, place, frame.tree.holds)


def _place(
    step_class: type[Step], arguments: Mapping[str, Any], requester: Requester, emit: Any, *, keeps: bool = False
) -> Place:
    gates.refuse_unknown(step_class.coordination, step_class.__name__)
    return Place(
        requester=requester,
        reactor="",
        step=step_class.__name__,
        arguments=arguments,
        redacted=step_class.inputs_schema.redacted,
        declarations=step_class.coordination,
        emit=emit,
        parks=False,
        keeps=keeps,
    )


def _call(step_class: type[Step], arguments: Mapping[str, Any], context: Any, place: Place, held: list[Hold]) -> Any:
    instance = step_class.bind(arguments, context)
    try:
        if step_class.has_where and not instance.where():
            return None
        instance.guard()
        holds = gates.acquire(place)
    except Decided as decided:
        return _value_of(decided.result, step_class)
    held.extend(holds)
    ending = gates.Ending.FAILED
    try:
        result = _run(step_class, instance, holds)
        ending = gates.Ending.SUCCEEDED if isinstance(result, Success) else gates.Ending.SKIPPED
        return _value_of(result, step_class)
    finally:
        held[:] = [hold for hold in held if hold not in holds]
        gates.release(holds, ending)


def _run(step_class: type[Step], instance: Step, holds: list[Hold]) -> Result:
    """Run the body; a failure returned from an atomic one, or a hold that was lost, undoes its writes like one raised."""
    using = router.db_for_write(Execution)
    with transaction.atomic(using=using) if step_class.atomic else nullcontext():
        try:
            result = as_result(instance.run())
        except Decided as decided:
            result = decided.result
        if isinstance(result, Failure):
            _raise(result, step_class)
        _refuse_lost(step_class, holds)
    return result


def _refuse_lost(step_class: type[Step], holds: list[Hold]) -> None:
    fatal = []
    for hold, key in gates.lost_keys(holds):
        policy = getattr(hold.declaration, "on_lost", "fail")
        hold.place.emit(EventKind.LOST, step=hold.place.step, primitive=hold.primitive, key=key, on_lost=policy)
        fatal += [(hold.primitive, key)] if policy == "fail" else []
    for primitive, key in fatal[:1]:
        raise LockLost(step=step_class.__name__, primitive=primitive, key=key)


def _value_of(result: Result, step_class: type[Step]) -> Any:
    if isinstance(result, Failure):
        _raise(result, step_class)
    return result.value


def _raise(failure: Failure, step_class: type[Step]) -> NoReturn:
    if isinstance(failure.error, BaseException):
        raise failure.error
    raise ReactorFailed(f"{step_class.__name__}: {failure.error}")
