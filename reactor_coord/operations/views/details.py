"""The one page that says everything about one execution.

It costs the same few queries whatever the execution's size: the tree, its step runs, its trace (with a count), one survey
of the live holds and one look at one line. What is too much to read (hundreds of branches, megabytes of payload) is cut,
and says so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db.models import Case, F, JSONField, QuerySet, TextField, Value, When
from django.db.models.functions import Cast, Length
from django.utils import timezone

from reactor_coord.declare.definition import ReactorDefinition, StepDefinition
from reactor_coord.declare.references import StepRef
from reactor_coord.engine.records import Failure, HoldState, ParkedHold
from reactor_coord.engine.states import EventKind, ExecutionStatus, StepStatus, is_terminal
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.storage import codec

from . import live, outlines
from .explaining import explain
from .handed_off import units_of
from .questions import question_of, secrets_in, without
from .shapes import (
    BranchView,
    ExecutionDetail,
    FailureView,
    HoldRow,
    Live,
    QuestionView,
    RollbackFailureView,
    StepView,
    TraceView,
    WaitView,
)
from .steps import coordination_views, rollback_failure_view, step_views
from .summaries import LIST_COLUMNS, status_label, summary, wait_of, with_live_place

BRANCHES_SHOWN = 100
ELEMENTS_SHOWN = 20
"""Of a map that ran in process; the others are counted."""
STEPS_SHOWN = 1000
TRACE_SHOWN = 400
PAYLOAD_SHOWN = 20_000
"""Characters of one stored payload; what is longer is not even read."""

_TROUBLE = (StepStatus.FAILED, StepStatus.UNDO_FAILED)


def detail(row: Execution, *, trace_limit: int = TRACE_SHOWN) -> ExecutionDetail:
    """Everything about `row`, with what it composed or fanned out inside its steps."""
    now = timezone.now()
    holders = live.holds()
    tree = _Tree(row, holders)
    wait = with_live_place(_wait_in_tree(row, holders), str(row.root_id or row.id))
    steps = tree.steps_of(row, wait)
    failed = row.why_failed
    failure = failure_view(failed)
    rollback_failures = rollback_failure_views(failed) or tuple(_left_undone(steps))
    incomplete = bool(rollback_failures) and not (failed is not None and failed.closed_at)
    base = summary(row, holders)
    trace, total = trace_of(row, limit=trace_limit)
    definition = outlines.definition_of(row.reactor)
    running = tuple(step.name for step in steps if step.status == StepStatus.RUNNING)
    return ExecutionDetail(
        summary=replace(base, status_label=status_label(row.status, row.park_kind, incomplete=incomplete)),
        explain=explain(
            base, wait=wait, failure=failure, rollback_failures=rollback_failures, running_steps=running, now=now
        ),
        inputs=codec.display(row.inputs),
        result=_result(row, definition),
        failure=failure,
        rollback_failures=rollback_failures,
        steps=steps[:STEPS_SHOWN],
        steps_hidden=max(len(steps) - STEPS_SHOWN, 0),
        coordination=tree.coordination_of(row, wait),
        trace=trace,
        trace_total=total,
        waits_on=wait,
        definition_missing=definition is None,
        allowed=_allowed(row, incomplete=incomplete),
        notice="" if is_terminal(row.status) else holders.notice,  # what is over holds nothing
        worker=row.worker or "",
        workers_lost=row.workers_lost,
        lease_expires_at=row.lease_expires_at,
        cancel_requested=row.cancel_requested,
        questions=tuple(tree.questions),
    )


def questions_of(row: Execution) -> tuple[QuestionView, ...]:
    """What the tree of a paused execution asks now. One query."""
    runs = StepRun.objects.filter(execution__root_id=row.root_id or row.pk, kind="interrupt", status=StepStatus.WAITING)
    found = []
    for run in runs.select_related("execution"):
        definition = outlines.definition_of(run.execution.reactor)
        found.append(
            question_of(run.execution, run, definition.steps.get(run.step) if definition is not None else None)
        )
    return tuple(each for each in found if each is not None)


def _result(row: Execution, definition: ReactorDefinition | None) -> Any:
    """Its value; of an answer that it returns as it is, without what is not to be shown."""
    shown = codec.display(row.result)
    if definition is None or not isinstance(definition.returns, StepRef):
        return shown
    return without(shown, secrets_in(definition.steps).get(definition.returns.name, frozenset()))


def _allowed(row: Execution, *, incomplete: bool) -> frozenset[str]:
    """A nested execution is acted on through its root; a unit is its own, but its parent's step stands on what it did."""
    if not row.is_root:
        return frozenset()
    allowed = allowed_verbs(row.status, incomplete=incomplete)
    if row.cancel_as_it_stands:
        allowed -= {"retry"}  # it would do again what stands
    return allowed & {"cancel", "resume"} if row.parent_id else allowed


