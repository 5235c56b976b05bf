"""One execution tree in the process that runs it: its frames, its holds, what is not yet written.

A `Tree` is the root execution under one lease; a `Frame` is one reactor at one level of nesting. They hold state and
answer questions about it. Deciding is the engine's, performing the runner's; rows are written only through `Tree.save`.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from reactor_coord import probes
from reactor_coord.declare.definition import ReactorDefinition, StepDefinition
from reactor_coord.declare.references import SKIPPED_VALUE, UNSET
from reactor_coord.engine.events import Event
from reactor_coord.engine.plan import next_step
from reactor_coord.engine.records import ParkedHold, Wait
from reactor_coord.engine.states import ExecutionStatus, Mode, StepStatus
from reactor_coord.engine.step_transitions import StepMove
from reactor_coord.engine.transitions import Transition
from reactor_coord.errors import CodecError
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.results import Failure
from reactor_coord.runtime import gates, losses, units
from reactor_coord.runtime.copies import private
from reactor_coord.runtime.facts import Facts
from reactor_coord.runtime.lease import Lease
from reactor_coord.storage import beside, clock, codec, journal, store
from reactor_coord.storage.ids import uuid7
from reactor_coord.storage.store import Batch

if TYPE_CHECKING:
    from reactor_coord.runtime.gates import Ending, Hold
    from reactor_coord.runtime.surroundings import Lender

logger = logging.getLogger("reactor_coord")


@dataclass(eq=False)
class Tree:
    """The root execution, the lease under which this process runs it, and what the next transaction will write."""

    root: Execution
    lease: Lease
    holds: list[Hold] = field(default_factory=list)
    """Every hold of the tree, outermost first."""
    cancel_requested: bool = False
    held_for_cleanup: dict[tuple[UUID, str], list[Hold]] = field(default_factory=dict)
    """What a step that failed for good holds until its own compensate has ended, by execution and step."""
    is_body_unwritten: bool = False
    """Whether a body has begun since the last checkpoint: only `Execution.current_step` says so then."""
    is_redis_given_up: bool = False
    """Whether its rollback has waited for Redis as long as it was to, in vain."""
    waited: Wait | None = None
    """What the last park waited on; None once it is had."""
    kept: list[ParkedHold] = field(default_factory=list)
    """What the row says the last park keeps, and nothing here has taken up yet."""
    lost_workers: int = 0
    """Deaths of workers not yet laid to a step."""
    rows: dict[tuple[UUID, str, int | None], Execution] = field(default_factory=dict)
    """Children inside this tree, by parent, step and, for an element of a map, its index."""
    runs: dict[UUID, dict[str, StepRun]] = field(default_factory=dict)
    batch: Batch = field(default_factory=Batch)
    trace: deque[TraceEvent] = field(default_factory=deque)
    facts: Facts = field(default_factory=Facts)
    error: BaseException | None = None
    lender: Lender | None = None
    """What is around a run inside a body: the execution of that body, which lends what it holds."""
    lent: dict[tuple[str, str], Any] = field(default_factory=dict)
    """For each key that this execution lends to work inside its bodies, the lock between threads of them."""
    is_asked_for: bool = False
    """Whether a wake or a cancellation came before the park was written, and no look has answered it yet."""

    @property
    def id(self) -> str:
        """The owner's name in Redis."""
        return str(self.root.id)

    @property
    def parks(self) -> bool:
        """Whether losing contention steps aside (in a worker) instead of waiting (in process)."""
        return self.root.mode == Mode.WORKER

    @classmethod
    def load(cls, root: Execution, lease: Lease, definition: ReactorDefinition) -> Tree:
        """Read what the plan needs: nothing for a new execution, its step runs, and its children where there are any."""
        tree = cls(
            root,
            lease,
            cancel_requested=root.cancel_requested,
            waited=root.waits_on,
            kept=list(root.parked_holds),
            lost_workers=root.workers_lost,
        )
        if root.started_at is None:
            return tree
        if any(step.kind in {"compose", "map"} for step in definition.steps.values()):
            children, runs = store.load_tree(root.id)
            tree.rows = {(row.parent_id, row.parent_step, row.element_index): row for row in children if row.parent_id}
        else:
            runs = store.step_runs([root.id])
        for run in runs:
            tree.runs.setdefault(run.execution_id, {})[run.step] = run
        return tree

    def change(self, execution: Execution, **columns: Any) -> None:
        """Have the next transaction write these columns; a status is changed by `move` alone."""
        assert "status" not in columns
        for name, value in columns.items():
            setattr(execution, name, value)
        self.batch.executions.setdefault(execution.id, {}).update(columns)

    def move(self, execution: Execution, transition: Transition) -> None:
        """Have the next transaction write what this transition says of an execution of the tree."""
        columns = store.moved(execution, transition)
        self.batch.executions.setdefault(execution.id, {}).update(columns)

    def move_step(self, run: StepRun, move: StepMove) -> None:
        """Have the next transaction write a step run with the status that this move leads to."""
        store.move_step(run, move)
        self.write(run)

    def point_at(self, place: Place | None) -> None:
        """Have the next transaction write which step may begin after it; None: no step."""
        path = f"{place[0].execution.id}/{place[1].name}" if place is not None else ""
        if self.root.current_step != path:
            self.change(self.root, current_step=path)

    def announce(self, frame: Frame, step: StepDefinition) -> None:
        """Have it written that this step may begin: at no cost where the last checkpoint did, as it does but after a deploy."""
        self.point_at((frame, step))
        if "current_step" in self.batch.executions.get(self.root.id, {}):
            self.save()
        self.is_body_unwritten = True

    def write(self, run: StepRun) -> None:
        """Have the next transaction write this step run."""
        if run not in self.batch.step_runs:
            self.batch.step_runs.append(run)

    def hold(self, holds: list[Hold]) -> list[Hold]:
        """Count these among what the tree holds."""
        self.holds += holds
        taken = {(hold.primitive, key.key) for hold in holds for key in hold.taken.keys}
        self.kept = [each for each in self.kept if (each.primitive, each.key) not in taken]
        for hold in holds:
            if self.waited is not None and self.waited.path == hold.place.path:
                self.waited = None
        return holds

    def give(self, holds: list[Hold], ending: Ending) -> None:
        """Give these back, newest first; empties the list. What was lost of them has been told by then."""
        for hold in holds:
            if hold.lost:
                losses.teller.await_told(hold)
        self.holds = [hold for hold in self.holds if hold not in holds]
        gates.release(holds, ending)

    def take_batch(self) -> Batch:
        """Hand over what is to be written and start afresh."""
        if self.root.workers_lost and not self.lost_workers:
            self.change(self.root, workers_lost=0)
        batch, self.batch = self.batch, Batch()
        while self.trace:
            batch.trace.append(self.trace.popleft())
        return batch

    def record_at_once(self) -> None:
        """Write the trace as it stands beside the work; what cannot be written so waits for the next checkpoint."""
        rows = self.facts.take(self.trace)
        self.facts.settle(rows, beside.record(rows), self.trace)

    def save(self) -> None:
        """Write it all in one transaction; raises `LeaseLost` when this process no longer runs the tree."""
        probes.reached("checkpoint.before")
        batch = self.take_batch()
        try:
            saved = store.save(self.root.id, self.lease.token, batch)
        except BaseException:
            self.batch = batch
            raise
        self.cancel_requested = self.cancel_requested or saved.cancel_requested
        self.is_body_unwritten = False
        probes.reached("checkpoint.after")


