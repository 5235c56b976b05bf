"""The steps of one execution, begun or not, with what each coordinates: definition, step run and live holds put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from reactor_coord.declare.definition import ReactorDefinition
from reactor_coord.engine.plan import next_step
from reactor_coord.engine.records import HoldState, ParkedHold, RollbackFailure, StepError
from reactor_coord.engine.states import ExecutionStatus, StepStatus, is_terminal
from reactor_coord.models import StepRun
from reactor_coord.storage import codec

from . import live, outlines
from .questions import arguments_without, secrets_in, without
from .shapes import (
    BranchView,
    CoordinationView,
    ErrorView,
    HoldRow,
    QuestionView,
    RollbackFailureView,
    StepView,
    UnitsView,
    WaitView,
)

_PASSED_ONCE = frozenset({"rate_limit", "period"})
_IN_UNITS = frozenset({"map", "async_step", "async_reactor"})
_BEFORE_TAKING = frozenset({StepStatus.PENDING, StepStatus.WAITING, StepStatus.RETRYING})


def step_views(
    definition: ReactorDefinition | None,
    runs: Sequence[StepRun],
    *,
    holds: Sequence[HoldRow],
    wait: WaitView | None,
    branches: Mapping[str, Sequence[BranchView]],
    totals: Mapping[str, int],
    of: str,
    questions: Mapping[str, QuestionView] = MappingProxyType({}),
    units: Mapping[str, UnitsView] = MappingProxyType({}),
) -> tuple[StepView, ...]:
    """In definition order; what the definition no longer has comes last. `of` is the status of their execution.

    A missing definition leaves the recorded ones.
    """
    by_name = {run.step: run for run in runs}
    declared = dict(definition.steps) if definition is not None else {}
    depths = outlines.levels(declared) if definition is not None else {}
    names = [*declared, *(name for name in by_name if name not in declared)]
    secrets = secrets_in(declared)
    now_in = current(definition, by_name) if of == ExecutionStatus.RUNNING else None
    return tuple(
        _step_view(
            name,
            declared.get(name),
            by_name.get(name),
            level=depths.get(name, index),
            holds=[hold for hold in holds if hold.step == name],
            wait=wait if wait is not None and wait.step == name else None,
            branches=tuple(branches.get(name, ())),
            total=totals.get(name, 0),
            of=of,
            runs=name == now_in,
            question=questions.get(name),
            units=units.get(name),
            secrets=secrets,
        )
        for index, name in enumerate(names)
    )


def _step_view(
    name: str,
    declared: Any,
    run: StepRun | None,
    *,
    level: int,
    holds: Sequence[HoldRow],
    wait: WaitView | None,
    branches: tuple[BranchView, ...],
    total: int,
    of: str,
    runs: bool,
    question: QuestionView | None,
    units: UnitsView | None,
    secrets: Mapping[str, frozenset[str]],
) -> StepView:
    kind = str(declared.kind if declared is not None else run.kind if run is not None else "step")
    after = tuple(sorted(declared.depends_on)) if declared is not None else ()
    status = str(run.status) if run is not None else str(StepStatus.PENDING)
    if runs:
        status = str(StepStatus.RUNNING)
    elif status == StepStatus.RUNNING and of in (ExecutionStatus.PARKED, ExecutionStatus.PAUSED):
        status = str(StepStatus.WAITING)  # what it composed waits, so it does
    coordination = coordination_views(
        declared.coordination if declared is not None else {},
        run.recorded_holds if run is not None else (),
        holds=holds,
        wait=wait,
        to_come=status in _BEFORE_TAKING and not is_terminal(of),
        began=run is not None and run.attempts > 0,
        by_units=kind in _IN_UNITS,
    )
    if run is None:
        return StepView(name, kind, status, level, after, coordination=coordination)
    arguments = codec.display(getattr(run, "arguments_shown", None))
    result = codec.display(getattr(run, "result_shown", None))
    return StepView(
        name=name,
        kind=kind,
        status=status,
        level=level,
        depends_on=after,
        attempts=run.attempts,
        contention_attempts=run.contention_attempts,
        workers_lost=run.workers_lost,
        arguments=arguments_without(declared, arguments, secrets) if declared is not None else arguments,
        result=without(result, secrets.get(name, frozenset())),
        error=error_view(run.why_failed),
        reason=run.reason or "",
        correlation_id=run.correlation_id or "",
        rollback_failure=left_undone_view(run),
        coordination=coordination,
        started_at=run.started_at,
        finished_at=run.finished_at,
        oversized=bool(getattr(run, "oversized", False)),
        branches=branches,
        branches_total=max(total, len(branches)),
        question=question,
        units=units,
    )


def current(definition: ReactorDefinition | None, runs: Mapping[str, StepRun]) -> str | None:
    """The step a running execution is in: a step is written down when it ends, so only the plan knows the one that runs."""
    if definition is None:
        return None
    step = next_step(definition, {name: StepStatus(run.status) for name, run in runs.items()})
    return step.name if step is not None else None


def coordination_views(
    declared: Mapping[str, Any],
    recorded: Sequence[ParkedHold],
    *,
    holds: Sequence[HoldRow],
    wait: WaitView | None,
    to_come: bool,
    began: bool,
    by_units: bool = False,
) -> tuple[CoordinationView, ...]:
    """What it declares, what was recorded of it, and what Redis says now; Redis has the last word on who holds.

    `by_units`: its elements or its unit take what it declares, each under its own values.
    """
    views: dict[tuple[str, str], CoordinationView] = {}
    for each in recorded:
        views[each.primitive, each.key] = CoordinationView(
            each.primitive, each.key, _state(each), since=each.since_time, fence=each.fence
        )
    if wait is not None and wait.key:
        for key in wait.keys or (wait.key,):
            holder = wait.holder if key == wait.key else None
            views[wait.primitive, key] = CoordinationView(
                wait.primitive, key, "waiting", holder=holder, since=wait.since
            )
    for hold in holds:
        views[hold.primitive, hold.key] = CoordinationView(
            hold.primitive, hold.key, hold.state, holder=live.holder_of(hold), since=hold.since, fence=hold.fence
        )
    taken = {primitive for primitive, _ in views}
    templates = [
        CoordinationView(view.primitive, "", _untaken(view.primitive, to_come, began, by_units), declared=view.declared)
        for view in outlines.declared(declared)
        if view.primitive not in taken
    ]
    return (*views.values(), *templates)


def _untaken(primitive: str, to_come: bool, began: bool, by_units: bool) -> str:
    """What is declared and nowhere recorded: to come, its units', or passed with a body that began, or never asked for."""
    if to_come:
        return "pending"
    if by_units:
        return "in its units"
    return "passed" if began and primitive in _PASSED_ONCE else "not taken"


