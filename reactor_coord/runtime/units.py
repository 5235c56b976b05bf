"""Work handed to a worker of its own: `async_step`, `async_reactor`, and the elements of a fan-out.

A unit is an execution of its own, with its own lease and its own owner, that names the execution and step that dispatched
it. Its row is all that passes between them: the parent reads it when it needs the value, the unit sends the parent's
message when it ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from uuid import UUID

from reactor_coord import conf, spans
from reactor_coord.declare import registry
from reactor_coord.declare.definition import ReactorDefinition, StepDefinition
from reactor_coord.declare.references import Reference, Scope, StepRef
from reactor_coord.engine import delays, records, transitions
from reactor_coord.engine.events import Event, ExecutionCancelled, ExecutionRollingBack
from reactor_coord.engine.plan import next_step
from reactor_coord.engine.rollback import Cleanup
from reactor_coord.engine.states import UNSUCCESSFUL, ExecutionStatus, Mode, ParkKind, is_terminal
from reactor_coord.engine.transitions import Move, Transition
from reactor_coord.errors import ReactorFailed, UnknownReactor
from reactor_coord.models import Execution
from reactor_coord.runtime import outcome
from reactor_coord.runtime.dispatch import send
from reactor_coord.runtime.parking import Park, Parked
from reactor_coord.storage import clock, codec, elements, journal, store
from reactor_coord.storage.ids import uuid7

if TYPE_CHECKING:
    from uuid import UUID

    from reactor_coord.runtime.tree import Frame

logger = logging.getLogger("reactor_coord")

MARK = "#"
"""Between a reactor's name and one of its steps, in the name of a unit that is that step alone."""


class _Argument(Reference):
    """The unit's own input of that name."""

    root_kind = "input"

    def __init__(self, name: str) -> None:
        self.name = name

    def roots(self) -> frozenset[Reference]:
        return frozenset({self})

    def read(self, scope: Scope) -> Any:
        return scope.input(self.name)


def definition_of(name: str) -> ReactorDefinition:
    """Look up the definition of a row: a reactor, or one step of one as a unit. Raises `UnknownReactor`."""
    base, _, step = name.partition(MARK)
    definition = registry.lookup(base)
    if not step:
        return definition
    step = step if step in definition.steps else _now_called(definition, step)
    if step not in definition.steps:
        raise UnknownReactor(f"{definition.label} has no step {step!r} any more", name=name)
    return unit_definition(definition, definition.steps[step])


def _now_called(definition: ReactorDefinition, step: str) -> str:
    return next((name for name, each in definition.steps.items() if each.renamed_from == step), step)


def unit_definition(parent: ReactorDefinition, step: StepDefinition) -> ReactorDefinition:
    """Return what a unit of this step runs: the reactor, or a reactor of the one step.

    A reactor around which the step declares something is that one step, composed.
    """
    if step.reactor_class is not None and not step.coordination and step.retry is None:
        return step.reactor_class.definition
    made = _singles.get((parent.name, step.name))
    if made is None or made[0] is not parent:
        made = _singles[(parent.name, step.name)] = (parent, _single(parent, step))
    return made[1]


_singles: dict[tuple[str, str], tuple[ReactorDefinition, ReactorDefinition]] = {}


def _single(parent: ReactorDefinition, step: StepDefinition) -> ReactorDefinition:
    name = step.name
    within = step.reactor_class.definition if step.reactor_class is not None else None
    if within is not None:
        schema, queue = within.schema, within.queue
    else:
        assert step.step_class is not None
        schema, queue = step.step_class.inputs_schema, parent.queue
    alone = StepDefinition(
        name=name,
        index=0,
        kind="step" if within is None else "compose",
        step_class=step.step_class,
        reactor_class=step.reactor_class,
        arguments=MappingProxyType({field: _Argument(field) for field in schema.fields}),
        schema=schema,
        after=frozenset(),
        depends_on=frozenset(),
        where=_answered if has_answered_where(step) else None,
        where_names=frozenset(),
        retry=step.retry,
        coordination=step.coordination,
        redacted=step.redacted,
        inline=False,
        options=MappingProxyType({}),
        renamed_from=step.renamed_from,
    )
    return ReactorDefinition(
        name=f"{parent.name}{MARK}{name}",
        label=f"{parent.label}.{name}",
        doc="",
        cls=parent.cls,
        schema=schema,
        steps=MappingProxyType({name: alone}),
        returns=StepRef(name),
        coordination=MappingProxyType({}),
        queue=queue,
        on_crash=parent.on_crash,
        allow_in_atomic=parent.allow_in_atomic,
        background_after=None,
        background_before=None,
        fingerprint=parent.fingerprint,
    )


def has_answered_where(step: StepDefinition) -> bool:
    """Whether `where` is asked where the unit is dispatched; the method of a map's step is asked by each element itself."""
    return step.where is not None or step.kind != "map"


def _answered() -> bool:
    """The `where` of a unit for which it was asked already."""
    return True


