"""An execution and all that ran below it, as the assertions read it: rows, step runs, trace events, and how steps are named.

Below it are composed children, elements of maps, and the units that `async_step` and `async_reactor` handed to workers,
whatever process ran them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ParamSpec, TypeAlias
from uuid import UUID

from reactor_coord.declare.suggest import did_you_mean
from reactor_coord.engine.records import Wait
from reactor_coord.engine.states import EventKind, StepStatus
from reactor_coord.errors import UnknownReactor
from reactor_coord.runtime import units
from reactor_coord.testing.naming import Name, names_in, part_of, without_indexes

if TYPE_CHECKING:
    from reactor_coord.models import Execution, StepRun, TraceEvent
    from reactor_coord.runtime.outcome import ExecutionHandle, Outcome

    Subject: TypeAlias = Outcome | ExecutionHandle | Execution | UUID | str

P = ParamSpec("P")

WAITING = frozenset({StepStatus.WAITING, StepStatus.RETRYING})


def assertion(check: Callable[P, None]) -> Callable[P, None]:
    """Have a failure point to the line of the test, and not into the assertion."""

    @functools.wraps(check)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        __tracebackhide__ = True
        try:
            check(*args, **kwargs)
        except AssertionError as error:
            raise AssertionError(*error.args) from None

    return checked


def row_of(subject: Subject) -> Execution:
    """The row as it is now."""
    from reactor_coord.models import Execution

    if isinstance(subject, Execution):
        return Execution.objects.get(pk=subject.pk)
    return Execution.objects.get(pk=subject if isinstance(subject, UUID | str) else subject.execution.pk)


def listed(texts: Iterable[str]) -> str:
    """`audit, charge`, or `none`."""
    return ", ".join(texts) or "none"


class Story:
    """What became of an execution. Reads all of it once; one query for each level of nesting, and two more."""

    def __init__(self, subject: Subject) -> None:
        self.row = row_of(subject)
        self.rows = self._with_all_below(self.row)
        self._paths = self._paths_below()

    @functools.cached_property
    def runs(self) -> list[tuple[Name, StepRun]]:
        """Every step run with its name, in the order in which they began."""
        from reactor_coord.models import StepRun

        found = StepRun.objects.filter(execution_id__in=self.rows).order_by("id")
        return [(self.name(run.execution_id, run.step), run) for run in found]

    @functools.cached_property
    def _events(self) -> list[tuple[Name, TraceEvent]]:
        from reactor_coord.models import TraceEvent

        found = TraceEvent.objects.filter(execution_id__in=self.rows).order_by("id")
        return [(self.name(event.execution_id, event.step), event) for event in found]

    def events(self, *kinds: EventKind) -> list[tuple[Name, TraceEvent]]:
        """The trace events of these kinds, each with the name of its step, in order."""
        return [(name, event) for name, event in self._events if event.kind in kinds]

    def waits(self) -> Iterator[tuple[Name, Execution, Wait]]:
        """What the executions that are parked or paused wait on."""
        for row in self.rows.values():
            if row.waits_on is not None:
                wait = row.waits_on
                yield self.name(self._place_of(row, wait), wait.step), row, wait

    def _place_of(self, row: Execution, wait: Wait) -> UUID:
        """The execution of the tree that waits. A retry and a question do not name it, so the step's run tells."""
        named = (pk for pk in self.rows if str(pk) == wait.execution)
        waiting = (
            run.execution_id
            for _, run in self.runs
            if run.step == wait.step and run.status in WAITING and self.rows[run.execution_id].root_id == row.root_id
        )
        return next(named, next(waiting, row.pk))

    def name(self, execution_id: UUID, step: str) -> Name:
        """How the step of that execution may be called. An empty step is the reactor itself."""
        return Name.of(self.rows[execution_id], step, self._paths[execution_id])

    def states(self) -> str:
        """Where each step stands, for a message."""
        return listed(f"{name} {run.status}" for name, run in self.runs)

    def check(self, *steps: str) -> None:
        """Fail for a name that no step has, if the reactor is known here."""
        known = self._known()
        for step in steps:
            plain = without_indexes(step)
            if known and plain and plain not in known and not any(name.fits(step) for name, _ in self.runs):
                label = self.row.label or self.row.reactor
                raise AssertionError(f"{label} has no step {step!r}.{did_you_mean(plain, known)}")

    def _known(self) -> frozenset[str]:
        try:
            return frozenset(names_in(units.definition_of(self.row.reactor)))
        except UnknownReactor:
            return frozenset()

    @staticmethod
    def _with_all_below(row: Execution) -> dict[UUID, Execution]:
        from reactor_coord.models import Execution

        found = {row.pk: row}
        level = [row.pk]
        while level:
            below = Execution.objects.filter(parent_id__in=level).order_by("id")
            level = [each.pk for each in below]
            found |= {each.pk: each for each in below}
        return found

    def _paths_below(self) -> Mapping[UUID, tuple[str, ...]]:
        paths: dict[UUID, tuple[str, ...]] = {self.row.pk: ()}
        for row in self.rows.values():  # a parent comes before what is below it
            if row.pk != self.row.pk and row.parent_id is not None:
                paths[row.pk] = (*paths[row.parent_id], part_of(row))
        return paths
