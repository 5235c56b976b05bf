"""Who may run an execution: exactly one of all who try, and nobody whose lease is gone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.utils import timezone

from reactor_coord.engine.states import TERMINAL, ExecutionStatus
from reactor_coord.models import Execution
from reactor_coord.storage import store
from tests.integration.storage.rows import at_once, child_of, completed, expire, fresh, ready, running
from tests.support.counting import counted_queries

pytestmark = pytest.mark.django_db


def test_a_ready_execution_is_claimed_once_and_runs_under_a_fresh_lease() -> None:
    execution = ready(queue="slow", tags={"tenant": "a"}, inputs={"account_id": 1})
    store.request_wake(execution.id)

    claimed = store.claim(execution.id, worker="worker-1")

    assert claimed is not None
    assert claimed.status == ExecutionStatus.RUNNING
    assert claimed.lease_token
    assert claimed.lease_expires_at is not None
    assert timedelta(seconds=50) < claimed.lease_expires_at - timezone.now() < timedelta(seconds=70)
    assert (claimed.worker, claimed.queue, claimed.tags, claimed.inputs) == (
        "worker-1",
        "slow",
        {"tenant": "a"},
        {"account_id": 1},
    )
    assert claimed.started_at is None
    assert store.claim(execution.id, worker="worker-2") is None
    assert fresh(execution).worker == "worker-1"


@pytest.mark.parametrize("status", [*sorted(TERMINAL), ExecutionStatus.PAUSED, ExecutionStatus.NEEDS_DEFINITION])
def test_what_is_over_or_waits_for_a_person_is_not_claimed(status: ExecutionStatus) -> None:
    execution = ready(status=status)

    assert store.claim(execution.id, worker="w") is None
    assert fresh(execution).status == status


def test_a_rolling_back_execution_without_a_lease_is_claimed_and_stays_so() -> None:
    execution = ready(status=ExecutionStatus.ROLLING_BACK)

    claimed = store.claim(execution.id, worker="w")

    assert claimed is not None
    assert claimed.status == ExecutionStatus.ROLLING_BACK
    assert store.claim(execution.id, worker="w") is None


def test_a_child_is_never_claimed_by_itself() -> None:
    root = running()
    child = child_of(root)
    store.save(root.id, root.lease_token, store.Batch(new_executions=[child]))
    Execution.objects.filter(pk=child.pk).update(status=ExecutionStatus.PARKED)

    assert store.claim(child.pk, worker="w") is None


def test_a_message_for_a_row_that_is_not_there_claims_nothing() -> None:
    assert store.claim("01890000-0000-7000-8000-000000000000", worker="w") is None
    assert store.request_wake("01890000-0000-7000-8000-000000000000") is False


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("status", [ExecutionStatus.READY, ExecutionStatus.ROLLING_BACK])
def test_of_eight_deliveries_at_once_exactly_one_runs(status: ExecutionStatus) -> None:
    for _ in range(5):
        execution = ready(status=status)

        claims = at_once(8, lambda number, pk=execution.id: store.claim(pk, worker=f"w{number}"))  # type: ignore[misc]

        winners = [claimed for claimed in claims if claimed is not None]
        assert len(winners) == 1
        assert fresh(execution).lease_token == winners[0].lease_token


def test_a_claim_costs_one_statement_on_postgresql() -> None:
    execution = ready()
    with counted_queries() as queries:
        store.claim(execution.id, worker="w")
    assert len(queries) == (1 if connection.vendor == "postgresql" else 2)


def test_a_wake_of_a_running_execution_is_marked_and_the_next_claim_answers_it() -> None:
    execution = running()

    assert store.request_wake(execution.id) is True
    assert fresh(execution).wake_requested is True
    expire(execution)
    [lost] = store.expired_leases()
    store.mark_lost(lost)
    claimed = store.claim(execution.id, worker="w2")

    assert claimed is not None
    assert claimed.wake_requested is False


@pytest.mark.parametrize("status", ["ready", "parked", "paused", "completed"])
def test_nobody_is_there_to_be_told_of_a_wake(status: str) -> None:
    assert store.request_wake(ready(status=status).id) is False


def test_renewal_prolongs_the_lease_and_says_when_it_is_lost() -> None:
    execution = running()
    expire(execution)

    assert store.renew(execution.id, execution.lease_token, 30) is True
    assert fresh(execution).lease_expires_at > timezone.now()  # type: ignore[operator]
    assert store.renew(execution.id, "somebody else's", 30) is False


@pytest.mark.django_db(transaction=True)
def test_a_row_of_an_open_transaction_is_neither_kept_nor_lost() -> None:
    if connection.vendor == "sqlite":
        pytest.skip("the open transaction holds SQLite's only write lock")
    with transaction.atomic():
        execution = running()
        assert at_once(1, lambda _: store.renew(execution.id, execution.lease_token)) == [None]
    assert at_once(1, lambda _: store.renew(execution.id, execution.lease_token)) == [True]


def test_a_renewal_racing_with_the_end_never_changes_the_final_status() -> None:
    execution = running()
    store.save(execution.id, execution.lease_token, store.Batch(executions={execution.id: completed()}))

    assert store.renew(execution.id, execution.lease_token) is False
    ended = fresh(execution)
    assert (ended.status, ended.lease_expires_at) == (ExecutionStatus.COMPLETED, None)


def test_every_query_goes_where_the_routers_say(settings: Any) -> None:
    settings.DATABASE_ROUTERS = ["tests.integration.storage.test_claims.Elsewhere"]

    assert store.alias() == "elsewhere"


class Elsewhere:
    """Sends the app's rows to another database."""

    def db_for_write(self, model: type, **_: Any) -> str | None:
        return "elsewhere" if model is Execution else None
