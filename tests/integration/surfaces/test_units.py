"""What a step handed to workers of their own stands below it: a count by status with links, and never thousands of rows."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.urls import reverse

from reactor_coord import Input, Reactor, Step, async_step, element, map_each, with_lock
from reactor_coord.models import Execution
from reactor_coord.operations import views
from reactor_coord.testing import drain
from reactor_coord.testing.dispatches import Dispatches
from reactor_coord.testing.factories import ExecutionFactory, StepRunFactory
from tests.support.counting import counted_queries

from .conftest import ClientOf
from .family import Spread

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def spread(transactional_db: None, reactor_dispatches: Dispatches) -> Execution:
    """Five elements of which one failed, and a unit on the side."""
    handle = Spread.enqueue(numbers=[1, 2, -1, 4, 5])
    drain()
    return Execution.objects.get(pk=handle.id)


def _fan(count: int) -> Execution:
    row: Execution = ExecutionFactory.create(running=True)
    StepRunFactory.create(execution=row, step="spread", kind="map", status="dispatched")
    for number in range(count):
        status = "failed" if number % 50 == 3 else "completed" if number % 2 else "ready"
        ExecutionFactory.create(status=status, parent=row, parent_step="spread", element_index=number, result=None)
    return row


def test_units_are_shown_below_the_step_that_dispatched_them(spread: Execution) -> None:
    steps = {step.name: step for step in views.detail(spread).steps}
    fan, alone = steps["spread"].units, steps["alone"].units
    assert fan is not None and alone is not None
    assert fan.is_fan_out and fan.total == 5 and dict(fan.counts)["failed"] == 1
    assert [(each.element_index, each.status) for each in fan.shown] == [(2, "failed")]
    assert not alone.is_fan_out and [each.label for each in alone.shown] == ["Spread.alone"]
    assert steps["spread"].branches == () and steps["end"].units is None


def test_a_page_of_thousands_has_a_handful_of_links_and_costs_the_same(client_of: ClientOf) -> None:
    client = client_of("viewer")
    few, many = _fan(4), _fan(400)

    def cost(row: Execution) -> tuple[int, str]:
        url = reverse("admin:reactor_coord_execution_change", args=[row.pk])
        with counted_queries() as queries:
            page = client.get(url).content.decode()
        return len(queries), page

    cost(few)
    (small, _), (large, page) = cost(few), cost(many)
    assert small == large
    assert "8 failed" in page and "200 completed" not in page and "of 400 over" in page
    shown = views.detail(many).steps[0].units
    assert shown is not None and len(shown.shown) == 8 and sum(count for _, count in shown.counts) == 400


def test_the_counts_lead_to_the_list_of_those_elements(spread: Execution, client_of: ClientOf) -> None:
    client = client_of("viewer")
    page = client.get(reverse("admin:reactor_coord_execution_change", args=[spread.pk])).content.decode()
    listed = reverse("admin:reactor_coord_execution_changelist")
    assert f"{listed}?of={spread.pk}/spread&amp;status__exact=failed" in page
    found = client.get(listed, {"of": f"{spread.pk}/spread", "status__exact": "failed"})
    assert [row.element_index for row in found.context["cl"].result_list] == [2]
    assert "spread[2] of" in found.content.decode()


def test_a_units_page_links_to_its_parent_and_is_its_own(spread: Execution, client_of: ClientOf) -> None:
    unit = Execution.objects.get(parent=spread, element_index=2)
    detail = views.detail(unit)
    assert not detail.definition_missing and detail.summary.parent == str(spread.pk)
    assert detail.steps[0].error is not None and detail.trace_total > 0 and detail.allowed == frozenset()
    page = client_of("operator").get(reverse("admin:reactor_coord_execution_change", args=[unit.pk])).content.decode()
    assert reverse("admin:reactor_coord_execution_change", args=[spread.pk]) in page
    assert "Element 2 of step" in page and "Definition missing" not in page
    out = StringIO()
    call_command("executions", str(unit.pk), stdout=out)
    assert f"part of {spread.pk}, at step spread" in out.getvalue()


def test_lists_show_what_somebody_started_unless_asked_otherwise(spread: Execution, client_of: ClientOf) -> None:
    client = client_of("viewer")
    listed = reverse("admin:reactor_coord_execution_changelist")
    api = reverse("reactor_coord_api:execution-list")

    def shown(**query: Any) -> int:
        return len(client.get(listed, query).context["cl"].result_list)

    def counted(**query: Any) -> int:
        return int(client.get(api, query).json()["count"])

    assert shown() == counted() == counted(roots_only="true") == 1
    assert shown(of="all") == counted(roots_only="false") == 7
    assert shown(of=str(spread.pk)) == counted(parent=str(spread.pk)) == 6
    assert shown(of=f"{spread.pk}/alone") == counted(parent=str(spread.pk), parent_step="alone") == 1
    assert shown(of="nonsense") == 1 and client.get(api, {"parent": "nonsense"}).status_code == 400
    element = client.get(api, {"parent": str(spread.pk), "parent_step": "spread", "status": "failed"}).json()["results"]
    assert [(each["element_index"], each["parent_step"]) for each in element] == [(2, "spread")]
    for words, number in (((), 1), (("--all",), 7), (("--parent", str(spread.pk)), 6)):
        out = StringIO()
        call_command("executions", *words, "--json", stdout=out)
        assert len(json.loads(out.getvalue())) == number


def test_the_api_and_the_command_have_the_counts(spread: Execution, client_of: ClientOf) -> None:
    body = client_of("viewer").get(reverse("reactor_coord_api:execution-detail", args=[spread.pk])).json()
    units = {step["name"]: step["units"] for step in body["steps"]}
    assert units["spread"]["counts"]["failed"] == 1 and units["spread"]["total"] == 5 and units["end"] is None
    out = StringIO()
    call_command("executions", str(spread.pk), stdout=out)
    assert "of 5 over" in out.getvalue() and "Spread.spread[2]" in out.getvalue()


def test_a_unit_that_is_parked_is_among_the_parks(client_of: ClientOf) -> None:
    row = ExecutionFactory.create(running=True)
    unit = ExecutionFactory.create(parked=True, parent=row, parent_step="alone")
    assert [park.execution for park in views.parks().rows] == [str(unit.pk)]


@with_lock("item:{number}", ttl=5)
class _Keyed(Step):
    """An element under a key of its own value."""

    number = Input(int)

    def run(self) -> int:
        return self.number


class _KeyedMap(Reactor):
    """A map of them, and a unit."""

    spread = map_each(_Keyed, over=[1, 2], number=element())
    alone = async_step(_Keyed, number=3)


def test_what_elements_take_is_not_shown_as_never_taken(transactional_db: None, reactor_dispatches: Dispatches) -> None:
    handle = _KeyedMap.enqueue()
    drain()
    assert handle.status == "completed"
    for step in views.detail(Execution.objects.get(pk=handle.id)).steps:
        assert [(each.declared, each.state) for each in step.coordination] == [("item:{number}", "in its units")]
