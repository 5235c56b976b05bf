"""Work handed to a worker of its own: `async_step`, `async_reactor`, and the elements of a fan-out.

A unit is an execution of its own, with its own lease and its own owner, that names the execution and step that dispatched
it. Its row is all that passes between them: the parent reads it when it needs the value, the unit sends the parent's
message when it ends. A unit that wants a key which the tree holds is refused before anything is written.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from reactor_coord import conf
from reactor_coord.declare import registry
from reactor_coord.declare.coordination import LockDeclaration, SemaphoreDeclaration
from reactor_coord.declare.definition import ReactorDefinition, StepDefinition
from reactor_coord.declare.references import UNSET, Reference, Scope, StepRef, resolve_arguments
from reactor_coord.engine.states import ExecutionStatus, Mode, ParkKind, is_terminal
from reactor_coord.errors import CoordinationKeyError, HandOffRefused, ReactorFailed, UnknownReactor
from reactor_coord.models import Execution
from reactor_coord.runtime.dispatch import send
from reactor_coord.runtime.outcome import FailureView
from reactor_coord.runtime.parking import Park, Parked
from reactor_coord.storage import clock, codec, elements, store
from reactor_coord.storage.ids import uuid7

if TYPE_CHECKING:
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
    if step not in definition.steps:
        raise UnknownReactor(f"{definition.label} has no step {step!r} any more", name=name)
    return unit_definition(definition, definition.steps[step])


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
        where=None,
        where_names=frozenset(),
        retry=step.retry,
        coordination=step.coordination,
        redacted=step.redacted,
        inline=False,
        options=MappingProxyType({}),
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


def new_unit(
    frame: Frame,
    step: StepDefinition,
    arguments: Mapping[str, Any],
    *,
    index: int | None = None,
    is_thrown: bool = True,
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
        status=ExecutionStatus.READY,
        mode=Mode.WORKER,
        inputs=codec.encode(dict(arguments), redacted),
        parent=frame.execution,
        parent_step=step.name,
        element_index=index,
        queue=root.queue or definition.queue or "",
        tags={"dispatched_by": frame.tree.id},
        resume_at=look_at() if is_thrown else None,
    )


def look_at() -> datetime:
    """When the sweep looks at a row whose message was just sent."""
    return clock.present() + timedelta(seconds=2 * conf.settings().SWEEP_INTERVAL)


# ---- refusal


class _InputsOnly:
    """A scope in which no step has run: what depends on one cannot be known at dispatch."""

    element = UNSET

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        self._inputs = inputs

    def input(self, name: str) -> Any:
        """The unit's input."""
        return self._inputs[name]

    def result(self, step: str) -> Any:
        """Nothing yet."""
        return UNSET


def refuse_if_held(frame: Frame, step: StepDefinition, arguments: Mapping[str, Any]) -> None:
    """Raise `HandOffRefused` for a unit that wants a key which this tree holds: it could never start."""
    held = {(hold.primitive, key.key): hold for hold in frame.tree.holds for key in hold.taken.keys}
    if not held:
        return
    definition = unit_definition(frame.definition, step)
    for primitive, key in _wanted(definition, arguments):
        if (primitive, key) in held:
            holder = held[(primitive, key)].place
            raise HandOffRefused(
                f"{frame.definition.label}.{step.name} would hand work to another process that needs the {primitive} "
                f"{key!r}, which {holder.describe()} of this execution ({frame.tree.id}) holds: it could never start. "
                f"Run it inside this execution with step or compose, or dispatch it after the key is given back",
                reactor=frame.definition.label,
                step=step.name,
                primitive=primitive,
                key=key,
                holder=frame.tree.id,
            )


