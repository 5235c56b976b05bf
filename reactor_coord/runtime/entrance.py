"""The way in: what `run`, `enqueue`, `resume` and `call` of a declaration come to.

Inputs are checked before anything is written or taken. `enqueue` writes a row in the caller's transaction and sends its
message after the commit; `run` writes one that is leased already and goes through it here.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from reactor_coord import conf, spans
from reactor_coord.declare.definition import ReactorDefinition
from reactor_coord.declare.entrance import RunOptions
from reactor_coord.engine.delays import message_grace
from reactor_coord.engine.plan import next_step
from reactor_coord.engine.states import ExecutionStatus, Mode
from reactor_coord.errors import ExecutionConflict, NotRunnable, ReactorCoordError
from reactor_coord.models import Execution
from reactor_coord.runtime import direct, gates, ordering, pausing, surroundings
from reactor_coord.runtime.arguments import place_of_reactor
from reactor_coord.runtime.dispatch import send
from reactor_coord.runtime.lease import Lease, lease_ttl
from reactor_coord.runtime.nested import PERFORMERS
from reactor_coord.runtime.outcome import ExecutionHandle, Outcome, Results, failure_of
from reactor_coord.runtime.runner import run_tree, worker_name
from reactor_coord.runtime.tree import Frame, Tree
from reactor_coord.storage import clock, codec, store
from reactor_coord.storage.store import NewExecution

if TYPE_CHECKING:
    from reactor_coord.declare.step import Step
    from reactor_coord.runtime.context import StepContext

logger = logging.getLogger("reactor_coord")


class Runtime:
    """The implementation behind the declarations' port."""

    def run(self, definition: ReactorDefinition, inputs: Mapping[str, Any], options: RunOptions) -> Outcome:
        """Run it in this process to its end; contention waits, then fails."""
        check_runnable(definition)
        body = surroundings.current()
        _check_transaction(definition, options)
        if body is not None:
            options = _inside(definition, options, body)
        values = definition.schema.validate(inputs)
        new = _new(definition, values, options, Mode.INLINE, worker=worker_name())
        row, created = store.create(new)
        if not created:
            _refuse_other_inputs(definition, row, new, inputs)
            return Outcome.of_row(row)
        tree = Tree(row, Lease(row.id, row.lease_token, lease_ttl()))
        if body is not None:
            tree.lender = surroundings.Lender(body.tree, is_open=not options.independent)
            body.ran(definition.label, tree.id)
        frame = run_tree(tree, definition)
        if tree.is_asked_for:  # paused, and woken already: from here on it is a worker's
            send(tree.id, row.queue)
        return _outcome(frame)

    def enqueue(self, definition: ReactorDefinition, inputs: Mapping[str, Any], options: RunOptions) -> ExecutionHandle:
        """Have a worker run it, from the commit of the caller's transaction on."""
        check_runnable(definition)
        values = definition.schema.validate(inputs)
        later = timedelta(seconds=options.countdown)
        resume_at = clock.present() + later + _grace(options.countdown) if later else None
        new = _new(definition, values, options, Mode.WORKER, resume_at=resume_at)
        row, created = store.create(new)
        if not created:
            _refuse_other_inputs(definition, row, new, inputs)
        if created:
            store.on_commit(lambda: _dispatch(definition, row, options.countdown))
        return ExecutionHandle(row.id, created)

    def resume(
        self, definition: ReactorDefinition, correlation_id: str, step: str | None, payload: Any
    ) -> ExecutionHandle:
        """Answer an interrupt."""
        return ExecutionHandle(pausing.answer(definition, correlation_id, step, payload).id, created=False)

    def call_step(self, step_class: type[Step], inputs: Mapping[str, Any], context: Any) -> Any:
        """Run one step class by itself."""
        return direct.call(step_class, inputs, context)


def _inside(definition: ReactorDefinition, options: RunOptions, body: StepContext) -> RunOptions:
    """The options of a run inside a body: its row names the step. What would go on without the body is refused."""
    if not options.independent and (what := _goes_on_without(definition)):
        raise NotRunnable(
            f"{definition.label}.run() in the body of {body.reactor}.{body.step}: {what} would go on when the body has ended, "
            "and what that holds is given back. Enqueue it, compose it, or say options(independent=True)"
        )
    return replace(options, tags={**options.tags, "run_by": body.root_id, "run_at": f"{body.reactor}.{body.step}"})


def _goes_on_without(definition: ReactorDefinition) -> str:
    """What of it is another process's, or waits for an answer; empty where all of it runs here and now."""
    if definition.background_after or definition.background_before:
        return "its part in the background"
    for step in definition.steps.values():
        if step.kind in {"interrupt", "async_step", "async_reactor"}:
            return f"its step {step.name!r}"
        if step.reactor_class is not None and (below := _goes_on_without(step.reactor_class.definition)):
            return below
    return ""


