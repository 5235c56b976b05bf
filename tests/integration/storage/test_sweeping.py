"""What the sweep finds, and that any number of sweepers act on it once."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from django.utils import timezone

from reactor_coord.engine import transitions
from reactor_coord.engine.states import TERMINAL, EventKind, ExecutionStatus, Mode
from reactor_coord.models import Execution
from reactor_coord.storage import elements, store
from tests.integration.storage.rows import at_once, child_of, expire, fresh, ready, running
from tests.support.counting import counted_queries

pytestmark = pytest.mark.django_db


def in_seconds(seconds: float) -> dict[str, object]:
    return {"resume_at": timezone.now() + timedelta(seconds=seconds)}


def test_a_live_lease_is_never_taken_for_a_dead_one() -> None:
    running()
    ready()
    ready(status=ExecutionStatus.PARKED)
    ready(status=ExecutionStatus.PAUSED)

    assert store.expired_leases() == []


def test_the_execution_of_a_dead_worker_is_ready_and_due_at_once() -> None:
    root = running(queue="slow")
    child = child_of(root)
    store.save(root.id, root.lease_token, store.Batch(new_executions=[child]))
    expire(root)

    [lost] = store.expired_leases()
    assert (lost.id, lost.token, lost.mode, lost.status, lost.worker, lost.queue, lost.reactor) == (
        root.id,
        root.lease_token,
        Mode.WORKER,
        ExecutionStatus.RUNNING,
        "w1",
        "slow",
        root.reactor,
    )
    assert store.mark_lost(lost) is True

    row = fresh(root)
    assert (row.status, row.lease_token, row.workers_lost) == (ExecutionStatus.READY, "", 1)
    assert [each.id for each in store.due()] == [root.id]
    assert [each.kind for each in store.trace(root.id)] == [EventKind.WORKER_LOST]
    assert store.trace(root.id)[0].data == {"worker": "w1", "reason": "its process died"}
    assert not Execution.objects.filter(status=ExecutionStatus.RUNNING).exists()


def test_a_rollback_goes_on_where_its_worker_died() -> None:
    root = running()
    store.save(
        root.id,
        root.lease_token,
        store.Batch(executions={root.id: transitions.begin_rollback(None).changes("running")}),
    )
    expire(root)

    [lost] = store.expired_leases()
    assert store.mark_lost(lost)

    assert [(each.id, each.status) for each in store.due()] == [(root.id, ExecutionStatus.ROLLING_BACK)]
    claimed = store.claim(root.id, worker="w2")
    assert claimed is not None
    assert claimed.status == ExecutionStatus.ROLLING_BACK


def test_an_in_process_run_whose_process_died_is_aborted_with_its_children() -> None:
    root = running(mode=Mode.INLINE)
    child = child_of(root)
    store.save(root.id, root.lease_token, store.Batch(new_executions=[child]))
    expire(root)

    [lost] = store.expired_leases()
    assert store.mark_lost(lost)

    row = fresh(root)
    assert (row.status, row.lease_token, row.resume_at) == (ExecutionStatus.ABORTED, "", None)
    assert row.finished_at is not None
    assert fresh(child).status == ExecutionStatus.ABORTED
    assert [(each.kind, each.execution_id) for each in store.trace(root.id)] == [
        (EventKind.ABORTED, child.id),
        (EventKind.ABORTED, root.id),
    ]
    assert store.due(ahead=1000) == []


def test_an_in_process_run_that_says_so_is_taken_up_by_a_worker() -> None:
    root = running(mode=Mode.INLINE)
    expire(root)

    assert store.mark_lost(store.expired_leases()[0], resume_inline=True)

    row = fresh(root)
    assert (row.status, row.mode) == (ExecutionStatus.READY, Mode.WORKER)


@pytest.mark.django_db(transaction=True)
def test_one_death_costs_one_whatever_the_number_of_sweepers() -> None:
    root = running()
    expire(root)
    [lost] = store.expired_leases()

    assert sorted(at_once(5, lambda _: store.mark_lost(lost))) == [False] * 4 + [True]

    assert fresh(root).workers_lost == 1
    assert len(store.trace(root.id)) == 1


def test_a_worker_that_renews_after_it_was_seen_dead_lives() -> None:
    root = running()
    expire(root)
    [lost] = store.expired_leases()
    assert store.renew(root.id, root.lease_token)

    assert store.mark_lost(lost) is False

    assert fresh(root).status == ExecutionStatus.RUNNING


def test_due_are_those_that_may_be_claimed_the_most_overdue_first() -> None:
    late, later = ready(**in_seconds(-10)), ready(status="parked", **in_seconds(-5))
    soon = ready(status="rolling_back", **in_seconds(4))
    ready(**in_seconds(30))
    ready(status="paused", **in_seconds(-1))
    for status in TERMINAL:
        ready(status=status, **in_seconds(-1))
    leased = running()
    Execution.objects.filter(pk=leased.pk).update(resume_at=timezone.now())

    assert [each.id for each in store.due()] == [late.id, later.id]
    assert [each.id for each in store.due(ahead=5)] == [late.id, later.id, soon.id]
    assert [each.id for each in store.due(ahead=5, limit=1)] == [late.id]
    assert store.due()[0].resume_at == late.resume_at


def test_a_new_execution_is_due_when_its_message_should_long_have_come() -> None:
    execution = ready()

    assert store.due() == []
    assert [each.id for each in store.due(ahead=11)] == [execution.id]


def test_a_look_puts_the_next_one_off_and_a_claim_forgets_the_looks() -> None:
    ready(**in_seconds(-10))
    [seen] = store.due()

    assert store.push_look(seen, after=7) is True

    row = fresh(seen.id)
    assert row.looks == 1
    assert row.resume_at is not None
    assert 5 < (row.resume_at - timezone.now()).total_seconds() <= 7
    claimed = store.claim(seen.id, worker="w")
    assert claimed is not None
    assert claimed.looks == 0


def test_a_look_ahead_counts_from_the_due_time() -> None:
    execution = ready(**in_seconds(4))
    [seen] = store.due(ahead=5)

    store.push_look(seen, after=10)

    assert fresh(execution).resume_at == seen.resume_at + timedelta(seconds=10)


@pytest.mark.django_db(transaction=True)
def test_of_five_sweepers_one_sends() -> None:
    ready(**in_seconds(-1))
    [seen] = store.due()

    assert sorted(at_once(5, lambda _: store.push_look(seen, 5))) == [False] * 4 + [True]


def test_a_look_is_brought_forward_never_put_off_and_not_that_of_a_running_one() -> None:
    execution = ready(**in_seconds(60))
    sooner, later = timezone.now() + timedelta(seconds=5), timezone.now() + timedelta(seconds=30)

    assert store.look_by(execution.id, sooner) is True
    assert store.look_by(execution.id, later) is False
    assert fresh(execution).resume_at == sooner
    store.claim(execution.id, worker="w")
    assert store.look_by(execution.id, timezone.now()) is False


def test_nothing_is_sent_for_what_was_claimed_meanwhile() -> None:
    ready(**in_seconds(-1))
    [seen] = store.due()
    store.claim(seen.id, worker="w")

    assert store.push_look(seen, 5) is False


def test_the_sweeps_queries_are_one_each_and_use_the_partial_indexes() -> None:
    with counted_queries() as queries:
        store.due(ahead=5)
        store.expired_leases()
    assert len(queries) == 2
    due_plan, lease_plan = [_plan(query["sql"]) for query in queries]
    assert "rc_execution_lease" in lease_plan
    # SQLite, which keeps no statistics here, takes the index by status: as good, for what is over is not read either.
    assert ("rc_execution_due" if connection.vendor == "postgresql" else "SEARCH") in due_plan


def test_b156_the_next_element_is_found_without_reading_those_that_are_over() -> None:
    with counted_queries() as queries:
        elements.throw(uuid4(), "mapped", 1, timezone.now())
    assert "rc_execution_unbegun" in _plan(queries[0]["sql"])


def _plan(query: str) -> str:
    explain = "EXPLAIN" if connection.vendor == "postgresql" else "EXPLAIN QUERY PLAN"
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute(f"{explain} {query}")
        return str(cursor.fetchall())
