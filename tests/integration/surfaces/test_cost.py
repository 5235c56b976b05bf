"""B199: pages and answers cost the same few queries however much there is, lists read no payload, pages are capped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from reactor_coord.models import Execution, StepRun, TraceEvent
from reactor_coord.operations import views
from reactor_coord.testing.factories import ExecutionFactory
from tests.support.counting import counted_queries

from .conftest import ClientOf

pytestmark = pytest.mark.django_db

PAYLOAD = "payload " * 20_000


def _executions(count: int) -> list[Execution]:
    rows: list[Execution] = []
    for number in range(count):
        trait = {"parked": number % 3 == 0, "failed": number % 3 == 1}
        rows.append(ExecutionFactory.create(inputs={"x": PAYLOAD}, **{name: True for name, on in trait.items() if on}))
    return rows


def _fill(row: Execution, children: int, steps: int) -> None:
    below = [
        ExecutionFactory.create(root=row, parent=row, parent_step="charge", element_index=n) for n in range(children)
    ]
    now = timezone.now()
    StepRun.objects.bulk_create(
        StepRun(execution=each, step=f"step_{n}", status="succeeded", arguments={"n": n}, started_at=now)
        for each in (row, *below)
        for n in range(steps)
    )
    TraceEvent.objects.bulk_create(
        TraceEvent(root_id=row.pk, execution=each, at=now, kind="step_succeeded", step=f"step_{n}")
        for each in (row, *below)
        for n in range(steps)
    )


def _cost(act: Callable[[], Any]) -> CaptureQueriesContext:
    with counted_queries() as queries:
        answer = act()
    assert answer.status_code == 200
    return queries


@pytest.mark.parametrize(
    "url",
    [
        "admin:reactor_coord_execution_changelist",
        "reactor_coord_api:execution-list",
        "reactor_coord_api:coordination-parks",
    ],
)
def test_b199_a_list_costs_the_same_and_reads_no_payload(url: str, client_of: ClientOf) -> None:
    client = client_of("viewer")
    where = reverse(url)
    _executions(3)
    client.get(where)  # what is cached for a process is cached now
    few = _cost(lambda: client.get(where))
    _executions(30)
    many = _cost(lambda: client.get(where))
    assert len(many) == len(few)
    for query in many:
        assert '"inputs"' not in query["sql"] and '"result"' not in query["sql"]


@pytest.mark.parametrize(
    "url",
    ["admin:reactor_coord_execution_change", "reactor_coord_api:execution-detail", "reactor_coord_api:execution-trace"],
)
def test_b199_a_detail_costs_the_same(url: str, client_of: ClientOf) -> None:
    client = client_of("viewer")
    small, large = ExecutionFactory.create(failed=True), ExecutionFactory.create(failed=True)
    _fill(small, 1, 2)
    _fill(large, 40, 25)
    client.get(reverse(url, args=[small.pk]))
    few = _cost(lambda: client.get(reverse(url, args=[small.pk])))
    many = _cost(lambda: client.get(reverse(url, args=[large.pk])))
    assert len(many) == len(few) <= 14


def test_a_detail_of_a_great_many_elements_is_cut_and_says_so() -> None:
    row = ExecutionFactory.create()
    StepRun.objects.create(execution=row, step="charge", kind="map", status="succeeded")
    now = timezone.now()
    Execution.objects.bulk_create(
        Execution(
            root=row,
            parent=row,
            parent_step="charge",
            element_index=n,
            reactor="a.B",
            status="completed",
            created_at=now,
        )
        for n in range(400)
    )
    (step,) = views.detail(row).steps
    assert len(step.branches) == 20 and step.branches_total == 400
    assert step.units is not None and step.units.counts == (("completed", 400),) and step.units.shown == ()


def test_a_payload_too_long_to_read_is_not_read() -> None:
    row = ExecutionFactory.create()
    StepRun.objects.create(execution=row, step="one", status="succeeded", arguments={"x": PAYLOAD}, result={"y": 1})
    StepRun.objects.create(execution=row, step="two", status="succeeded", arguments={"x": 1}, result=None)
    one, two = views.detail(row).steps
    assert one.oversized and one.arguments is None and one.result == {"y": 1}
    assert not two.oversized and two.arguments == {"x": 1} and two.result is None


def test_nobody_gets_the_whole_table_at_once(client_of: ClientOf) -> None:
    Execution.objects.bulk_create(Execution(reactor="a.B", status="completed") for _ in range(260))
    Execution.objects.update(root_id=None)
    body = client_of("viewer").get(reverse("reactor_coord_api:execution-list"), {"page_size": 100_000}).json()
    assert body["count"] == 260 and len(body["results"]) == 200
    assert len(client_of("viewer").get(reverse("reactor_coord_api:execution-list")).json()["results"]) == 50


def test_b190_a_definition_that_is_gone_breaks_no_page(client_of: ClientOf) -> None:
    row = ExecutionFactory.create(reactor="gone.reactors.Gone", status="needs_definition", finished_at=None)
    StepRun.objects.create(execution=row, step="charge", status="succeeded", arguments={"a": 1})
    client = client_of("operator")
    page = client.get(reverse("admin:reactor_coord_execution_change", args=[row.pk])).content.decode()
    assert "Definition missing" in page and "charge" in page and "Resume…" in page
    body = client.get(reverse("reactor_coord_api:execution-detail", args=[row.pk])).json()
    assert body["definition_missing"] is True and [step["name"] for step in body["steps"]] == ["charge"]
    listed = client.get(reverse("admin:reactor_coord_execution_changelist"), {"reactor": "gone.reactors.Gone"})
    assert "definition missing" in listed.content.decode()