def _wanted(definition: ReactorDefinition, inputs: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    yield from _exclusive_keys(definition.coordination, inputs, definition.schema.redacted)
    scope = _InputsOnly(inputs)
    for step in definition.steps.values():
        names = frozenset(name for name, ref in step.arguments.items() if not ref.steps() and not ref.has_element())
        try:
            arguments = _with_defaults(step, resolve_arguments(step.arguments, scope, names))
            yield from _exclusive_keys(step.coordination, arguments, step.redacted)
            if step.kind == "compose" and step.reactor_class is not None:
                yield from _wanted(step.reactor_class.definition, arguments)
        except Exception as error:  # noqa: BLE001 - not to be known at dispatch: it is met, and told, where it runs
            logger.debug("event=reactor_coord.key_unknown_at_dispatch step=%s error=%s", step.name, error)


def _with_defaults(step: StepDefinition, known: Mapping[str, Any]) -> dict[str, Any]:
    """Coerce what is known and add the defaults of what nothing is wired to, as the step itself will: one key, not two."""
    found = dict(known)
    for name, field in (step.schema.fields if step.schema is not None else {}).items():
        if name in known:
            found[name] = field.validated(known[name])
        elif name not in step.arguments and not field.required:
            found[name] = field.absent()
    return found


def _exclusive_keys(
    coordination: Mapping[str, Any], arguments: Mapping[str, Any], redacted: frozenset[str]
) -> Iterable[tuple[str, str]]:
    for declaration in coordination.values():
        is_exclusive = isinstance(declaration, LockDeclaration) or (
            isinstance(declaration, SemaphoreDeclaration) and declaration.limit == 1
        )
        for key in declaration.keys if is_exclusive else ():
            try:
                yield declaration.primitive, key.compute(arguments, redacted)
            except CoordinationKeyError:
                continue


# ---- waiting for the end


def failure_of(unit: Execution) -> ReactorFailed:
    """Return what a reader of a failed unit fails with: the unit's own failure, named as it was."""
    if unit.failure:
        view = FailureView.from_json(unit.failure)
        return ReactorFailed(view.message, failure=view)
    return ReactorFailed(f"{unit.label} ({unit.id}) is {unit.status}{': ' + unit.reason if unit.reason else ''}")


def wait_for(frame: Frame, step: StepDefinition, units: Iterable[Execution]) -> None:
    """Step aside until a unit ends (`Parked`), or in process look again in a moment; `TimeoutError` when it took too long."""
    known = conf.settings()
    since = frame.runs[step.name].started_at or clock.present()
    waited = (clock.present() - since).total_seconds()
    limit = known.ASYNC_PARK_TIMEOUT if frame.tree.parks else known.ASYNC_WAIT_TIMEOUT
    names = [str(unit.id) for unit in units][:5]
    if waited > limit:
        raise TimeoutError(f"{frame.definition.label}.{step.name} waited {waited:.0f} s for {', '.join(names)}")
    if not frame.tree.parks:
        time.sleep(min(0.5, max(0.02, waited / 10)))
        return
    previous = frame.tree.waited or {}
    looks = int(previous.get("stuck", 0)) + 1 if previous.get("units") == names else 1
    delay = min(known.SNOOZE_BASE_DELAY * 2.0 ** min(looks - 1, 10), known.SNOOZE_MAX_DELAY)
    waiting_on = {
        "path": f"{frame.execution.id}/{step.name}",
        "reactor": frame.definition.label,
        "step": step.name,
        "primitive": "",
        "key": "",
        "units": names,
        "holder": "",
        "since": since.isoformat(),
        "attempts": looks,
        "stuck": looks,
        "fence": 0,
        "place": 0,
    }
    kind = ParkKind.FAN_OUT if step.kind == "map" else ParkKind.RESULT
    raise Parked(Park(kind, clock.present() + timedelta(seconds=delay), step.name, waiting_on))


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
    thrown = elements.throw(unit.parent_id, unit.parent_step, 1, look_at())
    for each in thrown:
        send(str(each), unit.queue, is_start=True)
    if unit.status != ExecutionStatus.COMPLETED:
        return True
    return not thrown and not elements.has_open(unit.parent_id, unit.parent_step)


# ---- unwinding


def unwind(unit: Execution, *, detach: bool = False) -> list[dict[str, Any]]:
    """Bring a unit to an end in which nothing of it stands, and return what it could not undo.

    Not begun: cancelled. Done: undone, here and now, under its own holds. In flight: asked to end, and waited for. Of a
    reactor that this code does not have: left for one that has it, and listed.
    """
    while not detach:
        row = store.load(unit.id)
        if row is None or row.status in {ExecutionStatus.CANCELLED, ExecutionStatus.FAILED, ExecutionStatus.ABORTED}:
            return list((row.failure or {}).get("rollback_failures", ())) if row is not None else []
        if row.status == ExecutionStatus.NEEDS_DEFINITION:
            try:
                definition_of(row.reactor)
            except UnknownReactor as error:
                return [_not_undone(row, error)]
        if not _unwind_once(row):
            time.sleep(0.05)
    return []


def _not_undone(unit: Execution, error: UnknownReactor) -> dict[str, Any]:
    message = f"UnknownReactor: {error}"
    return {"step": "", "reactor": unit.label, "kind": "undo", "key": "", "reason": "raised", "message": message}


def _unwind_once(row: Execution) -> bool:
    """Take one step towards its end; False when somebody else is at it and there is only waiting."""
    ends: dict[str, Any] = {"cancel_requested": True, "cancel_reason": "its parent rolled back", "park_kind": ""}
    if row.status == ExecutionStatus.READY and row.started_at is None:
        cancelled = {"status": ExecutionStatus.CANCELLED, "finished_at": clock.present(), "resume_at": None}
        return store.change(row.id, expect={ExecutionStatus.READY}, changes=ends | cancelled, as_of=row.updated_at)
    if row.status == ExecutionStatus.RUNNING:
        store.request_cancel(row.id, reason="its parent rolled back")
        return False
    if row.status != ExecutionStatus.ROLLING_BACK:
        rolling = {"status": ExecutionStatus.ROLLING_BACK, "finished_at": None, "resume_at": look_at(), "failure": None}
        return store.change(row.id, expect={ExecutionStatus(row.status)}, changes=ends | rolling | {"workers_lost": 0})
    from reactor_coord.runtime.runner import take_up

    return take_up(row.id)