def new_unit(
    frame: Frame,
    step: StepDefinition,
    arguments: Mapping[str, Any],
    *,
    index: int | None = None,
    is_thrown: bool = True,
    status: ExecutionStatus = ExecutionStatus.READY,
) -> Execution:
    """Return the row of a unit to be inserted; one that is not thrown yet is nobody's to look at."""
    definition = unit_definition(frame.definition, step)
    root = frame.tree.root
    identity = uuid7()
    redacted = definition.schema.redacted | step.redacted
    return Execution(
        id=identity,
        root_id=identity,
        reactor=definition.name,
        label=definition.label,
        fingerprint=definition.fingerprint,
        status=status,
        mode=Mode.WORKER,
        inputs=codec.encode(dict(arguments), redacted),
        parent=frame.execution,
        parent_step=step.name,
        element_index=index,
        queue=root.queue or definition.queue or "",
        tags={"dispatched_by": frame.tree.id, **{name: root.tags[name] for name in ("retry_of",) if name in root.tags}},
        trace_context=spans.carrier() or root.trace_context,
        resume_at=look_at() if is_thrown else None,
        current_step=f"{identity}/{first.name}" if (first := next_step(definition, {})) is not None else "",
    )


def look_at() -> datetime:
    """When the sweep looks at a row whose message was just sent."""
    return clock.present() + timedelta(seconds=delays.message_grace(conf.settings().SWEEP_INTERVAL))


WINDOW = 50
"""Elements in flight where the author names no number."""


def window_of(step: StepDefinition) -> int:
    """How many elements of a map may be under way at once, forward or back."""
    return int(step.options.get("concurrency") or step.options.get("batch_size") or WINDOW)


# ---- waiting for the end


def failure_of(unit: Execution) -> ReactorFailed:
    """Return what a reader of a failed unit fails with: the unit's own failure, named as it was."""
    failure = outcome.failure_of(unit)
    if failure is not None:
        return ReactorFailed(failure.message, failure=failure)
    return ReactorFailed(f"{unit.label} ({unit.id}) is {unit.status}{': ' + unit.reason if unit.reason else ''}")


def wait_for(frame: Frame, step: StepDefinition, units: Iterable[Execution]) -> None:
    """Step aside until a unit ends (`Parked`), or in process look again in a moment; `TimeoutError` when it took too long."""
    known = conf.settings()
    since = frame.runs[step.name].started_at or clock.present()
    waited = (clock.present() - since).total_seconds()
    limit = known.ASYNC_PARK_TIMEOUT if frame.tree.parks else known.ASYNC_WAIT_TIMEOUT
    names = tuple(str(unit.id) for unit in units)[:5]
    if waited > limit:
        raise TimeoutError(f"{frame.definition.label}.{step.name} waited {waited:.0f} s for {', '.join(names)}")
    if not frame.tree.parks:
        time.sleep(delays.result_poll(waited))
        return
    parked = stepping_aside(frame, step, names, since)
    frame.emit(parked.event(step.name))
    raise parked


def stepping_aside(frame: Frame, step: StepDefinition, names: tuple[str, ...], since: datetime) -> Parked:
    """Return the park of a tree that waits for units, of which `names` are the first: their end wakes it, a look is the net."""
    known = conf.settings()
    path = f"{frame.execution.id}/{step.name}"
    previous = frame.tree.waited
    looks = previous.stuck + 1 if previous is not None and (previous.path, previous.units) == (path, names) else 1
    delay = delays.result_looks(known.SNOOZE_BASE_DELAY, known.SNOOZE_MAX_DELAY).after(looks)
    waiting_on = records.Wait(
        path=path,
        reactor=frame.definition.label,
        step=step.name,
        units=names,
        since=since,
        attempts=looks,
        stuck=looks,
    )
    kind = ParkKind.FAN_OUT if step.kind == "map" else ParkKind.RESULT
    return Parked(Park(kind, clock.present() + timedelta(seconds=delay), step.name, waiting_on))


def report(unit: Execution) -> None:
    """A unit is over: tell whoever dispatched it, and let the next element of its fan-out begin."""
    if unit.parent_id is None:
        return
    if unit.element_index is not None and not _is_news(unit):
        return
    parent = store.load(unit.parent_id)
    if parent is not None and not is_terminal(parent.status):
        root_id = parent.root_id or parent.id
        send(str(root_id), parent.queue)


def _is_news(unit: Execution) -> bool:
    """Whether a fan-out's owner need hear of this element: the last one, or one that did not succeed."""
    assert unit.parent_id is not None
    if unit.cancel_reason == elements.PARENT_ROLLED_BACK:
        return not undo_next(unit.parent_id, unit.parent_step) and not elements.has_open(
            unit.parent_id, unit.parent_step
        )
    thrown = elements.throw(unit.parent_id, unit.parent_step, 1, look_at())
    for each in thrown:
        send(str(each), unit.queue, is_start=True)
    if unit.status != ExecutionStatus.COMPLETED:
        return True
    return not thrown and not elements.has_open(unit.parent_id, unit.parent_step)


