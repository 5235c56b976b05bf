"""What a run has come to is written all or nothing, and only by who holds the lease."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from reactor_coord.engine import transitions
from reactor_coord.engine.records import Failure
from reactor_coord.engine.states import EventKind, ExecutionStatus, StepStatus
from reactor_coord.errors import LeaseLost
from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.storage import clock, store
from reactor_coord.storage.store import Batch
from tests.integration.storage.rows import (
    at_once,
    child_of,
    columns_of_park,
    completed,
    event,
    expire,
    fresh,
    ready,
    running,
    step,
)
from tests.support.counting import counted_queries

pytestmark = pytest.mark.django_db


def test_a_checkpoint_writes_root_steps_and_trace_together() -> None:
    root = running()
    began = timezone.now()
    run = step(
        root,
        kind="step",
        status=StepStatus.SUCCEEDED,
        attempts=2,
        contention_attempts=1,
        workers_lost=1,
        arguments={"account_id": 1, "nested": {"list": [1, 2.5, None, True, "x"]}},
        result={"receipt": "r1"},
        error=None,
        reason="fine",
        correlation_id="c1",
        completion_order=3,
        coordination=[{"primitive": "lock", "key": "acct:1", "fence": 2**52}],
        started_at=began,
        finished_at=began + timedelta(microseconds=1),
    )
    batch = Batch(
        executions={root.id: {"completed_count": 1, "waiting_on": {"key": "acct:1", "attempts": 2}}},
        step_runs=[run],
        trace=[event(root, EventKind.ACQUIRED, step="charge", primitive="lock", key="acct:1", data={"fence": 7})],
    )

    saved = store.save(root.id, root.lease_token, batch)

    assert saved == store.Saved(cancel_requested=False, wake_pending=False)
    row = fresh(root)
    assert (row.completed_count, row.waiting_on, row.waiting_key) == (1, {"key": "acct:1", "attempts": 2}, "acct:1")
    assert row.updated_at > root.updated_at
    [written] = store.step_runs([root.id])
    for column in StepRun._meta.concrete_fields:
        if column.name != "id":
            assert getattr(written, column.attname) == getattr(run, column.attname), column.name
    [traced] = store.trace(root.id)
    assert (traced.kind, traced.step, traced.primitive, traced.key, traced.data) == (
        EventKind.ACQUIRED,
        "charge",
        "lock",
        "acct:1",
        {"fence": 7},
    )
    assert traced.execution_id == root.id


def test_a_step_run_is_overwritten_whether_it_was_loaded_or_kept() -> None:
    root = running()
    kept = step(root, status=StepStatus.RUNNING, reason="first")
    store.save(root.id, root.lease_token, Batch(step_runs=[kept]))
    kept.reason = "kept"
    store.save(root.id, root.lease_token, Batch(step_runs=[kept, step(root, "other")]))
    [loaded, other] = store.step_runs([root.id])
    assert (loaded.reason, other.step) == ("kept", "other")

    loaded.status, loaded.reason, loaded.result = StepStatus.SUCCEEDED, "loaded", [1]
    store.save(root.id, root.lease_token, Batch(step_runs=[loaded, loaded]))

    [again, _] = store.step_runs([root.id])
    assert (again.id, again.status, again.reason, again.result) == (loaded.id, "succeeded", "loaded", [1])


def test_of_two_states_of_one_step_in_a_batch_the_last_counts() -> None:
    root = running()

    store.save(root.id, root.lease_token, Batch(step_runs=[step(root, reason="a"), step(root, reason="b")]))

    assert [run.reason for run in store.step_runs([root.id])] == ["b"]


def test_trace_rows_keep_the_order_they_were_given() -> None:
    root = running()
    for batch in range(3):
        events = [event(root, step=f"{batch}.{number}") for number in range(20)]
        store.save(root.id, root.lease_token, Batch(trace=events))

    names = [each.step for each in store.trace(root.id)]

    assert names == [f"{batch}.{number}" for batch in range(3) for number in range(20)]


def test_children_are_written_with_their_root() -> None:
    root = running()
    child = child_of(root)
    batch = Batch(
        new_executions=[child],
        executions={child.id: {"completed_count": 4, "status": "running"}},
        step_runs=[step(root, "compose", status=StepStatus.RUNNING), step(child, "inner")],
        trace=[event(child, EventKind.STARTED)],
    )
    store.save(root.id, root.lease_token, batch)

    executions, runs = store.load_tree(root.id)
    assert [each.id for each in executions] == [root.id, child.id]
    assert executions[1].completed_count == 4
    assert executions[1].created_at is not None
    assert {(run.execution_id, run.step) for run in runs} == {(root.id, "compose"), (child.id, "inner")}

    ending: dict[UUID, dict[str, Any]] = {child.id: completed(), root.id: {"completed_count": 1}}
    store.save(root.id, root.lease_token, Batch(executions=ending))

    ended = fresh(child)
    assert ended.status == ExecutionStatus.COMPLETED
    assert ended.finished_at is not None
    assert fresh(root).status == ExecutionStatus.RUNNING


@pytest.mark.parametrize("how", [store.save, store.park])
def test_nothing_is_written_without_the_lease(how: Any) -> None:
    root = running()
    child, new = child_of(root), child_of(root, "another")
    store.save(root.id, root.lease_token, Batch(new_executions=[child]))
    batch = Batch(
        executions={root.id: completed(), child.id: completed()},
        new_executions=[new],
        step_runs=[step(root)],
        trace=[event(root)],
    )

    with pytest.raises(LeaseLost) as caught:
        how(root.id, "another worker's", batch)

    assert caught.value.execution_id == str(root.id)
    assert fresh(root).status == ExecutionStatus.RUNNING
    assert fresh(child).status == ExecutionStatus.RUNNING
    assert not Execution.objects.filter(pk=new.pk).exists()
    assert store.step_runs([root.id]) == []
    assert store.trace(root.id) == []


def test_a_late_result_of_a_superseded_worker_is_refused() -> None:
    root = running()
    expire(root)
    store.mark_lost(store.expired_leases()[0])
    successor = store.claim(root.id, worker="w2")
    assert successor is not None
    done: dict[UUID, dict[str, Any]] = {root.id: completed(2)}
    store.save(root.id, successor.lease_token, Batch(executions=done))

    with pytest.raises(LeaseLost):
        store.save(root.id, root.lease_token, Batch(executions={root.id: completed(1)}))

    assert fresh(root).result == 2


def test_a_checkpoint_reads_that_somebody_wants_it_cancelled() -> None:
    root = running()
    assert store.request_cancel(root.id, reason="wrong account", trace=[event(root, EventKind.CANCEL_REQUESTED)])

    saved = store.save(root.id, root.lease_token, Batch())

    assert saved.cancel_requested is True
    assert fresh(root).cancel_reason == "wrong account"
    store.save(root.id, root.lease_token, Batch(executions={root.id: completed()}))
    assert store.request_cancel(root.id) is False


def test_a_park_lets_go_of_the_lease_and_can_be_claimed_again() -> None:
    root = running()
    due_at = timezone.now() + timedelta(seconds=5)
    columns = columns_of_park(
        resume_at=due_at,
        waiting_on={"step": "charge", "key": "acct:1"},
        holds_kept=[{"key": "order:7", "fence": 3}],
    )

    assert store.park(root.id, root.lease_token, Batch(executions={root.id: columns})) is False

    parked = fresh(root)
    assert (parked.status, parked.lease_token, parked.lease_expires_at) == ("parked", "", None)
    assert (parked.resume_at, parked.waiting_key, parked.holds_kept) == (
        due_at,
        "acct:1",
        [{"key": "order:7", "fence": 3}],
    )
    with pytest.raises(LeaseLost):
        store.park(root.id, root.lease_token, Batch())
    resumed = store.claim(root.id, worker="w2")
    assert resumed is not None
    assert resumed.waiting_on == {"step": "charge", "key": "acct:1"}


def test_a_wake_between_refusal_and_park_is_answered_by_the_park_once() -> None:
    root = running()
    store.request_wake(root.id)
    assert store.save(root.id, root.lease_token, Batch()).wake_pending is True

    assert store.park(root.id, root.lease_token, Batch(executions={root.id: columns_of_park()})) is True

    assert fresh(root).wake_requested is False


@pytest.mark.django_db(transaction=True)
def test_a_wake_racing_with_a_park_is_never_lost() -> None:
    for _ in range(25):
        root = running()
        parking = Batch(executions={root.id: columns_of_park()})

        def act(number: int, root: Execution = root, parking: Batch = parking) -> str:
            if number == 0:
                return "sent by the park" if store.park(root.id, root.lease_token, parking) else "not told"
            return "left word" if store.request_wake(root.id) else "found it parked"

        assert set(at_once(2, act)) in (
            {"sent by the park", "left word"},
            {"not told", "found it parked"},
        )


def test_the_end_has_a_time_and_no_lease() -> None:
    root = running()

    store.save(root.id, root.lease_token, Batch(executions={root.id: completed()}))

    row = fresh(root)
    assert (row.lease_token, row.lease_expires_at) == ("", None)
    assert row.finished_at is not None


def test_texts_that_no_database_takes_are_spelt_out_and_long_ones_cut() -> None:
    root = running()
    run = step(root, reason="nul \x00 and \ud800", error={"message": "x\x00y", "args": {1: float("nan"), "o": object}})

    store.save(
        root.id,
        root.lease_token,
        Batch(
            executions={root.id: {"reason": "\x00", "failure": {"m": "\udfff"}, "waiting_on": {"key": "k" * 500}}},
            step_runs=[run],
            trace=[event(root, key="k\x00", data={"error": ValueError("\x00")})],
        ),
    )

    row, [written], [traced] = fresh(root), store.step_runs([root.id]), store.trace(root.id)
    assert (row.reason, row.failure, row.waiting_key) == ("\\u0000", {"m": "\\udfff"}, "k" * 255)
    assert written.reason == "nul \\u0000 and \\ud800"
    assert written.error == {"message": "x\\u0000y", "args": {"1": "nan", "o": "<class 'object'>"}}
    assert (traced.key, traced.data) == ("k\\u0000", {"error": "\\u0000"})


def test_numbers_and_times_come_back_exactly() -> None:
    root = running()
    at = datetime.fromisoformat("2025-10-26T02:30:00.123456+02:00")
    run = step(root, result=[1.0, 0.1, 10**15, "ü", {}], started_at=at)

    store.save(root.id, root.lease_token, Batch(step_runs=[run]))

    [written] = store.step_runs([root.id])
    assert written.result == [1.0, 0.1, 10**15, "ü", {}]
    assert [type(each) for each in written.result] == [float, float, int, str, dict]
    assert written.started_at == at


def test_a_word_that_is_no_status_is_refused_by_the_database() -> None:
    root = running()
    with pytest.raises(IntegrityError), transaction.atomic():
        store.save(root.id, root.lease_token, Batch(executions={root.id: {"status": "sleeping"}}))
    with pytest.raises(IntegrityError), transaction.atomic():
        store.save(root.id, root.lease_token, Batch(step_runs=[step(root, status="sleeping")]))


@pytest.mark.django_db(transaction=True)
def test_a_checkpoint_inside_a_transaction_commits_and_rolls_back_with_it() -> None:
    root = running()

    with transaction.atomic():
        store.save(root.id, root.lease_token, Batch(step_runs=[step(root)], trace=[event(root)]))
        transaction.set_rollback(True)
    assert (store.step_runs([root.id]), store.trace(root.id)) == ([], [])

    with transaction.atomic():
        store.save(root.id, root.lease_token, Batch(step_runs=[step(root)], trace=[event(root)]))
    assert len(store.step_runs([root.id])) == len(store.trace(root.id)) == 1


@pytest.mark.django_db(transaction=True)
def test_on_postgresql_a_checkpoint_of_any_shape_is_one_statement_that_commits_by_itself() -> None:
    if connection.vendor != "postgresql":
        pytest.skip("elsewhere it is a short transaction")
    root = running()
    child = child_of(root)
    store.save(root.id, root.lease_token, Batch(new_executions=[child]))
    batches = [
        Batch(step_runs=[step(root)], trace=[event(root), event(root)]),
        Batch(
            executions={root.id: {"completed_count": 1}, child.id: {"completed_count": 2}},
            new_executions=[child_of(root, "another")],
            step_runs=[step(root), step(child), step(root, "third")],
            trace=[event(root), event(child)],
        ),
        Batch(),
    ]
    for batch in batches:
        with counted_queries() as queries:
            store.save(root.id, root.lease_token, batch)
        assert len(queries) == 1, [each["sql"] for each in queries]
    with counted_queries() as queries:
        store.park(root.id, root.lease_token, Batch(executions={root.id: columns_of_park()}, trace=[event(root)]))
    assert len(queries) == 1
    assert at_once(1, lambda _: (StepRun.objects.count(), TraceEvent.objects.count(), fresh(root).status)) == [
        (3, 5, "parked")
    ]


def test_an_execution_that_ended_while_it_was_written_elsewhere_is_unknown_to_save() -> None:
    with pytest.raises(LeaseLost):
        store.save(uuid4(), "token", Batch())


def test_a_transition_of_an_idle_row_is_conditional_on_what_its_caller_saw() -> None:
    root = ready(status=ExecutionStatus.FAILED)
    again = transitions.undo_again(clock.present(), Failure())

    assert store.apply(root, again, trace=[event(root, EventKind.OPERATOR)]) is True

    assert store.apply(root, again) is False
    assert len(store.trace(root.id)) == 1
    rolling = store.load(root.id)
    assert rolling is not None
    assert rolling.status == ExecutionStatus.ROLLING_BACK
    assert store.claim(root.id, worker="w") is not None
    rolling.status = ExecutionStatus.FAILED
    assert store.apply(rolling, again) is False
    assert store.apply(root, again, unchanged_since=clock.present()) is False