def _refuse_other_inputs(
    definition: ReactorDefinition, row: Execution, new: NewExecution, given: Mapping[str, Any]
) -> None:
    """Raise `ExecutionConflict` where one idempotency key comes with other inputs: one of the two is a mistake.

    Compared are the inputs that the caller names, and those with a fixed default; a `default_factory` may answer otherwise.
    """
    fields = definition.schema.fields
    names = [name for name, field in fields.items() if name in given or field.factory is None]
    differing = [name for name in names if _plain(row.inputs.get(name)) != _plain(new.inputs.get(name))]
    if differing:
        raise ExecutionConflict(
            f"Execution {row.id} of {definition.label} was started with the idempotency key {new.idempotency_key!r} and other "
            f"values of {', '.join(differing)}. Give another key, or the same inputs",
            execution_id=str(row.id),
            status=row.status,
            verb="be started again",
        )


def _plain(value: Any) -> Any:
    """As the database gives it back."""
    return json.loads(json.dumps(value))


def _dispatch(definition: ReactorDefinition, row: Execution, countdown: float) -> None:
    """Give a reactor that passes in order its position, then send its message."""
    if ordering.OrderedGate.primitive in definition.coordination:
        tree = Tree(row, Lease(row.id, "", lease_ttl()))
        try:
            ordering.reserve(place_of_reactor(Frame(tree, row, definition)))
        except ReactorCoordError as error:  # it gets one when it arrives, or fails there, told and rolled back
            logger.warning("event=reactor_coord.position_not_reserved execution=%s error=%s", row.id, error)
    if not _grace(countdown) and countdown:
        return  # further off than a few seconds: the sweep sends it in time, and no broker has to remember it
    send(str(row.id), row.queue, countdown, is_start=True)


def _grace(countdown: float) -> timedelta:
    """How long past its time the sweep leaves it to the message that was sent; none where it sends the message itself."""
    interval = conf.settings().SWEEP_INTERVAL
    return timedelta(seconds=message_grace(interval)) if countdown <= interval else timedelta()


def check_runnable(definition: ReactorDefinition) -> None:
    """Raise `NotRunnable` for what is declared but not run by this version, at any depth, before anything is written."""
    if not definition.steps:
        raise NotRunnable(f"{definition.label} has no steps: give it one with step(...)")
    gates.refuse_unknown(definition.coordination, definition.label)
    for step in definition.steps.values():
        where = f"{definition.label}.{step.name}"
        if step.kind not in PERFORMERS:
            raise NotRunnable(f"{where} is declared with {step.kind!r}, which is checked but does not run yet")
        gates.refuse_unknown(step.coordination, where)
        if step.kind == "compose" and step.reactor_class is not None:
            check_runnable(step.reactor_class.definition)


def _new(
    definition: ReactorDefinition,
    values: Mapping[str, Any],
    options: RunOptions,
    mode: Mode,
    worker: str = "",
    resume_at: datetime | None = None,
) -> NewExecution:
    return NewExecution(
        reactor=definition.name,
        label=definition.label,
        fingerprint=definition.fingerprint,
        inputs=codec.encode(dict(values), definition.schema.redacted),
        mode=mode,
        queue=options.queue or definition.queue or "",
        tags=dict(options.tags),
        trace_context=spans.carrier(),
        idempotency_key=options.idempotency_key,
        worker=worker,
        resume_at=resume_at,
        first_step=first.name if (first := next_step(definition, {})) is not None else "",
    )


def _check_transaction(definition: ReactorDefinition, options: RunOptions) -> None:
    """Refuse to run coordinated work inside an open transaction: its lock would be free before its writes are seen."""
    if options.allow_in_atomic or definition.allow_in_atomic or not _is_coordinated(definition):
        return
    direct.refuse_open_transaction(f"{definition.label}.run()", "use enqueue(), or say options(allow_in_atomic=True)")


def _is_coordinated(definition: ReactorDefinition) -> bool:
    return bool(definition.coordination) or any(
        step.coordination or (step.reactor_class is not None and _is_coordinated(step.reactor_class.definition))
        for step in definition.steps.values()
    )


def _outcome(frame: Frame) -> Outcome:
    row: Execution = frame.execution
    failure = failure_of(row, frame.tree.error)
    value = codec.decode(row.result) if row.result is not None else None
    return Outcome(ExecutionStatus(row.status), row, value, failure, Results(frame.runs.values()), row.reason)
