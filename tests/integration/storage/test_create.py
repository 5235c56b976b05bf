"""Starting: what is inserted, once for an idempotency key, and nothing when the caller's transaction rolls back."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from reactor_coord.engine.states import ExecutionStatus, Mode
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.storage import clock, store
from reactor_coord.storage.ids import uuid7
from reactor_coord.storage.store import NewExecution
from tests.integration.storage.rows import at_once, child_of, completed, event, fresh, ready, running, step
from tests.support.counting import counted_queries

pytestmark = pytest.mark.django_db


def test_a_new_execution_is_its_own_root_and_ready() -> None:
    execution, created = store.create(NewExecution(reactor="a.B", label="B", inputs={"x": 1}, queue="q"))

    row = fresh(execution)
    assert created
    assert (row.root_id, row.parent_id, row.status, row.mode) == (row.id, None, ExecutionStatus.READY, Mode.WORKER)
    assert (row.inputs, row.queue, row.is_root, row.is_terminal) == ({"x": 1}, "q", True, False)
    assert row.id.version == 7


def test_an_in_process_run_begins_under_a_lease_in_one_statement() -> None:
    with counted_queries() as queries:
        execution, _ = store.create(NewExecution(reactor="a.B", mode=Mode.INLINE, worker="web-1"))

    assert len(queries) == 1
    row = fresh(execution)
    assert (row.status, row.worker, row.lease_token) == (ExecutionStatus.RUNNING, "web-1", execution.lease_token)
    assert row.lease_expires_at is not None
    assert row.lease_expires_at > timezone.now() + timedelta(seconds=50)
    assert store.save(row.id, row.lease_token, store.Batch())
    assert store.claim(row.id, worker="w") is None


def test_u138_a_process_that_has_asked_nothing_yet_asks_the_clock_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "_carried", {})
    with CaptureQueriesContext(connection) as queries:
        store.create(NewExecution(reactor="a.B", mode=Mode.INLINE, worker="web-1"))
        store.create(NewExecution(reactor="a.B"))

    assert len(queries) == 2 + (connection.vendor == "postgresql")


def test_the_same_idempotency_key_gives_the_first_execution_whatever_its_state() -> None:
    first, created = store.create(NewExecution(reactor="a.B", idempotency_key="k"))
    again, created_again = store.create(NewExecution(reactor="a.B", idempotency_key="k"))
    other, created_other = store.create(NewExecution(reactor="a.C", idempotency_key="k"))

    assert (created, created_again, created_other) == (True, False, True)
    assert again.id == first.id != other.id
    Execution.objects.filter(pk=first.pk).update(status=ExecutionStatus.FAILED)
    assert store.create(NewExecution(reactor="a.B", idempotency_key="k"))[0].status == ExecutionStatus.FAILED


@pytest.mark.django_db(transaction=True)
def test_of_six_starts_with_one_key_at_once_one_is_new() -> None:
    answers = at_once(6, lambda _: store.create(NewExecution(reactor="a.B", idempotency_key="k")))

    assert sorted(created for _, created in answers) == [False] * 5 + [True]
    assert len({execution.id for execution, _ in answers}) == 1


def test_an_idempotency_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="255"):
        store.create(NewExecution(reactor="a.B", idempotency_key="k" * 256))


@pytest.mark.django_db(transaction=True)
def test_a_start_that_is_rolled_back_leaves_no_row_and_calls_nothing() -> None:
    sent: list[UUID] = []

    def start() -> Execution:
        execution, _ = store.create(NewExecution(reactor="a.B", idempotency_key="k"))
        store.on_commit(lambda: sent.append(execution.id))
        return execution

    with transaction.atomic():
        start()
        transaction.set_rollback(True)
    with transaction.atomic():
        with transaction.atomic():
            start()
            transaction.set_rollback(True)
    assert (Execution.objects.count(), sent) == (0, [])

    with transaction.atomic():
        execution = start()
        assert sent == []
    assert sent == [execution.id]


@pytest.fixture
def rows_elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The rows in a database that a router names, the project's own models in `default`."""
    monkeypatch.setitem(connections.databases, "second", connections.databases["default"])
    monkeypatch.setattr(clock, "alias", lambda: "second")
    second = connections["second"]
    # Django's test case refuses connections that it did not know when the test was set up.
    second.connect()
    monkeypatch.setattr(second, "ensure_connection", lambda: None)
    yield "second"
    second.close()
    del connections["second"]


@pytest.mark.django_db(transaction=True)
def test_a_start_is_undone_by_the_rollback_of_another_database(rows_elsewhere: str) -> None:
    sent: list[UUID] = []

    def start(key: str | None) -> Execution:
        execution, created = store.create(NewExecution(reactor="a.B", idempotency_key=key))
        if created:
            store.on_commit(lambda: sent.append(execution.id))
        return execution

    with transaction.atomic():
        start("k")
        transaction.set_rollback(True)
    with transaction.atomic(), transaction.atomic():
        start(None)
        transaction.set_rollback(True)
    assert (Execution.objects.count(), sent) == (0, [])

    with transaction.atomic():
        first, second = start("k"), start(None)
        assert (Execution.objects.count(), sent) == (0, [])
    assert sent == [first.id, second.id]
    assert {each.id for each in Execution.objects.all()} == set(sent)
    with transaction.atomic():
        assert start("k").id == first.id
    with transaction.atomic(using=rows_elsewhere):
        third = start(None)
        assert store.load(third.id) == third
    assert sent == [first.id, second.id, third.id]


def test_ids_grow_and_newest_come_first() -> None:
    ids = [uuid7() for _ in range(10_000)]
    assert ids == sorted(set(ids))
    rows = [ready() for _ in range(5)]
    assert list(Execution.objects.all()) == rows[::-1]


def test_pruning_deletes_whole_trees_that_ended_before() -> None:
    root = running()
    child = child_of(root)
    batch = store.Batch(new_executions=[child], step_runs=[step(child)], trace=[event(child)])
    store.save(root.id, root.lease_token, batch)
    store.save(root.id, root.lease_token, store.Batch(executions={root.id: completed()}))
    alive = running()

    assert store.prune(timezone.now() - timedelta(days=1)) == 0
    assert store.prune(timezone.now() + timedelta(days=1)) == 1

    assert list(Execution.objects.all()) == [alive]
    assert (StepRun.objects.count(), TraceEvent.objects.count()) == (0, 0)


def test_the_rows_say_what_they_are() -> None:
    execution = ready(label="Payment")
    assert str(execution) == f"Payment {execution.id} (ready)"
    assert str(step(execution)) == f"charge of {execution.id} (succeeded)"
    assert str(event(execution, step="charge", primitive="lock", key="acct:1")) == "acquired charge lock acct:1"


def test_a_rows_verbs_go_through_the_port_and_show_what_they_did(monkeypatch: pytest.MonkeyPatch) -> None:
    class Recorder:
        def cancel(self, execution: Execution, *, reason: str = "", rollback: bool = True) -> str:
            Execution.objects.filter(pk=execution.pk).update(status="cancelled", cancel_reason=reason)
            return "done"

    monkeypatch.setattr("reactor_coord.storage.verbs._bound", Recorder())
    execution = ready()
    assert execution.cancel(reason="because") == "done"
    assert (execution.status, execution.cancel_reason) == ("cancelled", "because")


def test_the_migrations_say_what_the_models_say() -> None:
    call_command("makemigrations", "reactor_coord", check=True, dry_run=True, verbosity=0)
