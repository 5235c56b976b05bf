"""Rows for tests of what shows or queries them. They are not run: for that, enqueue a reactor."""

# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

from datetime import UTC, datetime, timedelta

from django.utils import timezone
from factory import declarations as declare
from factory.django import DjangoModelFactory
from factory.faker import Faker

from reactor_coord.engine import records
from reactor_coord.engine.states import EventKind, ExecutionStatus, ParkKind, StepStatus
from reactor_coord.models import Execution, StepRun, TraceEvent


class ExecutionFactory(DjangoModelFactory[Execution]):
    """A completed execution; `ready=True`, `running=True`, `parked=True` or `failed=True` for another."""

    class Meta:
        model = Execution

    class Params:
        ready = declare.Trait(status=ExecutionStatus.READY.value, started_at=None, finished_at=None, result=None)
        running = declare.Trait(
            status=ExecutionStatus.RUNNING.value,
            finished_at=None,
            result=None,
            lease_token=Faker("uuid4"),
            lease_expires_at=declare.LazyFunction(lambda: timezone.now() + timedelta(minutes=1)),
            worker="factory",
        )
        parked = declare.Trait(
            status=ExecutionStatus.PARKED.value,
            finished_at=None,
            result=None,
            park_kind=ParkKind.CONTENTION.value,
            resume_at=declare.LazyFunction(lambda: timezone.now() + timedelta(minutes=1)),
            waiting_key="acct:1",
            waiting_on=declare.LazyFunction(
                records.Wait(
                    step="charge",
                    reactor="Example",
                    primitive="lock",
                    keys=("acct:1",),
                    key="acct:1",
                    place=1,
                    since=datetime(2030, 1, 1, tzinfo=UTC),
                    attempts=1,
                    stuck=1,
                    fence=1,
                ).to_json
            ),
        )
        failed = declare.Trait(
            status=ExecutionStatus.FAILED.value,
            result=None,
            failure=declare.LazyFunction(records.Failure("charge", "Example", "ValueError", "refused").to_json),
        )

    reactor = "example.reactors.Example"
    label = declare.LazyAttribute(lambda row: row.reactor.rpartition(".")[2])
    status = ExecutionStatus.COMPLETED.value
    inputs = declare.LazyFunction(dict)
    started_at = declare.LazyFunction(timezone.now)
    finished_at = declare.LazyFunction(timezone.now)


class StepRunFactory(DjangoModelFactory[StepRun]):
    """A step that succeeded."""

    class Meta:
        model = StepRun

    execution = declare.SubFactory(ExecutionFactory)
    step = declare.Sequence(lambda number: f"step_{number}")
    status = StepStatus.SUCCEEDED.value
    attempts = 1
    completion_order = declare.Sequence(lambda number: number)
    started_at = declare.LazyFunction(timezone.now)
    finished_at = declare.LazyFunction(timezone.now)


class TraceEventFactory(DjangoModelFactory[TraceEvent]):
    """One event of an execution."""

    class Meta:
        model = TraceEvent

    execution = declare.SubFactory(ExecutionFactory)
    root_id = declare.LazyAttribute(lambda event: event.execution.root_id)
    at = declare.LazyFunction(timezone.now)
    kind = EventKind.STARTED.value
