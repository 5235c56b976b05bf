"""Whatever JSON the columns of records hold, the pages, the API and the sentence still show the execution."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.urls import reverse

from reactor_coord import operations
from reactor_coord.models import Execution
from reactor_coord.operations import views
from reactor_coord.testing.factories import ExecutionFactory, StepRunFactory

from .conftest import ClientOf

pytestmark = pytest.mark.django_db

DAMAGE: list[Any] = [
    "a text",
    7,
    True,
    [1, "a", None],
    {"v": 99, "invented": {"deep": [1]}},
    {"step": ["charge"], "message": {"a": 1}, "since": "tomorrow", "until": 1e300, "place": "first", "keys": 3},
    {"rollback_failures": "none", "entries": 4, "order": "first", "turns": {"a": 1}, "arguments": [1]},
    {"rollback_failures": [None, 3, "text", {"step": 4}], "entries": [None, 1], "traceback": [None, 2], "began": "yes"},
    [{"primitive": "lock"}, {"primitive": "lock", "key": "k", "since": "x", "fence": "y"}, 3],
    {"timed": True, "until": "9999-12-31T23:59:59", "since": "0001-01-01T00:00:00", "position": []},
]


def _damaged(status: str, data: Any) -> Execution:
    row: Execution = ExecutionFactory.create(
        status=status,
        park_kind="contention" if status in {"parked", "paused"} else "",
        waiting_on=data,
        failure=data,
        holds_kept=data,
    )
    StepRunFactory.create(
        execution=row, step="charge", status="failed", error=data, rollback_failure=data, coordination=data
    )
    return row


@pytest.mark.parametrize("data", DAMAGE, ids=lambda each: json.dumps(each)[:30])
@pytest.mark.parametrize("status", ["parked", "paused", "failed", "rolling_back"])
def test_a_damaged_row_is_shown_on_every_surface(client_of: ClientOf, status: str, data: Any) -> None:
    row = _damaged(status, data)
    client = client_of("superuser")
    for url in (
        reverse("admin:reactor_coord_execution_changelist"),
        reverse("admin:reactor_coord_execution_change", args=[row.pk]),
        reverse("admin:reactor_coord_coordination"),
        reverse("reactor_coord_api:execution-list"),
        reverse("reactor_coord_api:execution-detail", args=[row.pk]),
    ):
        assert client.get(url).status_code == 200, url
    assert operations.explain(row)
    call_command("executions", str(row.pk), "--json", stdout=StringIO())


@pytest.mark.parametrize("data", DAMAGE, ids=lambda each: json.dumps(each)[:30])
def test_a_damaged_row_can_be_cancelled_and_undone(data: Any) -> None:
    row = _damaged("parked", data)
    operations.cancel(row)
    assert Execution.objects.get(pk=row.pk).status in {"cancelled", "rolling_back"}
    failed = _damaged("failed", data)
    if failed.why_failed is not None and failed.why_failed.is_incomplete:
        operations.undo(failed)
        assert Execution.objects.get(pk=failed.pk).status == "rolling_back"


def test_what_the_units_of_a_step_left_undone_is_told_while_the_rollback_goes_on() -> None:
    """A member of the kind: the page said that nothing did not happen, for no reason, without a message."""
    row: Execution = ExecutionFactory.create(status="rolling_back")
    entries = [
        {"step": name, "reactor": "Unit", "kind": "undo", "key": "k", "reason": "raised", "message": f"no {name}"}
        for name in ("a", "b")
    ]
    StepRunFactory.create(execution=row, step="all", kind="map", rollback_failure={"order": 1.0, "entries": entries})
    (left,) = views.detail(row).rollback_failures
    assert (left.step, left.kind, left.key, left.reason) == ("all", "undo", "k", "raised")
    assert left.message == "of its units 2 cleanups did not happen, the first at step a: no a"