def trace_of(row: Execution, *, limit: int = TRACE_SHOWN) -> tuple[tuple[TraceView, ...], int]:
    """The last events of an execution and of what it composed, oldest first, and how many there are in all."""
    rows = trace_rows(row)
    last = list(rows.order_by("-pk")[:limit]) if limit else []
    # By time: a grant is made by another process, and written down only by the one that was woken for it.
    last.sort(key=lambda event: (event.at, event.pk))
    return trace_views(row, last), rows.count()


def trace_rows(row: Execution) -> QuerySet[TraceEvent]:
    """The trace rows of a tree; of a nested execution only its own."""
    own = TraceEvent.objects.select_related("execution").defer(
        "execution__inputs", "execution__result", "execution__failure"
    )
    nested = not row.is_root
    return (own.filter(execution_id=row.pk) if nested else own.filter(root_id=row.pk)).order_by("pk")


def trace_views(row: Execution, found: Iterable[TraceEvent]) -> tuple[TraceView, ...]:
    """Trace rows with their times relative to the creation of `row`."""
    begin = row.created_at
    return tuple(
        TraceView(
            sequence=event.pk,
            at=event.at,
            offset=(event.at - begin).total_seconds(),
            kind=str(event.kind),
            execution=str(event.execution_id),
            reactor=event.execution.label or event.execution.reactor,
            step=event.step or "",
            primitive=event.primitive or "",
            key=event.key or "",
            data=codec.display(event.data),
            nested=event.execution_id != row.pk,
        )
        for event in found
    )


def failure_view(failure: Failure | None) -> FailureView | None:
    """The failure as the row has it; its texts as they stand, to be escaped by the surface that shows them."""
    if failure is None:
        return None
    return FailureView(
        step=failure.step,
        reactor=failure.reactor,
        type=failure.error_type or "Error",
        message=failure.message,
        arguments=codec.display(failure.arguments),
        rollback_closed=f"{failure.closed_by}: {failure.closed_because}" if failure.closed_at else "",
    )


def allowed_verbs(status: str, *, incomplete: bool = False) -> frozenset[str]:
    """Which verbs an operator is offered in a status; `operations.verbs` has the last word."""
    match status:
        case ExecutionStatus.READY | ExecutionStatus.RUNNING | ExecutionStatus.PARKED:
            return frozenset({"cancel"})
        case ExecutionStatus.PAUSED | ExecutionStatus.NEEDS_DEFINITION:
            return frozenset({"cancel", "resume"})
        case ExecutionStatus.ABORTED:
            return frozenset({"resume", "undo"})
        case ExecutionStatus.FAILED:
            return frozenset({"undo", "close"}) if incomplete else frozenset({"retry"})
        case ExecutionStatus.COMPLETED | ExecutionStatus.HALTED:
            return frozenset({"undo"})
        case ExecutionStatus.CANCELLED | ExecutionStatus.REVERTED:
            return frozenset({"retry"})
        case _:
            return frozenset()