def _state(recorded: ParkedHold) -> str:
    """A rate limit is charged and a period asked for in passing: neither is held afterwards."""
    return "passed" if recorded.primitive in _PASSED_ONCE else recorded.state or HoldState.RELEASED


def error_view(error: StepError | None) -> ErrorView | None:
    """A recorded error; its texts as they stand, to be escaped by the surface that shows them."""
    if error is None:
        return None
    return ErrorView(
        type=error.type or "Error",
        message=error.message,
        traceback="\n".join(error.traceback),
        began=error.began,
        retryable=error.retryable,
    )


def rollback_failure_view(failure: RollbackFailure) -> RollbackFailureView:
    """A recorded cleanup that did not happen."""
    return RollbackFailureView(
        failure.step, failure.kind, failure.key, failure.reason, failure.message, failure.error_type
    )


def left_undone_view(run: StepRun) -> RollbackFailureView | None:
    """What rollback could not clean up of a step; of its units the first, with how many there are."""
    left = run.left_undone
    if left is None or not left.failures:
        return None
    view = rollback_failure_view(left.failures[0])
    if not left.of_units:
        return replace(view, step=view.step or run.step)
    where = f" at step {view.step}" if view.step else ""
    message = f"of its units {len(left.failures)} cleanups did not happen, the first{where}: {view.message}"
    return replace(view, step=run.step, message=message)