@dataclass(eq=False)
class Frame:
    """One reactor being executed: the scope in which its references are resolved."""

    tree: Tree
    execution: Execution
    definition: ReactorDefinition
    parent: Frame | None = None
    element: Any = UNSET
    holds: list[Hold] = field(default_factory=list)
    """Held for the whole reactor: its own declarations and its compose step's."""
    children: dict[tuple[str, int | None], Frame] = field(default_factory=dict)
    _inputs: Mapping[str, Any] | None = None
    _results: dict[str, Any] = field(default_factory=dict)

    @property
    def runs(self) -> dict[str, StepRun]:
        """The step runs so far, by step name."""
        return self.tree.runs.setdefault(self.execution.id, {})

    def run(self, step: StepDefinition) -> StepRun:
        """Return the step's run, a new one where it has none yet."""
        run = self.runs.get(step.name)
        if run is None:
            run = StepRun(execution=self.execution, step=step.name, kind=step.kind, status=StepStatus.PENDING)
            self.runs[step.name] = run
        return run

    def statuses(self) -> dict[str, StepStatus]:
        """What the plan decides from: a failure that is contained holds up nothing, as if the step had been skipped."""
        return {
            name: StepStatus.SKIPPED if run.is_contained else StepStatus(run.status) for name, run in self.runs.items()
        }

    def point_at_next(self) -> None:
        """Have the next transaction write which step of this frame may begin after it."""
        step = next_step(self.definition, self.statuses())
        self.tree.point_at((self, step) if step is not None else None)

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The reactor's inputs."""
        if self._inputs is None:
            self._inputs = codec.decode(self.execution.inputs)
        return self._inputs

    @property
    def legible_inputs(self) -> Mapping[str, Any]:
        """Those of the inputs that can be read: for a description, or for a key that needs no other."""
        try:
            return self.inputs
        except CodecError:
            return codec.decode_legible(self.execution.inputs)

    def input(self, name: str) -> Any:
        """Scope: the reactor's input."""
        return private(self.inputs[name])

    def result(self, step_name: str) -> Any:
        """Scope: a step's value; one that was skipped without a value is marked, so that nothing below it breaks."""
        if step_name not in self._results:
            run = self.runs.get(step_name)
            if run is None or run.status not in {StepStatus.SUCCEEDED, StepStatus.SKIPPED}:
                return UNSET
            value = codec.decode(run.result) if run.result is not None else None
            is_empty = run.status == StepStatus.SKIPPED and value is None
            self._results[step_name] = SKIPPED_VALUE if is_empty else value
        value = self._results[step_name]
        return value if value is SKIPPED_VALUE else private(value)

    def failure(self, step_name: str) -> Failure | None:
        """Scope: how a step failed, where that does not fail the reactor."""
        run = self.runs.get(step_name)
        if run is None or not run.is_contained:
            return None
        return Failure(str(run.why_failed or "it failed"), retryable=False)

    def value(self) -> Any:
        """The value the reactor returns."""
        returns = self.definition.returns
        return returns.resolve(self) if returns is not None else None

    def child(self, step: StepDefinition, definition: ReactorDefinition, index: int | None = None) -> Frame | None:
        """Return the child's frame when the step has begun: from this process or from its row."""
        frame = self.children.get((step.name, index))
        row = self.tree.rows.get((self.execution.id, step.name, index))
        if frame is None and row is not None:
            frame = self.children[(step.name, index)] = Frame(self.tree, row, definition, parent=self)
        return frame

    def forget_child(self, step: StepDefinition) -> None:
        """Have the step begin with a new child."""
        self.children.pop((step.name, None), None)
        self.tree.rows.pop((self.execution.id, step.name, None), None)

    def elements(self, step: StepDefinition, definition: ReactorDefinition) -> list[Frame]:
        """Return the frames of a map's elements that ran inside this tree, the last one first."""
        indexes = {index for _, name, index in self._child_keys() if name == step.name and index is not None}
        found = [self.child(step, definition, index) for index in sorted(indexes, reverse=True)]
        return [frame for frame in found if frame is not None]

    def _child_keys(self) -> list[tuple[UUID, str, int | None]]:
        loaded = [key for key in self.tree.rows if key[0] == self.execution.id]
        return loaded + [(self.execution.id, name, index) for name, index in self.children]

    def new_child(
        self,
        step: StepDefinition,
        definition: ReactorDefinition,
        arguments: Mapping[str, Any],
        index: int | None = None,
    ) -> Frame:
        """Have the next transaction insert a child of this execution, running under the root's lease."""
        root = self.tree.root
        row = Execution(
            id=uuid7(),
            reactor=definition.name,
            label=definition.label,
            fingerprint=definition.fingerprint,
            status=ExecutionStatus.RUNNING,
            mode=root.mode,
            inputs=codec.encode(dict(arguments), definition.schema.redacted | step.redacted),
            root=root,
            parent=self.execution,
            parent_step=step.name,
            element_index=index,
            queue=root.queue,
            started_at=clock.present(),
        )
        self.tree.batch.new_executions.append(row)
        child = Frame(self.tree, row, definition, parent=self)
        self.children[(step.name, index)] = child
        return child

    def next_completion(self) -> int:
        """Number the completions, so that rollback can go from the newest."""
        number = self.execution.completed_count + 1
        self.tree.change(self.execution, completed_count=number)
        return number

    def emit(self, event: Event, *, at: datetime | None = None, at_once: bool = False) -> None:
        """Tell it once: a trace row with the next transaction, or `at_once`; a signal (and by it a log line) now.

        What is not recorded is a signal alone.
        """
        note = journal.note(self.execution, event, definition=self.definition, at=at)
        if event.is_recorded:
            self._write(note, at_once=at_once)
        journal.publish(note)

    def _write(self, note: journal.Note, *, at_once: bool) -> None:
        row = journal.row(note)
        self.tree.trace.append(row)
        if at_once:
            self.tree.facts.add(row)
            self.tree.record_at_once()


Place = tuple[Frame, StepDefinition]
"""One step of one frame of the tree."""


def root_frame(tree: Tree, definition: ReactorDefinition) -> Frame:
    """Return the frame of the root."""
    return Frame(tree, tree.root, definition)


def definition_of(execution: Execution) -> ReactorDefinition:
    """Look the definition up by the name in the row; raises `UnknownReactor`."""
    return units.definition_of(execution.reactor)


def is_rolling_back(tree: Tree) -> bool:
    """Whether the tree is past its failure."""
    return tree.root.status == ExecutionStatus.ROLLING_BACK