# ---- unwinding


def cancel_unbegun(parent_id: UUID, step: str, reason: str = elements.PARENT_ROLLED_BACK) -> None:
    """Cancel what a step handed off, and has not begun; tell it of each."""
    with store.atomic():
        cancelled = elements.cancel_unbegun(parent_id, step, reason)
        notes = [journal.note(row, ExecutionCancelled(reason=reason)) for row in cancelled]
        store.record([journal.row(note) for note in notes])
    for note in notes:
        journal.publish(note)


def end_in_workers(frame: Frame, step: StepDefinition, window: int) -> list[records.RollbackFailure]:
    """Have the elements of a map come to an end in which nothing of them stands, each in a worker, `window` at a time.

    Returns what could not be undone of them. While some are at it the tree steps aside, with what it holds kept: `Parked`.
    """
    parent_id = frame.execution.id
    left: list[records.RollbackFailure] = []
    for unit in elements.open_ones(parent_id, step.name):
        frame.tree.lease.check()
        left += _turn_back(unit)
    at_it = elements.count_open(parent_id, step.name) - len(left)
    while at_it < window and undo_next(parent_id, step.name):
        at_it += 1
    if at_it:
        raise stepping_aside(frame, step, (), clock.present())
    return [*left, *elements.rollback_failures(parent_id, step.name)]


def _turn_back(unit: Execution) -> tuple[records.RollbackFailure, ...]:
    """Have a unit that is not over be rolled back by a worker; what is listed instead, where no code here knows it."""
    if unit.status == ExecutionStatus.NEEDS_DEFINITION:
        try:
            definition_of(unit.reactor)
        except UnknownReactor as error:
            return (_not_undone(unit, error),)
    if unit.status == ExecutionStatus.ROLLING_BACK or _unwind_once(unit):
        send(str(unit.id), unit.queue)
    return ()


def undo_next(parent_id: UUID, step: str) -> bool:
    """Have a worker undo the last element of a map that is done and stands; False when there is none."""
    reason = elements.PARENT_ROLLED_BACK
    while standing := elements.standing(parent_id, step):
        for unit in standing:
            if _apply(unit, transitions.undo(look_at(), reason), ExecutionRollingBack(reason=reason)):
                send(str(unit.id), unit.queue)
                return True
    return False


def unwind(unit: Execution, *, detach: bool = False) -> tuple[records.RollbackFailure, ...]:
    """Bring a unit to an end in which nothing of it stands, and return what it could not undo.

    Not begun: cancelled. Done: undone, here and now, under its own holds. In flight: asked to end, and waited for. Of a
    reactor that this code does not have: left for one that has it, and listed.
    """
    looks = 0
    while not detach:
        row = store.load(unit.id)
        if row is None or row.status in UNSUCCESSFUL:
            failure = row.why_failed if row is not None else None
            return failure.rollback_failures if failure is not None else ()
        if row.status == ExecutionStatus.NEEDS_DEFINITION:
            try:
                definition_of(row.reactor)
            except UnknownReactor as error:
                return (_not_undone(row, error),)
        if not _unwind_once(row):
            looks += 1
            time.sleep(delays.UNWINDS.after(looks))
    return ()


def _not_undone(unit: Execution, error: UnknownReactor) -> records.RollbackFailure:
    message = f"UnknownReactor: {error}"
    return records.RollbackFailure(
        "", Cleanup.UNDO, records.RollbackReason.RAISED, message, "", unit.label, "UnknownReactor"
    )


def _unwind_once(row: Execution) -> bool:
    """Take one step towards its end; False when somebody else is at it and there is only waiting."""
    reason = elements.PARENT_ROLLED_BACK
    if row.status == ExecutionStatus.READY and not row.has_begun:
        cancelled = transitions.cancel_unbegun(clock.present(), reason)
        return _apply(row, cancelled, ExecutionCancelled(reason=reason), unchanged_since=row.updated_at)
    if row.status == ExecutionStatus.RUNNING:
        store.request_cancel(row.id, reason=reason)
        return False
    if transitions.is_possible(row.status, Move.CANCEL_BEGUN):
        return _apply(row, transitions.cancel_begun(look_at(), reason), ExecutionRollingBack(reason=reason))
    if transitions.is_possible(row.status, Move.UNDO):
        return _apply(row, transitions.undo(look_at(), reason), ExecutionRollingBack(reason=reason))
    from reactor_coord.runtime.runner import take_up

    return take_up(row.id)


def _apply(row: Execution, transition: Transition, event: Event, *, unchanged_since: datetime | None = None) -> bool:
    """Move a unit that no process runs, and tell it; False when it has been moved or claimed meanwhile."""
    note = journal.note(row, event)
    if not store.apply(row, transition, trace=[journal.row(note)], unchanged_since=unchanged_since):
        return False
    journal.publish(note)
    return True