class _Tree:
    """One execution and everything below it, read in a handful of queries."""

    def __init__(self, row: Execution, holders: Live[HoldRow]) -> None:
        self.holders = holders
        self.questions: list[QuestionView] = []
        """Those met so far, by whoever asks for steps."""
        self.totals: dict[tuple[UUID | None, str], int] = Counter()
        self.children: dict[UUID | None, list[Execution]] = defaultdict(list)
        shown = [row.pk]
        root = row.root_id or row.pk
        below = Execution.objects.filter(root_id=root, parent__isnull=False).exclude(pk=row.pk).only(*LIST_COLUMNS)
        for child in below.order_by("parent_id", "element_index", "id")[: STEPS_SHOWN + 1]:
            slot = (child.parent_id, child.parent_step)
            self.totals[slot] += 1
            if self.totals[slot] <= (BRANCHES_SHOWN if child.element_index is None else ELEMENTS_SHOWN):
                self.children[child.parent_id].append(child)
                shown.append(child.pk)
        self.runs: dict[UUID, list[StepRun]] = defaultdict(list)
        for run in _step_runs(shown):
            self.runs[run.execution_id].append(run)

        self.units = units_of(shown)

        # A reactor's own holds have no step run to be written in: the trace has them.
        self.acquired = list(
            TraceEvent.objects.filter(root_id=root, kind=EventKind.ACQUIRED, step="")
            .values_list("execution_id", "primitive", "key")
            .order_by("pk")[:STEPS_SHOWN]
        )

    def steps_of(self, row: Execution, wait: WaitView | None) -> tuple[StepView, ...]:
        branches: dict[str, list[BranchView]] = defaultdict(list)
        for child in self.children.get(row.pk, ()):
            branches[child.parent_step].append(self._branch(child, wait))
        definition = outlines.definition_of(row.reactor)
        runs = self.runs.get(row.pk, ())
        return step_views(
            definition,
            runs,
            holds=self._holds_of(row),
            wait=_only_of(row, wait),
            branches=branches,
            totals={step: count for (parent, step), count in self.totals.items() if parent == row.pk},
            of=str(row.status),
            questions=self._questions_of(row, runs, definition.steps if definition is not None else {}),
            units={step: found for (parent, step), found in self.units.items() if parent == row.pk},
        )

    def _questions_of(
        self, row: Execution, runs: Sequence[StepRun], declared: Mapping[str, StepDefinition]
    ) -> dict[str, QuestionView]:
        asked = [question_of(row, run, declared.get(run.step)) for run in runs]
        found = {each.step: each for each in asked if each is not None}
        self.questions += found.values()
        return found

    def coordination_of(self, row: Execution, wait: WaitView | None) -> tuple[Any, ...]:
        """What is held or awaited for the whole reactor: the holds that belong to no step."""
        definition = outlines.definition_of(row.reactor)
        waits = _only_of(row, wait)
        is_held = row.status == ExecutionStatus.RUNNING and self.holders.notice
        state = HoldState.HELD if is_held else HoldState.RELEASED
        return coordination_views(
            definition.coordination if definition is not None else {},
            [
                ParkedHold(primitive, key, state=state)
                for execution, primitive, key in self.acquired
                if execution == row.pk
            ],
            holds=[hold for hold in self._holds_of(row) if not hold.step],
            wait=waits if waits is not None and not waits.step else None,
            to_come=row.started_at is None and not is_terminal(row.status),
            began=row.admitted_at is not None,
        )

    def _branch(self, child: Execution, wait: WaitView | None) -> BranchView:
        return BranchView(
            id=str(child.pk),
            reactor=child.reactor,
            label=child.label or child.reactor,
            status=str(child.status),
            element_index=child.element_index,
            reason=child.reason or "",
            definition_missing=outlines.definition_of(child.reactor) is None,
            coordination=self.coordination_of(child, wait),
            steps=self.steps_of(child, wait),
        )

    def _holds_of(self, row: Execution) -> Sequence[HoldRow]:
        return [hold for hold in self.holders.rows if hold.execution == str(row.pk)]


def _only_of(row: Execution, wait: WaitView | None) -> WaitView | None:
    return wait if wait is not None and wait.execution == str(row.pk) else None


def _wait_in_tree(row: Execution, holders: Live[HoldRow]) -> WaitView | None:
    """The root records what the tree waits on; on the page of a nested execution it is shown if it is that one that waits."""
    if row.is_root:
        return wait_of(row, holders)
    root = Execution.objects.only(*LIST_COLUMNS).filter(pk=row.root_id or row.pk).first()
    wait = wait_of(root, holders) if root is not None else None
    return wait if wait is not None and wait.execution == str(row.pk) else None


def _step_runs(executions: Sequence[UUID]) -> QuerySet[StepRun]:
    """Step runs with their payloads as `arguments_shown` and `result_shown`, unless too long to read (`oversized`)."""

    def shown(column: str) -> Case:
        return Case(
            When(**{f"{column}_length__lte": PAYLOAD_SHOWN}, then=F(column)),
            default=Value(None),
            output_field=JSONField(),
        )

    return (
        StepRun.objects.filter(execution_id__in=executions)
        .defer("arguments", "result")
        .annotate(
            arguments_length=Length(Cast("arguments", TextField())), result_length=Length(Cast("result", TextField()))
        )
        .annotate(
            arguments_shown=shown("arguments"),
            result_shown=shown("result"),
            oversized=Case(
                When(arguments_length__gt=PAYLOAD_SHOWN, then=Value(True)),
                When(result_length__gt=PAYLOAD_SHOWN, then=Value(True)),
                default=Value(False),
            ),
        )
        .order_by("pk")[: STEPS_SHOWN * 10]
    )


def rollback_failure_views(failure: Failure | None) -> tuple[RollbackFailureView, ...]:
    """The cleanups that a failure lists as not done."""
    return tuple(rollback_failure_view(each) for each in failure.rollback_failures) if failure is not None else ()


def _left_undone(steps: Iterable[StepView]) -> Iterable[RollbackFailureView]:
    """What the step runs say of a rollback that still goes on: the failure does not list it yet."""
    for step in steps:
        if step.rollback_failure is not None:
            yield step.rollback_failure
        for branch in step.branches:
            yield from _left_undone(branch.steps)
