"""seen_03, seen_04 with a real worker: who holds and who waits, on the API and the admin, while it happens."""

from __future__ import annotations

import time
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.urls import reverse

from reactor_coord.testing.plugin import StartWorker
from tests.live.reactors import Payment
from tests.support.patience import PATIENCE, SLOWNESS, patience

from .conftest import ClientOf

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.live]


def test_seen_04_held_and_waiting_while_it_happens(live_worker: StartWorker, client_of: ClientOf) -> None:
    client = client_of("operator")
    holder = Payment.enqueue(key="acct:1", seconds=4 * SLOWNESS)  # as long as it takes to look at both
    pending = _charge(client, holder.id)  # no worker runs yet
    assert (pending["status"], pending["coordination"][0]["state"]) == ("pending", "pending")
    assert (pending["coordination"][0]["primitive"], pending["coordination"][0]["declared"]) == ("lock", "{key}")
    live_worker(concurrency=2)
    _until(lambda: _charge(client, holder.id)["coordination"][0]["state"] == "held")
    waiter = Payment.enqueue(key="acct:1")
    _until(lambda: waiter.status == "parked")

    held = _charge(client, holder.id)
    assert held["status"] == "running"
    assert held["coordination"][0]["key"] == "acct:1" and held["coordination"][0]["since"]
    assert held["coordination"][0]["holder"]["execution"] == str(holder.id)

    waiting = _charge(client, waiter.id)["coordination"][0]
    assert waiting["state"] == "waiting" and waiting["holder"]["execution"] == str(holder.id)
    wait = _detail(client, waiter.id)["waits_on"]
    assert (wait["step"], wait["key"], wait["place"], wait["attempts"]) == ("charge", "acct:1", 1, 1)
    page = client.get(reverse("admin:reactor_coord_execution_change", args=[waiter.id])).content.decode()
    assert str(holder.id)[-8:] in page and "1st in line" in page
    url = reverse("admin:reactor_coord_execution_change", args=[holder.id])
    assert url in client.get(reverse("admin:reactor_coord_coordination")).content.decode()

    assert waiter.wait(patience(20)).succeeded
    out = StringIO()
    call_command("executions", str(waiter.id), stdout=out)
    events = [word for word in ("refused", "parked", "woken", "released", "completed") if word in out.getvalue()]
    assert events == ["refused", "parked", "woken", "released", "completed"]
    (charge,) = _charge(client, waiter.id)["coordination"]
    assert charge["state"] == "released"


def _detail(client: Any, execution_id: Any) -> dict[str, Any]:
    body: dict[str, Any] = client.get(reverse("reactor_coord_api:execution-detail", args=[execution_id])).json()
    return body


def _charge(client: Any, execution_id: Any) -> dict[str, Any]:
    step: dict[str, Any] = next(step for step in _detail(client, execution_id)["steps"] if step["name"] == "charge")
    return step


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)
